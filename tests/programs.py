"""Programs under test as processes: their output is read as it arrives."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

DEADLINE = 120.0


def until(holds: Callable[[], T]) -> T:
    """The value of `holds` once it is true."""
    deadline = time.monotonic() + DEADLINE
    while not (value := holds()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
    return value


class Program:
    """A process that serves; `said` is its standard error so far."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.said += line

    @property
    def port(self) -> int:
        """The port, once it reports that it listens."""
        pattern = re.compile(r"listening on http://127.0.0.1:(\d+)")
        found = until(lambda: pattern.search(self.said) or self.process.poll() is not None)
        assert isinstance(found, re.Match), self.said
        return int(found[1])

    def end(self) -> int:
        """The exit status, once the process has ended."""
        status = self.process.wait(DEADLINE)
        self._reader.join()
        return status

    def close(self) -> None:
        """End it, gently if possible."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._reader.join()
