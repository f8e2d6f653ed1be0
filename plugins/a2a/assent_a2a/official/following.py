"""The events of a task for a subscriber, as the store tells them when another process runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing

from a2a.server.agent_execution.active_task import INTERRUPTED_TASK_STATES, TERMINAL_TASK_STATES
from a2a.server.events import Event
from a2a.types import Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

Look = Callable[[str], Awaitable[Task | None]]
"""Gives the task of an id as the store has it now."""

EVERY = 0.5
"""Seconds between two looks at the store."""
_AT_REST = TERMINAL_TASK_STATES | INTERRUPTED_TASK_STATES


async def changes(task: Task, look: Look) -> AsyncGenerator[Event, None]:
    """The task, then its changes as the store has them, until it ends or waits for input."""
    yield task
    async for event in _since(task, look):
        yield event


async def _since(known: Task, look: Look) -> AsyncGenerator[Event, None]:
    while known.status.state not in _AT_REST:
        found = await look(known.id)
        if found is None:
            return
        for event in _differences(known, found):
            yield event
        known = found
        if known.status.state not in _AT_REST:
            await asyncio.sleep(EVERY)


def _differences(before: Task, after: Task) -> Iterator[Event]:
    known = {artifact.artifact_id: artifact for artifact in before.artifacts}
    for artifact in after.artifacts:
        if artifact != known.get(artifact.artifact_id):
            yield TaskArtifactUpdateEvent(
                task_id=after.id, context_id=after.context_id, artifact=artifact, last_chunk=True
            )
    if after.status != before.status:
        yield status_of(after)


def status_of(task: Task) -> TaskStatusUpdateEvent:
    """The state of the task as a change to it."""
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)


async def by_changes(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """`events` with the task in the first of them only; the SDK gives it again, whole, at the end
    of one that another process has canceled."""
    first = True
    async with aclosing(events):
        async for event in events:
            yield event if first or not isinstance(event, Task) else status_of(event)
            first = False


async def and_the_rest(
    events: AsyncGenerator[Event, None], look: Look
) -> AsyncGenerator[Event, None]:
    """`events` of a task, and where they end before it rests, its changes as the store has them.

    The SDK drops a follower who is slow, as if nothing more came.
    """
    told: Task | None = None
    async with aclosing(events):
        async for event in events:
            yield event
            match event:
                case Task():
                    told = Task(id=event.id, context_id=event.context_id, status=event.status)
                case TaskStatusUpdateEvent(task_id=id, context_id=context_id):
                    told = Task(id=id, context_id=context_id, status=event.status)
    if told is not None:
        async for event in _since(told, look):
            yield event


async def until_ended(
    events: AsyncGenerator[Event, None], task_id: str, look: Look
) -> AsyncGenerator[Event, None]:
    """`events` of a task that runs or waits here, until it ends here or in another process."""
    ended: Task | None = None
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=EVERY)
            if done:
                if (event := coming.result()) is None:
                    return
                coming = asyncio.ensure_future(anext(events, None))
                yield event
            elif ended is not None:
                # It was over a while ago, and nothing came of it here.
                yield status_of(ended)
                return
            else:
                found = await look(task_id)
                if found is not None and found.status.state in TERMINAL_TASK_STATES:
                    ended = found
    finally:
        coming.cancel()
        await asyncio.wait({coming})
        await events.aclose()
