"""The waiting tasks that are continued, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sayso_a2a import watching
from sayso_a2a.watching import Watch


class Calls:
    """Calls whose state the test sets."""

    def __init__(self, state: str) -> None:
        self.state = state

    async def settled(self, ids: Sequence[str], caller: Any, wait: float) -> list[Any]:
        return [
            SimpleNamespace(
                id=id_,
                kind="tool_call",
                state=self.state,
                revision=1,
                seen="sha256:1",
                runs_again=False,
                decision=None,
            )
            for id_ in ids
        ]


def run(state: str, use: Callable[[Watch, list[Any]], Awaitable[None]]) -> None:
    """Use a watch of calls that are in this state."""

    async def work() -> None:
        sent: list[Any] = []

        async def go_on(owner: str, task_id: str, decisions: list[Any]) -> None:
            sent.append((task_id, decisions))
            # The turn has stated the same calls again.
            await watch.begin(task_id, owner, ["c"], again=True)

        host: Any = SimpleNamespace(calls=Calls(state))
        watch = Watch(host, go_on)
        await use(watch, sent)
        await watch.aclose()

    asyncio.run(work())


async def settle() -> None:
    """Let the started tasks run to the point at which they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_call_that_cannot_start_has_its_task_continued_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: clock.now))

    async def use(watch: Watch, sent: list[Any]) -> None:
        await watch.begin("t", "", ["c"])
        await settle()
        assert sent == [
            ("t", [{"id": "c", "type": "tool_call", "seen": "sha256:1", "execute": True}])
        ]
        for passed, tries in ((59, 1), (2, 2), (60, 2), (61, 3), (121, 3), (121, 4)):
            clock.now += passed
            watch.take_up("t", "", ["c"])
            await settle()
            assert len(sent) == tries, passed
        # A message of its caller removes the pause.
        await watch.begin("t", "", ["c"])
        await settle()
        assert len(sent) == 5

    run("APPROVED", use)


def test_task_whose_calls_have_expired_is_left_alone() -> None:
    async def use(watch: Watch, sent: list[Any]) -> None:
        await watch.begin("t", "", ["c"])
        await settle()
        watch.take_up("t", "", ["c"])
        await settle()
        assert sent == []

    run("EXPIRED", use)
