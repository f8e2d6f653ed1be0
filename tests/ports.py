"""Ports that a test has to know before anybody listens there."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_SYSTEM = random.SystemRandom()


def quiet_port() -> int:
    """A free port of 127.0.0.1 that the kernel gives only to those who ask for it.

    A port that a listener on port 0 had and released may be in use again: by a listener of a test
    beside this one, or by the near end of any connection.
    """
    lowest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    for port in _SYSTEM.sample(range(20_000, lowest), 100) if lowest > 21_000 else [0] * 100:
        try:
            with socket.create_server(("127.0.0.1", port)) as free:
                return int(free.getsockname()[1])
        except OSError:
            continue
    raise RuntimeError("there is no free port")
