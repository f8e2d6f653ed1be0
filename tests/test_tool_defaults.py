"""The defaults of a tool are bound, and are the same in each process (design, section 6, "The
deed")."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Secret, SecretBytes

from sayso import Tool, tool
from sayso.tools.inputs import recorded

NESTED = '''
import dataclasses
from pydantic import BaseModel
from sayso import tool

class Ports(BaseModel):
    names: set[str] = {"http", "https", "ssh"}

@dataclasses.dataclass
class Zone:
    names: set[str] = dataclasses.field(default_factory=lambda: {"north", "south", "west"})

@tool
def scan(
    lists: list[set[str]] = [{"a", "b", "c"}, {"x", "y", "z"}],
    named: dict[str, frozenset[str]] = {"k": frozenset({"p", "q", "r"})},
    ports: Ports = Ports(),
    zone: Zone = Zone(),
) -> None:
    """Scan."""

print(scan.digest)
'''


def test_sets_within_a_default_are_the_same_in_each_process(tmp_path: Path) -> None:
    file = tmp_path / "scan.py"
    file.write_text(NESTED)
    digests = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, file], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def of_number(limit: float) -> Tool[..., Any]:
    def wait(limit: float = limit) -> None:
        """Wait."""

    return tool(wait)


def of_bytes(key: bytes) -> Tool[..., Any]:
    def sign(key: bytes = key) -> None:
        """Sign."""

    return tool(sign)


def of_secret_bytes(key: bytes) -> Tool[..., Any]:
    def sign(key: SecretBytes = SecretBytes(key)) -> None:  # noqa: B008
        """Sign."""

    return tool(sign)


def of_secret_number(pin: int) -> Tool[..., Any]:
    def unlock(pin: Secret[int] = Secret(pin)) -> None:  # noqa: B008
        """Unlock."""

    return tool(unlock)


def of_secret_within(secret: int) -> Tool[..., Any]:
    class Lock(BaseModel):
        pin: Secret[int] = Secret(secret)

    def unlock(door: str, lock: Lock) -> None:
        """Unlock."""

    return tool(unlock)


@pytest.mark.parametrize(
    ("made", "one", "other"),
    [
        (of_number, math.inf, -math.inf),
        (of_number, math.inf, math.nan),
        (of_bytes, b"\xff", b"\xfe"),
        (of_secret_bytes, b"\xff", b"\xfe"),
        (of_secret_number, 1234, 4321),
        (of_secret_within, 1234, 4321),
    ],
)
def test_default_that_json_cannot_say_is_bound(
    made: Callable[[Any], Tool[..., Any]], one: Any, other: Any
) -> None:
    assert made(one).digest == made(one).digest != made(other).digest


def test_default_of_a_secret_of_any_type_is_shown_nowhere() -> None:
    found = recorded(of_secret_number(1234), {})
    assert (found.input, found.marks) == ({}, {"pin": {"set_by": "service"}})
    assert "1234" not in str(of_secret_number(1234).definition)


def test_default_of_infinity_is_absent_from_the_input_and_from_its_description() -> None:
    found = recorded(of_number(math.inf), {})
    assert (found.input, found.marks) == ({}, {"limit": {"set_by": "service"}})
    json.dumps(found.marks, allow_nan=False)
