"""A real service is killed at every step of an approval, restarted, and asked again.

Design, section 6, "Run once", "Resume once", "End unknown". `SAYSO_TEST_KILLS` is the number of
random lives (default 24), `SAYSO_TEST_SEED` their seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from processes import Nursery, Process, events_logged, lines, lost, states
from serving import Answer, Json, folded, said, user

from sayso.ledger.log import verify_store
from sayso.ledger.sqlite import SqliteStore

LIVES = int(os.environ.get("SAYSO_TEST_KILLS", "24"))
SEED = int(os.environ.get("SAYSO_TEST_SEED", "1"))
CARRIERS = ("user", "assistant", "approvals")
PROTOCOLS = (("v1", False), ("v1", True), ("v2", False), ("v2", True))

# The final state of the only approved call, and how often it ran.
ENDS = {
    "proposed:written": ("DONE", 1),
    "proposed:committed": ("DONE", 1),
    "approved:written": ("DONE", 1),
    "claimed:written": ("DONE", 1),
    "claimed:committed": ("INDETERMINATE", 0),
    "tool:before": ("INDETERMINATE", 0),
    "tool:after": ("INDETERMINATE", 1),
    "done:written": ("INDETERMINATE", 1),
    "done:committed": ("DONE", 1),
    # The only call of a turn ends and the turn continues in one transaction.
    "RESUMING:written": ("INDETERMINATE", 1),
    "RESUMING:committed": ("DONE", 1),
    "model": ("DONE", 1),
    "ENDED:written": ("DONE", 1),
    "ENDED:committed": ("DONE", 1),
    "reply": ("DONE", 1),
}


@dataclass
class Life:
    """A caller that keeps asking until it has its answer, whatever happens to the service."""

    nursery: Nursery
    folder: Path
    deaths: list[dict[str, str]]
    plan: list[list[str]] = field(default_factory=lambda: [["a"]])
    carrier: str = "user"
    protocol: tuple[str, bool] = ("v2", False)
    tool: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    process: Process | None = None
    kills: int = 0
    approved: set[str] = field(default_factory=set)
    retried: bool = False

    def ask(self, *messages: Json) -> Json:
        """The reply to one request, sent again after each death."""
        path, stream = self.protocol
        self.retried = False
        for _ in range(6):
            process = self.process or self._start()
            answer = lost(process.client, *messages, path=path, stream=stream)
            if answer is not None and (reply := _whole(answer, stream)) is not None:
                return reply
            process.wait()
            process.close()
            self.process, self.retried = None, True
            self.kills += 1
        raise AssertionError("the service died too often")

    def _start(self) -> Process:
        death = self.deaths.pop(0) if self.deaths else {}
        options = {"PLAN": json.dumps(self.plan), "TOOL": json.dumps(self.tool)}
        self.process = self.nursery.start(self.folder, **{**options, **self.environ, **death})
        return self.process

    def approve(self, history: list[Json], reply: Json) -> list[Json]:
        """The request that approves all proposals of `reply`."""
        self.approved |= {call["id"] for call in reply["data"]["tool_calls"]}
        calls = [{**call, "execute": True} for call in reply["data"]["tool_calls"]]
        last = user("")
        answer = said(reply)
        if self.carrier == "assistant":
            answer["data"] = {**answer["data"], "tool_calls": calls, "approvals": []}
        elif self.carrier == "approvals":
            items = [{**item, "execute": True} for item in reply["data"]["approvals"]]
            last["data"] = {"approvals": items}
        else:
            last["data"] = {"tool_calls": calls}
        return [*history, answer, last]

    def live(self) -> Json:
        """The last reply, once no proposal is pending any more."""
        history = [user("wipe them")]
        reply = self.ask(*history)
        while reply["data"]["tool_calls"]:
            history = self.approve(history, reply)
            reply = self.ask(*history)
        self.last_request = history
        return reply


def _whole(answer: Answer, stream: bool) -> Json | None:
    assert answer.status == 200, (answer.status, answer.raw)
    if not stream:
        return answer.json()
    events = [json.loads(line) for line in answer.raw.splitlines()]
    if not events or events[-1]["type"] not in ("done", "error"):
        return None
    return folded(events)


def chain_is_whole(folder: Path) -> None:
    async def check() -> None:
        store = SqliteStore(folder / "approvals.db")
        await store.open()
        try:
            assert await verify_store(store) is None
        finally:
            await store.close()

    asyncio.run(check())


def consistent(life: Life, reply: Json) -> None:
    """The claims that hold after every life: nothing ran twice, nothing was lost, the model got the
    outcome."""
    ran = lines(life.folder, "runs")
    recorded = states(life.folder)
    log = events_logged(life.folder)
    names = {name for stage in life.plan for name in stage}
    for name in names:
        limit = 1 + life.kills if life.tool.get("idempotent") else 1
        assert ran.count(name) <= limit, (name, ran)
    for id_ in life.approved:
        assert recorded[id_] in ("DONE", "INDETERMINATE")
        claims = sum(e["event"] == "claimed" and e["id"] == id_ for e in log)
        assert claims == 1 or life.tool.get("idempotent"), claims
    for id_ in recorded.keys() - life.approved:
        assert recorded[id_] == "PENDING"
        assert not any(e["event"] == "claimed" and e["id"] == id_ for e in log)
    ended = [recorded[id_] for id_ in life.approved]
    assert sum(map(len, life.plan)) == len(ended)
    assert reply["content"].startswith("ended: ")
    reported = reply["content"].removeprefix("ended: ").split(" | ")
    assert len(reported) == len(ended)
    assert sum("wiped" in text or "Run again" in text for text in reported) == ended.count("DONE")
    unknown = [text for text in reported if text.startswith("Outcome unknown:")]
    assert len(unknown) == ended.count("INDETERMINATE")
    chain_is_whole(life.folder)


def replays(life: Life, reply: Json) -> None:
    """The same request again: the same reply, no run, no call of the model."""
    ran, asked = lines(life.folder, "runs"), lines(life.folder, "asks")
    if life.tool.get("idempotent"):
        return
    again = life.ask(*life.last_request)
    assert again == reply
    assert lines(life.folder, "runs") == ran
    assert lines(life.folder, "asks") == asked


@pytest.mark.parametrize("point", ENDS)
def test_a_kill_leaves_the_right_state(nursery: Nursery, tmp_path: Path, point: str) -> None:
    # The first turn's own record is the first that is put and sent, the resumed one the second.
    at = "2" if point in ("reply",) else "1"
    life = Life(nursery, tmp_path, [{"DIE": point, "DIE_AT": at}])
    reply = life.live()
    assert life.kills == 1, "the service did not die at this point"
    state, runs = ENDS[point]
    recorded = states(tmp_path)
    assert [recorded[id_] for id_ in life.approved] == [state]
    assert len(lines(tmp_path, "runs")) == runs
    asked = len(lines(tmp_path, "asks"))
    if point in ("ENDED:committed", "reply"):
        assert asked == 2, "a recorded reply needs no model call"
    elif point in ("model", "ENDED:written", "proposed:written", "proposed:committed"):
        assert asked == 3
    else:
        assert asked == 2
    if point not in ("proposed:written", "proposed:committed"):
        (done,) = reply["data"]["executed_tool_calls"]
        expected = "wiped a" if state == "DONE" else "Outcome unknown:"
        assert done["output"].startswith(expected)
    if state == "DONE":
        assert reply["data"]["session"] == {"wiped": ["a"]}
    consistent(life, reply)
    replays(life, reply)


@pytest.mark.parametrize("point", ["RESUMING:written", "RESUMING:committed"])
def test_a_kill_as_a_turn_of_two_calls_goes_on_leaves_both_done(
    nursery: Nursery, tmp_path: Path, point: str
) -> None:
    life = Life(nursery, tmp_path, [{"DIE": point}], plan=[["a", "b"]])
    reply = life.live()
    assert life.kills == 1
    assert set(states(tmp_path).values()) == {"DONE"}
    assert sorted(lines(tmp_path, "runs")) == ["a", "b"]
    consistent(life, reply)
    replays(life, reply)


def test_an_unknown_outcome_is_told_in_plain_words(nursery: Nursery, tmp_path: Path) -> None:
    life = Life(nursery, tmp_path, [{"DIE": "tool:after"}])
    (done,) = life.live()["data"]["executed_tool_calls"]
    assert done["output"] == (
        "Outcome unknown: the process that ran it has ended before its result was recorded. "
        "It may or may not have taken effect; it is not run again."
    )


@pytest.mark.parametrize("point", ["claimed:committed", "tool:before", "tool:after"])
def test_an_idempotent_call_runs_again_and_says_so(
    nursery: Nursery, tmp_path: Path, point: str
) -> None:
    life = Life(nursery, tmp_path, [{"DIE": point}], tool={"idempotent": True})
    (done,) = life.live()["data"]["executed_tool_calls"]
    assert done["output"].startswith("(Run again: the outcome of an earlier run is unknown.)")
    assert done["output"].endswith("wiped a")
    assert len(lines(tmp_path, "runs")) == (2 if point == "tool:after" else 1)
    assert set(states(tmp_path).values()) == {"DONE"}


def test_an_idempotent_call_that_never_began_does_not_say_it_ran_again(
    nursery: Nursery, tmp_path: Path
) -> None:
    life = Life(nursery, tmp_path, [{"DIE": "claimed:written"}], tool={"idempotent": True})
    (done,) = life.live()["data"]["executed_tool_calls"]
    assert done["output"] == "wiped a"


@pytest.mark.parametrize(
    ("point", "state", "runs"),
    [
        ("approved:committed", "DONE", 1),
        ("RESUMING:committed", "DONE", 1),
        ("claimed:written", "DONE", 1),
        ("claimed:committed", "INDETERMINATE", 0),
        ("tool:before", "INDETERMINATE", 0),
        ("tool:after", "INDETERMINATE", 1),
        ("done:written", "INDETERMINATE", 1),
        ("done:committed", "DONE", 1),
        ("ENDED:written", "DONE", 1),
        ("ENDED:committed", "DONE", 1),
    ],
)
def test_a_callable_is_given_each_call_once(
    nursery: Nursery, tmp_path: Path, point: str, state: str, runs: int
) -> None:
    life = Life(nursery, tmp_path, [{"DIE": point}], environ={"CALLABLE": "1"})
    reply = life.live()
    assert life.kills == 1
    assert list(states(tmp_path).values()) == [state]
    assert lines(tmp_path, "runs") == ["a"] * runs
    (done,) = reply["data"]["executed_tool_calls"]
    if state == "INDETERMINATE":
        assert done["output"].startswith("Outcome unknown:")
    else:
        assert done["output"] == "carried out"
    again = life.ask(*life.last_request)
    assert again == reply
    assert lines(tmp_path, "runs") == ["a"] * runs
    chain_is_whole(tmp_path)


@pytest.mark.parametrize("number", range(LIVES))
def test_no_life_runs_a_call_twice(nursery: Nursery, tmp_path: Path, number: int) -> None:
    chance = random.Random(SEED * 1_000_003 + number)
    points = [*ENDS]
    life = Life(
        nursery,
        tmp_path,
        [
            {"DIE": chance.choice(points), "DIE_AT": str(chance.choice([1, 1, 1, 2, 3]))}
            for _ in range(chance.choice([1, 1, 2, 3]))
        ],
        plan=chance.choice([[["a"]], [["a", "b"]], [["a"], ["b"]], [["a", "b"], ["c"]]]),
        carrier=chance.choice(CARRIERS),
        protocol=chance.choice(PROTOCOLS),
        tool={"idempotent": True} if chance.random() < 0.2 else {},
    )
    reply = life.live()
    consistent(life, reply)
    replays(life, reply)
