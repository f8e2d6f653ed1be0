"""The place of a child process: what it inherits from its supervisor, and how it reports to it.

A child runs the same command line again with its place in the environment. Its call of `serve`
finds the place and serves on the inherited sockets.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from sayso.errors import ConfigError
from sayso.service.ports import serves_on

VARIABLE = "_SAYSO_PLACE"
Role = Literal["worker", "plugins"]
_INSTALLED = frozenset({"site-packages", "dist-packages"})


class Place:
    """The things that a child process inherits from its supervisor.

    `listening` are the sockets of all workers; `own` is the number of the one that this worker
    listens on until directed otherwise. `first` is true for the child that announces the service;
    `guarded` if callers of the service have had to authenticate. `token` is the token of the start,
    and it is the same in every process.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.role: Role = values["role"]
        self.first: bool = values["first"]
        self.reload: bool = values["reload"]
        self.guarded: bool = values["guarded"]
        self.link = socket.socket(fileno=values["link"])
        self.listening = [socket.socket(fileno=number) for number in values["listening"]]
        self.own: int = values["own"]
        self._unread = b""
        with socket.socket(fileno=values["token"]) as held:
            self.token = held.recv(1024).decode()
        for inherited in (self.link, *self.listening):
            inherited.set_inheritable(False)
        for listening in self.listening:
            serves_on(listening)

    def check(self, host: Any) -> None:
        """Raise ConfigError if callers need no longer authenticate.

        The plugin that authenticated them may be gone by accident, which must not open a running
        service.
        """
        if self.guarded and not host.guarded:
            raise ConfigError(
                "callers had to say who they are when this service started, and nothing asks them "
                "now: a plugin is gone or cannot be loaded; restart the service if that is meant"
            )

    def report(self, app: Any) -> None:
        """Report to the supervisor that this process serves, with its properties."""
        files = _own_files() if self.reload else []
        own = app is not None and bool(app.host.plugins.own_process)
        guarded = app is not None and app.host.guarded
        said = {"own_process": own, "guarded": guarded, "files": files}
        self.link.sendall(json.dumps(said).encode() + b"\n")

    def report_failed(self, cause: str) -> None:
        """Report to the supervisor why this process does not serve."""
        with suppress(OSError):
            self.link.sendall(json.dumps({"failed": cause}).encode() + b"\n")

    def report_closed(self) -> None:
        """Report to the supervisor that this process, which ends, listens no more."""
        with suppress(OSError):
            self.link.sendall(b'{"closed": true}\n')

    def instruction(self) -> set[int] | None:
        """The supervisor's last instruction, once `link` is readable: the sockets to listen on.

        None if the supervisor is gone. Raises BlockingIOError if the instruction is not complete
        yet.
        """
        try:
            data = self.link.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            return None
        *said, self._unread = (self._unread + data).split(b"\n")
        if not said:
            raise BlockingIOError
        return set(json.loads(said[-1])["listen"])

    def close(self) -> None:
        """Close the inherited descriptors; the supervisor sees the end of the link."""
        for inherited in (self.link, *self.listening):
            inherited.close()


def take_place() -> Place | None:
    """The place of this process; None if it has no supervisor. Only the first call gets it."""
    text = os.environ.pop(VARIABLE, None)
    return Place(json.loads(text)) if text else None


def command() -> list[str]:
    """The command line that runs this program again. Raises ConfigError if there is none."""
    if os.name == "nt":
        raise ConfigError("reload and workers above 1 need a POSIX system; use workers = 1")
    arguments = sys.orig_argv[1:]
    main = sys.modules["__main__"]
    if not os.path.isfile(getattr(main, "__file__", None) or "") and "-c" not in arguments:
        raise ConfigError(
            "the agent cannot be found again in child processes: this program has no file to run "
            "again; put it into a script, or use workers = 1 without reload"
        )
    return [sys.executable, *arguments]


def _own_files() -> list[str]:
    """The source files of this process that are the user's own, not an installed package's."""
    # Not everything below sys.prefix: that may be the project's own folder, or /usr.
    library = os.path.dirname(os.__file__) + os.sep
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted(
        {
            file
            for file in files
            if file
            and not file.startswith(library)
            and _INSTALLED.isdisjoint(Path(file).parts)
            and os.path.isfile(file)
        }
    )
