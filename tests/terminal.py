"""A program on a pseudo-terminal of its own, and the person who types there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

DEADLINE = 60.0
# A background process ignores Ctrl-C, and so would all its children.
_LAUNCH = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program's screen, and the keys sent to it."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._raw = b""
        self._seen = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # Linux ends the reading side of a terminal without a writer with EIO.
        with contextlib.suppress(OSError):
            while chunk := os.read(self._master, 65536):
                self._raw += chunk

    @property
    def raw(self) -> str:
        """The whole output, escape sequences included."""
        return self._raw.decode("utf-8", "replace")

    def shows(self, text: str) -> str:
        """The output since the last call up to `text`, without styles; waits for it."""
        deadline = time.monotonic() + DEADLINE
        while (found := self._plain().find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was not shown in:\n{self._plain()}"
            time.sleep(0.01)
        start, self._seen = self._seen, found + len(text)
        return self._plain()[start : self._seen]

    def _plain(self) -> str:
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    def keys(self, text: str) -> None:
        """Press keys; `\\n` is Enter, `\\x03` Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._master, text.encode())

    def ended(self) -> int:
        """The exit code, once the program has ended."""
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return code


@contextlib.contextmanager
def terminal(
    arguments: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run Python with `arguments` on a terminal of 80 columns, with state in `folder`; killed with
    the block."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
    kept.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env={**kept, "TERM": "xterm", "XDG_STATE_HOME": str(folder), **(environ or {})},
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
