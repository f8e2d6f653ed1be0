"""Terminal commands: running approved ones.

interface.md, "Command lifecycle"; design, sections 5, 6 and 8.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sayso.commands.folders import PathRefused, private_folder, relative_parts, write_inside
from sayso.commands.identity import digest_of, environment, identity_of, place_of
from sayso.context import RequestContext
from sayso.errors import counted
from sayso.service.processes import Ended, Stop, run_process, signal_name
from sayso.tools.signatures import check_call
from sayso.wire.messages import CommandFile

T = TypeVar("T")

_KEPT_DAYS = 7
_SWEEP_SECONDS = 3600
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


Environment = Mapping[str, str] | Callable[[Any], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command.

    `failed` is true for a command that was refused, could not start, was killed or timed out. An
    exit code above 0 alone is no failure, but is stated in `output`. `exit_code` is negative for a
    signal and None if nothing ran.
    """

    output: str
    failed: bool = False
    exit_code: int | None = None
    timed_out: bool = False


class LocalShell:
    """Runs approved commands on this machine, in a working directory for each conversation.

    `workdir` is the folder that holds those directories; without it they lie in a private folder
    under the system's temporary one, and go after a week without use. `timeout` is in seconds,
    `max_output` in bytes; longer output loses its middle. Commands get a clean environment (PATH,
    HOME, LANG, TERM, TMPDIR) with the additions of `env`: a dict, or a function of the
    RequestContext.

    Background processes of a command live on, unless the command is killed: then its whole session
    ends. Only a process that starts a session of its own (`setsid`) escapes that.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str] | None = None,
        timeout: float = 60,
        max_output: int = 262144,
        env: Environment | None = None,
    ) -> None:
        _check_options(workdir, timeout, max_output, env)
        self.workdir = None if workdir is None else Path(workdir).expanduser().absolute()
        self.timeout = float(timeout)
        self.max_output = max_output
        self._env = dict(_checked(env)) if isinstance(env, Mapping) else env
        self._next_sweep = 0.0
        if self.workdir is not None:
            _forget_dead(self.workdir)
        self._program = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"

    async def run(
        self,
        command: str,
        files: Sequence[CommandFile] | None = (),
        *,
        conversation: str,
        context: RequestContext,
        begin: Callable[[], None] = lambda: None,
    ) -> CommandResult:
        """Write `files`, run `command` and return its output.

        `begin` is called before anything is done; its exception ends the run. Cancelling it kills
        the command and everything that it started, and returns only when they are gone. Raises the
        exceptions of `env` and `begin`; everything else is a failed result. Works on any event
        loop.
        """
        with closing(Stop()) as stop:
            return await _in_thread(
                lambda: self._run(command, files or (), conversation, context, stop, begin), stop
            )

    def _run(
        self,
        command: str,
        files: Sequence[CommandFile],
        conversation: str,
        context: RequestContext,
        stop: Stop,
        begin: Callable[[], None],
    ) -> CommandResult:
        added = self._added(context)
        begin()
        try:
            folder = self.folder(conversation)
            _write(folder, files)
            with _kubeconfig(context, folder.parent) as kubeconfig:
                if stop.is_set:
                    return _refused("the command was cancelled before it started")
                ended = run_process(
                    [self._program, "-c", command],
                    cwd=folder,
                    env={**_clean(folder), **added, **kubeconfig},
                    timeout=self.timeout,
                    max_output=self.max_output,
                    stop=stop,
                    secrets=context.platform.secrets(),
                )
                return self._result(ended)
        except PathRefused as error:
            return _refused(f"{error}; nothing was run")
        except (OSError, ValueError) as error:
            return _refused(f"the command could not be started: {_reason(error)}")

    def folder(self, conversation: str) -> Path:
        """The working directory of a conversation, created if missing.

        Its name is a digest, so that no text of a caller becomes a path.
        """
        name = hashlib.sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        folder = private_folder(self._base() / name)
        private_folder(folder / ".tmp")
        os.utime(folder)
        return folder

    def _base(self) -> Path:
        if self.workdir is not None:
            self.workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self.workdir
        base = private_folder(Path(tempfile.gettempdir()).absolute() / f"sayso-{os.geteuid()}")
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + _SWEEP_SECONDS
            _forget_dead(base)
            _sweep(base)
        return base

    def identity(self) -> tuple[str, str]:
        """The digest that an approval binds: of settings and folder; and, for people, where
        commands run."""
        try:
            folder = identity_of(self._base())
        except OSError:
            folder = ""
        settings = (self._program, self.timeout, self.max_output, self._bound_env)
        return digest_of(folder, *settings), place_of(self._program, self.workdir)

    @cached_property
    def _bound_env(self) -> str:
        return environment(self._env)

    @property
    def reads_context(self) -> bool:
        """Whether the environment of a command depends on the RequestContext."""
        return callable(self._env)

    def _added(self, context: RequestContext) -> dict[str, str]:
        if self._env is None:
            return {}
        return dict(_checked(self._env(context) if callable(self._env) else self._env))

    def _result(self, ended: Ended) -> CommandResult:
        text = ended.output
        if ended.left:
            text = _joined(text, "[processes that the command started are still running]")
        if ended.code == 0 and not ended.timed_out:
            return CommandResult(text, exit_code=0)
        if ended.code is not None and ended.code > 0 and not ended.timed_out:
            return CommandResult(_joined(text, f"[exit code {ended.code}]"), exit_code=ended.code)
        how = self._death(ended)
        return CommandResult(_joined(f"Error: {how}", text), True, ended.code, ended.timed_out)

    def _death(self, ended: Ended) -> str:
        if ended.code is None:
            return "the command had to be killed and did not end; it may still be running"
        if ended.timed_out:
            return f"the command ran longer than {counted(self.timeout, 'second')} and was killed"
        return f"the command was ended by {signal_name(-ended.code)}"


async def _in_thread(work: Callable[[], T], stop: Stop) -> T:
    future: Future[T] = Future()
    context = contextvars.copy_context()
    arguments = (_deliver, work, future)
    thread = threading.Thread(target=context.run, args=arguments, name="sayso-command", daemon=True)
    thread.start()
    ended = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        stop.set()
        await _settled(ended)
        raise


def _deliver(work: Callable[[], T], future: Future[T]) -> None:
    future.set_running_or_notify_cancel()
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


async def _settled(ended: asyncio.Future[T]) -> None:
    # A second cancellation must not return before the processes are gone.
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            continue
    if not ended.cancelled():
        ended.exception()


def _write(folder: Path, files: Sequence[CommandFile]) -> None:
    contents: dict[str, bytes] = {}
    for file in files:
        contents["/".join(relative_parts(file.file_path))] = _encoded(file)
    for path, content in contents.items():
        write_inside(folder, path, content)


def _encoded(file: CommandFile) -> bytes:
    try:
        return file.file_content.encode()
    except UnicodeEncodeError:
        raise PathRefused(f"the content of {file.file_path!r} is not valid Unicode") from None


@contextmanager
def _kubeconfig(context: RequestContext, base: Path) -> Iterator[dict[str, str]]:
    if not (secret := context.platform.kubeconfig):
        yield {}
        return
    from sayso.commands import kubeconfigs

    # The file is outside the directory that the conversation keeps.
    with kubeconfigs.as_file(secret.get_secret_value(), base) as path:
        yield {"KUBECONFIG": str(path)}


def _forget_dead(base: Path) -> None:
    # It needs POSIX locks, and most importers of this module run no commands.
    from sayso.commands import kubeconfigs

    kubeconfigs.forget_dead(base)


def _clean(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH") or _DEFAULT_PATH,
        "HOME": str(folder),
        "LANG": os.environ.get("LANG") or "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": str(folder / ".tmp"),
    }


def _check_options(workdir: object, timeout: object, max_output: object, env: object) -> None:
    """Raise TypeError, ValueError or RuntimeError for options that no shell can be made with."""
    if os.name != "posix":
        raise RuntimeError("LocalShell needs a POSIX system; leave out commands=")
    if workdir is not None and not isinstance(workdir, (str, os.PathLike)):
        raise TypeError(f"LocalShell: workdir must be a path, not {workdir!r}")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"LocalShell: timeout must be seconds, not {timeout!r}")
    if not 0 < timeout < math.inf:
        raise ValueError(f"LocalShell: timeout must be above 0 seconds, not {timeout!r}")
    if isinstance(max_output, bool) or not isinstance(max_output, int):
        raise TypeError(f"LocalShell: max_output must be a number of bytes, not {max_output!r}")
    if max_output < 1:
        raise ValueError(f"LocalShell: max_output must be at least 1 byte, not {max_output!r}")
    if inspect.iscoroutinefunction(env):
        raise TypeError("LocalShell: env must be a dict or a plain function, not an async one")
    if not (env is None or callable(env) or isinstance(env, Mapping)):
        raise TypeError(f"LocalShell: env must be a dict or a function of the context, not {env!r}")
    if callable(env):
        check_call("LocalShell: env", env, "context")


def _checked(env: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(env, Mapping):
        raise TypeError(f"LocalShell: env gave {type(env).__name__} in place of a dict")
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(f"LocalShell: {name!r} is no name of an environment variable")
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"LocalShell: the environment variable {name!r} must be a string")
    return env


def _sweep(base: Path) -> None:
    oldest = time.time() - _KEPT_DAYS * 86400
    for found in base.iterdir():
        try:
            if found.lstat().st_mtime >= oldest:
                continue
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found, ignore_errors=True)
            else:
                found.unlink()
        except FileNotFoundError:
            continue


def _refused(reason: str) -> CommandResult:
    return CommandResult(f"Error: {reason}", failed=True)


def _reason(error: Exception) -> str:
    # The text of an OSError may contain the command; its meaning is enough.
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _joined(*parts: str) -> str:
    return "\n".join(part.rstrip("\n") for part in parts if part)
