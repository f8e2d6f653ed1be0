"""The events of a task for a subscriber, derived from the store if another process runs the
task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing

from a2a.server.agent_execution.active_task import INTERRUPTED_TASK_STATES, TERMINAL_TASK_STATES
from a2a.server.events import Event
from a2a.types import (
    Artifact,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)

Look = Callable[[str], Awaitable[Task | None]]
"""Returns the task with this id as the store has it now."""

EVERY = 0.5
"""Seconds between two reads of the store."""
MOST_WAITING = 1 << 20
"""Most bytes of events queued for a slow follower; after that it gets the rest from the store."""
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
        had = known.get(artifact.artifact_id)
        if artifact != had:
            added = None if had is None else _added(had, artifact)
            yield TaskArtifactUpdateEvent(
                task_id=after.id,
                context_id=after.context_id,
                artifact=added or artifact,
                append=added is not None,
                # While the task runs, any artifact may still grow.
                last_chunk=after.status.state in _AT_REST,
            )
    if after.status != before.status:
        yield status_of(after)


def _added(before: Artifact, after: Artifact) -> Artifact | None:
    """The artifact with only the parts added since; None if it was replaced."""
    had, added = len(before.parts), Artifact()
    added.CopyFrom(after)
    del added.parts[:had]
    grown = Artifact()
    grown.CopyFrom(before)
    grown.parts.extend(added.parts)
    return added if added.parts and grown == after else None


def status_of(task: Task) -> TaskStatusUpdateEvent:
    """The task's state as a status update event."""
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)


async def by_changes(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """`events` with the task only as the first one. The SDK repeats the whole task at the end if
    another process has canceled it."""
    first = True
    async with aclosing(events):
        async for event in events:
            yield event if first or not isinstance(event, Task) else status_of(event)
            first = False


async def without_repeats(
    events: AsyncGenerator[Event, None], look: Look
) -> AsyncGenerator[Event, None]:
    """`events` of a task that runs here, without the changes that the task itself already has.

    The SDK may send the task with changes whose own events are still queued, and send those too.
    """
    known: Task | None = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Task):
                # A copy: the SDK continues to change the original.
                known = Task()
                known.CopyFrom(event)
                yield known
                continue
            if known is not None and isinstance(event, TaskStatusUpdateEvent):
                if _had_status(known, event.status):
                    continue
            elif known is not None and isinstance(event, TaskArtifactUpdateEvent):
                if event.append and await _had_chunk(known, event, look):
                    continue
                # Chunks that follow a new chunk are new, and so are those after a whole artifact.
                known = None
            yield event


def _had_status(known: Task, status: TaskStatus) -> bool:
    # The messages of earlier states are in the history.
    said = status.message.message_id
    return status == known.status or any(said == each.message_id for each in known.history)


async def _had_chunk(known: Task, event: TaskArtifactUpdateEvent, look: Look) -> bool:
    """Whether the task contained this chunk when it was sent; by then a sent chunk is stored."""
    stored = await look(known.id)
    if stored is None:
        return False
    # A new chunk stands directly behind those that the task had.
    had, chunk = len(_parts(known, event)), [*event.artifact.parts]
    return _parts(stored, event)[had : had + len(chunk)] != chunk


def _parts(task: Task, event: TaskArtifactUpdateEvent) -> list[Part]:
    id = event.artifact.artifact_id
    return [part for each in task.artifacts if each.artifact_id == id for part in each.parts]


async def as_they_come(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """`events`, taken from the SDK as soon as they arrive; they end if too many queue for a slow
    reader.

    Each event in the SDK's own queue would hold the whole task in memory.
    """
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    waiting = 0

    async def take() -> None:
        nonlocal waiting
        try:
            async with aclosing(events):
                async for event in events:
                    if waiting > MOST_WAITING:
                        return
                    waiting += event.ByteSize()
                    queue.put_nowait(event)
        finally:
            queue.put_nowait(None)

    taking = asyncio.ensure_future(take())
    try:
        while (event := await queue.get()) is not None:
            waiting -= event.ByteSize()
            yield event
        await taking
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


async def and_the_rest(
    events: AsyncGenerator[Event, None], look: Look
) -> AsyncGenerator[Event, None]:
    """`events` of a task; if they end before it rests, its further changes as the store has them.

    They end early for a slow follower.
    """
    last: Task | None = None
    async with aclosing(events):
        async for event in events:
            yield event
            match event:
                case Task():
                    last = Task(id=event.id, context_id=event.context_id, status=event.status)
                case TaskStatusUpdateEvent(task_id=id, context_id=context_id):
                    last = Task(id=id, context_id=context_id, status=event.status)
    if last is not None:
        async for event in _since(last, look):
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
                # It ended a while ago, and no event of that arrived here.
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
