"""Server processes on a core of their own, and their use of resources (Linux)."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORES = {CORES[0]}
LOAD_CORES = {CORES[-1]}
ROOT = Path(__file__).resolve().parent.parent


class Process:
    """One server and its children."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.name = name
        self.port = port
        self.log = log
        self._popen = popen
        self.started = time.perf_counter()
        self.took = 0.0

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self._popen.pid

    def ended(self) -> bool:
        """Whether it runs no longer."""
        return self._popen.poll() is not None

    def tree(self) -> list[int]:
        """The process and all below it."""
        found = [self.pid]
        for pid in found:
            for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in tasks.read_text().split()]
        return found

    def cpu(self) -> float:
        """Seconds of processor time, user and system, of the whole tree."""
        # The clock of another process (clock_getcpuclockid) counts nanoseconds, /proc only ticks.
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self.tree())

    def memory(self) -> float:
        """Resident memory of the tree in MB."""
        return sum(_resident(pid) for pid in self.tree()) / 1024

    def private(self) -> float:
        """The part of it in MB that no other process shares: the cost of one more server."""
        return sum(_private(pid) for pid in self.tree()) / 1024

    def stop(self) -> None:
        """End it, and wait for the end."""
        if not self.ended():
            self._popen.send_signal(signal.SIGTERM)
            try:
                self._popen.wait(15)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait(15)


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def _private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def free_port() -> int:
    """A port that nobody listens on, below the range from which the system assigns ports."""
    while True:
        port = random.randrange(20_000, 32_000)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


@contextmanager
def running(
    name: str,
    script: str,
    arguments: Sequence[str] = (),
    *,
    python: str = sys.executable,
    cores: set[int] | None = None,
    patience: float = 60.0,
) -> Iterator[Process]:
    """The server `benchmarks/servers/SCRIPT.py`, answering on its port, within the block."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        port, log = free_port(), Path(folder) / "log"
        # Without written bytecode, a checkout is compiled at each start.
        left_out = ("SAYSO_", "PYTHONDONTWRITEBYTECODE")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        environ["PYTHONPATH"] = os.pathsep.join(
            part for part in (str(ROOT), environ.get("PYTHONPATH", "")) if part
        )
        path = ROOT / "benchmarks" / "servers" / f"{script}.py"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [python, str(path), str(port), *arguments],
                cwd=folder,
                env=environ,
                stdout=out,
                stderr=out,
            )
        # Long before the interpreter has a second thread; later threads inherit it.
        os.sched_setaffinity(popen.pid, cores or SERVER_CORES)
        process = Process(name, popen, port, log)
        try:
            process.took = wait_for(process, patience)
            yield process
        finally:
            process.stop()


def wait_for(process: Process, patience: float) -> float:
    """Seconds until the server's first answer; raises RuntimeError with its log if there is
    none."""
    deadline = time.perf_counter() + patience
    while time.perf_counter() < deadline and not process.ended():
        if answers(process.port):
            return time.perf_counter() - process.started
        time.sleep(0.005)
    raise RuntimeError(f"{process.name} did not start:\n{process.log.read_text()[-3000:]}")


def answers(port: int) -> bool:
    """Whether `/health`, or the server's substitute for it, is answered."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5) as connection:
            connection.settimeout(2.0)
            connection.sendall(
                b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            )
            return connection.recv(12).startswith(b"HTTP/1.1 ")
    except OSError:
        return False
