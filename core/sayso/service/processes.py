"""One child process with a time limit; its whole session can be ended.

It runs in a thread of its own, since children of asyncio and uvloop depend on the kind of loop and
on the thread that runs it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
LINGER = 0.25
"""Seconds to wait for the output of processes that outlive the command."""
_CHUNK = 65536
_TICK = 0.02


class Stop:
    """A request to end a process; `set` may be called from any thread, at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._reader, self._writer = os.pipe()
        self._open = True

    def set(self) -> None:
        with self._lock:
            if self._open and not self._set:
                os.write(self._writer, b"!")
            self._set = True

    @property
    def is_set(self) -> bool:
        return self._set

    def fileno(self) -> int:
        return self._reader

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._reader)
                os.close(self._writer)


class Captured:
    """The first and the last part of an output, `limit` bytes in all.

    A secret that the cut would split is removed as a whole.
    """

    def __init__(self, limit: int, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._first = limit // 2
        self._last = limit - self._first
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._first - len(self._head)
        self._head += chunk[: max(room, 0)]
        self._tail += chunk[max(room, 0) :]
        if len(self._tail) > self._last + _CHUNK:
            del self._tail[: -self._last]

    def text(self) -> str:
        """The output with replacement characters, and a line that says how much was cut off."""
        tail = bytes(self._tail[-self._last :])
        lost = self.total - len(self._head) - len(tail)
        if not lost:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        line = f"\n[... {lost} of {self.total} bytes of output cut ...]\n"
        head, end = self._head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        mirrored = [secret[::-1] for secret in self._secrets]
        return _whole(head, self._secrets) + line + _whole(end[::-1], mirrored)[::-1]


def _whole(text: str, secrets: Iterable[str]) -> str:
    """`text` without the beginning of a secret at its end."""
    return text[: min((_beginning(secret, text) for secret in secrets), default=len(text))]


def _beginning(secret: str, text: str) -> int:
    """The position in `text` of the longest beginning of `secret` that `text` ends with, if it has
    four characters; otherwise the end of `text`."""
    start = text.find(secret[:4], max(len(text) - len(secret) + 1, 0))
    while start >= 0 and not secret.startswith(text[start:]):
        start = text.find(secret[:4], start + 1)
    return start if start >= 0 else len(text)


class Ended(NamedTuple):
    """The end of a process.

    `code` is negative for a signal and None if it could not be killed; `left` says that processes
    that it started still hold its output.
    """

    output: str
    code: int | None
    timed_out: bool
    left: bool


def run_process(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    max_output: int,
    stop: Stop,
    secrets: Sequence[str],
) -> Ended:
    """Run a program to its end, to `timeout` seconds or to `stop`, and return how it ended.

    Standard input is empty; standard output and error are one stream. On timeout and stop its
    process group and everything else in its session gets SIGTERM, and SIGKILL after GRACE. Raises
    OSError if it cannot be started.
    """
    process = subprocess.Popen(
        arguments,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )
    with _Watch(process, Captured(max_output, secrets), stop) as watch:
        return watch.to_end(timeout)


class _Watch:
    def __init__(self, process: subprocess.Popen[bytes], captured: Captured, stop: Stop) -> None:
        self._process = process
        self._captured = captured
        self._stop = stop
        self._selector = selectors.DefaultSelector()
        self._pidfd = _pidfd(process.pid)
        self._eof = False
        assert process.stdout is not None
        self._stdout = process.stdout
        self._pipe = process.stdout.fileno()

    def __enter__(self) -> _Watch:
        self._selector.register(self._pipe, selectors.EVENT_READ)
        self._selector.register(self._stop, selectors.EVENT_READ)
        if self._pidfd is not None:
            self._selector.register(self._pidfd, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        self._stdout.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        # After an error, the process must not be left running.
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            self._reap()

    def to_end(self, timeout: float) -> Ended:
        self._pump(timeout, lambda: self._stop.is_set or self._exited())
        self._selector.unregister(self._stop)
        if not self._exited():
            return self._killed(timed_out=not self._stop.is_set)
        self._forget_exit()
        self._pump(LINGER, lambda: self._eof)
        return Ended(self._captured.text(), self._process.wait(), False, not self._eof)

    def _killed(self, timed_out: bool) -> Ended:
        self._signal(signal.SIGTERM)
        self._pump(GRACE, lambda: self._eof and self._exited())
        # The process is reaped last: until then its id stands for this session alone.
        deadline = time.monotonic() + GRACE
        while self._signal(signal.SIGKILL) and time.monotonic() < deadline:
            time.sleep(_TICK)
        self._forget_exit()
        self._pump(LINGER, lambda: self._eof)
        return Ended(self._captured.text(), self._reap(), timed_out, False)

    def _reap(self) -> int | None:
        try:
            return self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return None

    def _pump(self, seconds: float, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not done() and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left if self._pidfd is not None else _TICK):
                if key.fd == self._pipe:
                    self._read()
                elif key.fd == self._pidfd and not done():
                    self._forget_exit()

    def _read(self) -> None:
        chunk = os.read(self._pipe, _CHUNK)
        self._captured.add(chunk)
        if not chunk:
            self._eof = True
            self._selector.unregister(self._pipe)

    def _forget_exit(self) -> None:
        # A process that has ended stays readable, which would spin the loop.
        if self._pidfd is not None and self._pidfd in self._selector.get_map():
            self._selector.unregister(self._pidfd)

    def _exited(self) -> bool:
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:
            return True

    def _signal(self, number: int) -> bool:
        """Send a signal to the whole session; returns whether any process was there."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
        members = _session(self._process.pid)
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        return bool(members)


def signal_name(number: int) -> str:
    """The name of a signal; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _session(leader: int) -> list[int]:
    """The live processes of a session: shells and `timeout` make process groups of their own."""
    if sys.platform != "linux":
        return []
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            state, session = _state(name)
            if session == leader and state not in "ZX":
                found.append(int(name))
    return found


def _state(pid: str) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[3])
    except (OSError, IndexError, ValueError):
        return "X", -1
