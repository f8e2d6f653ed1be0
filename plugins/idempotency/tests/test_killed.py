"""A service with a key in its hands is killed; the repeat goes on, and runs no tool again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from sayso.testing import Answer, user

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from databases import empty_schema
from environments import serving

AGENT = """
import os, signal
from pathlib import Path
from sayso import Agent, Call, Result, tool
from sayso.testing import scripted

def killed_at(place):
    with open("said", "a") as said:
        said.write(place + "\\n")
    if Path("kill").read_text() == place:
        os.kill(os.getpid(), signal.SIGKILL)

@tool
def pay(to: str) -> str:
    "Pay somebody."
    killed_at(f"pay {to}")
    return f"paid {to}"

@tool(idempotent=True)
def look(at: str) -> str:
    "Look at something."
    killed_at(f"look {at}")
    return f"seen {at}"

STEPS = [("pay", {"to": "ann"}), ("pay", {"to": "bob"}), ("look", {"at": "it"})]

def model(ask):
    results = [b.output for t in ask.turns for b in t.blocks if isinstance(b, Result)]
    killed_at(f"model {len(results)}")
    if len(results) == len(STEPS):
        return " / ".join(results)
    name, given = STEPS[len(results)]
    return [Call(f"call-{len(results)}", name, given)]

agent = Agent(name="desk", model=scripted(*[model] * 9), tools=[pay, look])
"""
CONFIG = 'agent = "agent.py:agent"\nplugins = ["v2", "idempotency"]\n[approvals]\nledger = "{}"\n'
KEY = {"Idempotency-Key": "a-key-that-survives"}
DEATHS = ["model 1", "pay bob", "look it", ""]


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'approvals.db'}"
    else:
        with empty_schema() as url:
            yield url


def ask(folder: Path, stream: bool) -> Answer | None:
    """The answer of a new process; None if it died."""
    python = Path(sys.executable)
    with suppress(OSError, HTTPException), serving(python, folder) as service:
        deadline = time.monotonic() + 60
        while (answer := service.ask(user("pay"), headers=KEY, stream=stream)).status == 409:
            assert time.monotonic() < deadline
            assert answer.json()["code"] == "IDEMPOTENCY_KEY_IN_USE"
            time.sleep(0.5)
        if not stream or answer.events[-1]["type"] in ("done", "error"):
            return answer
    return None


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_killed_turn_goes_on_with_its_key(tmp_path: Path, ledger: str, stream: bool) -> None:
    (tmp_path / "agent.py").write_text(AGENT, "utf-8")
    (tmp_path / "sayso.toml").write_text(CONFIG.format(ledger), "utf-8")
    answers = []
    for place in DEATHS:
        (tmp_path / "kill").write_text(place)
        answers.append(ask(tmp_path, stream))
    assert answers[:-1] == [None] * (len(DEATHS) - 1)
    last = answers[-1]
    assert last is not None
    assert last.status == 200
    pieces = (
        [e["text"] for e in last.events if e["type"] == "text_delta"]
        if stream
        else [last.json()["content"]]
    )
    first, second, third = "".join(pieces).split(" / ")
    assert first == "paid ann"
    assert second.startswith("Outcome unknown: ")
    assert third == "seen it"
    ran = (tmp_path / "said").read_text().splitlines()
    assert [ran.count(each) for each in ("pay ann", "pay bob", "look it")] == [1, 1, 2]
    assert [ran.count(f"model {n}") for n in range(4)] == [1, 2, 1, 1]


def _text(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "text_delta")
