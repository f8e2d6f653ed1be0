"""A child process of the supervisor: how it is started, instructed, and how it reports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from sayso.service.place import VARIABLE, Role


@dataclass(eq=False)
class Child:
    """A child process as the supervisor sees it; once ready it takes the place of `replaces`.

    `own` is the number of its socket, `listens` are those of all sockets it was directed to listen
    on. A `closed` one listens no more, since it ends. `failed` is why it could not start.
    """

    role: Role
    process: subprocess.Popen[bytes]
    link: socket.socket
    born: float
    own: int
    listens: set[int]
    ready: bool = False
    closed: bool = False
    failed: str | None = None
    ending: float | None = None
    unread: bytes = b""
    replaces: Child | None = field(default=None, repr=False)

    def listen(self, numbers: set[int]) -> None:
        """Direct it to listen on these sockets and no others."""
        # A stopped child, which does not read, must not delay the others.
        with suppress(OSError):
            self.link.sendall(json.dumps({"listen": sorted(numbers)}).encode() + b"\n")
            self.listens = numbers

    def said(self) -> list[dict[str, Any]] | None:
        """Its reports since the last call, once `link` is readable; None at the end."""
        try:
            data = self.link.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self.unread = (self.unread + data).split(b"\n")
        return [json.loads(line) for line in lines]


def start_child(
    command: Sequence[str],
    place: Mapping[str, Any],
    listening: Sequence[socket.socket],
    replaces: Child | None,
    token: str,
) -> Child:
    """A process that runs `command` in `place`, with these sockets and the token of the start.
    Raises OSError if none can be started."""
    ours, theirs = socket.socketpair()
    with theirs, ExitStack() as unless_started:
        unless_started.enter_context(ours)
        secret = unless_started.enter_context(_holding(token))
        link, held, *numbers = inherited = [x.fileno() for x in (theirs, secret, *listening)]
        values = {**place, "link": link, "listening": numbers, "token": held}
        process = subprocess.Popen(
            command, env=os.environ | {VARIABLE: json.dumps(values)}, pass_fds=inherited
        )
        unless_started.pop_all()
        secret.close()
    ours.setblocking(False)
    own = place["own"]
    return Child(place["role"], process, ours, monotonic(), own, {own}, replaces=replaces)


def _holding(token: str) -> socket.socket:
    """A socket from which the token can be read once. The environment would not do: every tool that
    can read a file can read it."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(token.encode())
    return theirs
