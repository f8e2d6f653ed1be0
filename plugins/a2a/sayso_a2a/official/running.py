"""One turn of the host, and the task events made from it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    Artifact,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)
from a2a.types import Message as WireMessage

from sayso import (
    AgentMessage,
    Approval,
    Done,
    ErrorEvent,
    Event,
    EventStream,
    Host,
    IntermittentUpdate,
    TextDelta,
    turn_to_read,
)
from sayso_a2a.artifacts import Json
from sayso_a2a.official.callers import caller_in
from sayso_a2a.official.conversation import REPLY, conversation
from sayso_a2a.official.replies import agent_message, kept_of, parsed, reply_chunk
from sayso_a2a.official.stores import InHand
from sayso_a2a.settings import Approvals
from sayso_a2a.task import proposals_of
from sayso_a2a.tasks import left_open, still_waiting
from sayso_a2a.turned import Turned, own
from sayso_a2a.waiting import DENIED, waiting_words, withdraw

STREAMING = "sayso.streaming"
"""The key in a call's state for whether the answer is streamed."""
PATIENCE = 2.0
"""Seconds in which a plain callable can declare that it answers without a task."""

_UPDATES_APART = 0.5
_SAVE_SECONDS = 1.0
_RESTS = 3.0
"""While streaming, wait this many times as long as the last save took before saving again."""
_STATES = {
    "completed": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "rejected": TaskState.TASK_STATE_REJECTED,
    "input-required": TaskState.TASK_STATE_INPUT_REQUIRED,
    "auth-required": TaskState.TASK_STATE_AUTH_REQUIRED,
}


class Execution:
    """One turn, and the task events made from it."""

    def __init__(
        self,
        host: Host,
        in_hand: InHand,
        context: RequestContext,
        queue: EventQueue,
        message: WireMessage,
        approvals: Approvals,
    ) -> None:
        self._host = host
        self._in_hand = in_hand
        self._caller = caller_in(context.call_context)
        self._queue = queue
        self._message = message
        self._approvals = approvals
        self._task = context.current_task
        self._ids = context.task_id or "", context.context_id or ""
        self._updater = TaskUpdater(queue, *self._ids)
        self._streams_text = bool(context.call_context.state.get(STREAMING))
        self._pending = _pending(self._task)
        self._turned = Turned()
        self._direct = False
        self._reply_id = secrets.token_hex(8)
        self._replied = False
        self._rest = ""
        self.waiting: list[str] = []
        """The calls that the task waits for, once it has ended."""
        self._updated = 0.0

    async def follow(self, stream: EventStream, *, hesitates: bool) -> None:
        """Convert the turn's events to task events as they arrive."""
        batch = asyncio.ensure_future(stream.ready())
        try:
            if hesitates:
                await asyncio.wait({batch}, timeout=PATIENCE)
                self._direct = batch.done() and _says_direct(batch.result())
            if not self._direct:
                await self._begin()
            while events := await batch:
                await self._take(events)
                batch = asyncio.ensure_future(stream.ready())
        finally:
            batch.cancel()

    async def _begin(self) -> None:
        if self._task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            status.timestamp.GetCurrentTime()
            task_id, context_id = self._ids
            await self._queue.enqueue_event(
                Task(id=task_id, context_id=context_id, status=status, history=[self._message])
            )
        await self._updater.start_work()

    async def _take(self, events: Sequence[Event]) -> None:
        text = ""
        for event in events:
            self._turned.add(event)
            if self._direct:
                continue
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, IntermittentUpdate):
                await self._say(text)
                text = ""
                await self._update(event)
        if any(isinstance(event, (Done, ErrorEvent)) for event in events):
            # The last chunk carries the artifact's metadata, which is known at the end.
            self._rest = text
        else:
            await self._say(text)

    async def _say(self, text: str) -> None:
        """Stream a part of the reply's text as a chunk of an artifact."""
        if not (text and self._streams_text):
            return
        with self._in_hand.next_save(self._ids[0]) as saved:
            began = time.monotonic()
            await self._chunk(text)
            # With each chunk the whole task is saved and sent to its followers, so text that
            # arrives during a save is joined to one chunk. A hanging store delays the turn only for
            # so long.
            await asyncio.wait({saved}, timeout=_SAVE_SECONDS)
        # If many saves queue for the store, this gives way to new tasks.
        await asyncio.sleep(min(_RESTS * (time.monotonic() - began), _SAVE_SECONDS))

    async def _chunk(self, text: str, *, ours: Json | None = None, last: bool = False) -> None:
        # The SDK takes tens of milliseconds to encode a long text, on the loop that serves
        # everybody.
        await turn_to_read(text)
        chunk = reply_chunk(self._reply_id, text, ours)
        await self._send(chunk, append=self._replied, last=last)
        self._replied = True

    async def _send(self, artifact: Artifact, *, append: bool, last: bool) -> None:
        # The SDK's updater has no parameter for a description.
        task_id, context_id = self._ids
        update = TaskArtifactUpdateEvent(
            task_id=task_id,
            context_id=context_id,
            artifact=artifact,
            append=append,
            last_chunk=last,
        )
        await self._queue.enqueue_event(update)

    async def _update(self, event: IntermittentUpdate) -> None:
        said = own(event.content)
        if "artifact" in said:
            await self._artifact(said["artifact"], said)
        elif event.text and event.content.get("kind") != "thinking":
            # Each status message stays in the task's history, so a tool that counts to a thousand
            # must leave only a few.
            if not said and time.monotonic() - self._updated < _UPDATES_APART:
                return
            self._updated = time.monotonic()
            await self._updater.start_work(self._worded(event.text, ours={"progress": True}))

    async def _artifact(self, artifact: Json, said: Mapping[str, Any]) -> None:
        append, last = bool(said.get("append")), bool(said.get("last", True))
        await self._send(parsed(artifact, Artifact), append=append, last=last)

    def _worded(self, text: str, waiting: Sequence[Approval] = (), **rest: Any) -> WireMessage:
        words = waiting_words(waiting, self._approvals)
        return agent_message(*self._ids, text, waiting=waiting, words=words, **rest)

    async def end(self) -> None:
        """Put the task into its state after the turn: completed, with the reply as an artifact, or
        another one, with a status message that says why."""
        turned = self._turned
        if turned.error is not None:
            await self._failed(turned.error)
            return
        reply = turned.reply()
        await turn_to_read(reply.content)
        waiting = await left_open(self._host, self._caller, turned, self._pending)
        if waiting:
            refused = {"refused": True}
            await self._wait(reply, waiting, refused)
        elif reply.data.approvals:
            await self._wait(reply, reply.data.approvals, {})
        elif self._direct:
            message = self._worded(reply.content, data=reply.data)
            message.task_id = ""
            await self._queue.enqueue_event(message)
        else:
            await self._ended(reply)

    async def _wait(self, reply: AgentMessage, waiting: Sequence[Approval], ours: Json) -> None:
        """Have the task wait for decisions; if nobody may approve over A2A, it ends instead."""
        if self._direct:
            await self._begin()
        text = reply.content
        if self._replied:
            # The text was streamed already.
            await self._chunk(self._rest, last=True)
            text, ours = "", {**ours, REPLY: self._reply_id}
        message = self._worded(text, waiting, data=reply.data, ours=ours)
        if self._approvals != "deny":
            self.waiting = [proposal.id for proposal in waiting]
            await self._updater.requires_input(message)
            return
        await withdraw(self._host, self._caller, waiting, DENIED)
        await self._updater.reject(message)

    async def _ended(self, reply: AgentMessage) -> None:
        """End the task, or put it into the state that a plain callable returned."""
        turned = self._turned
        for artifact in own(turned.done.data if turned.done else None).get("artifacts", ()):
            await self._artifact(artifact, {})
        state = _STATES.get(turned.state, TaskState.TASK_STATE_COMPLETED)
        kept = kept_of(reply.data)
        said = state == TaskState.TASK_STATE_COMPLETED and reply.content
        if self._replied or said:
            text = self._rest if self._replied else reply.content
            await self._chunk(text, ours={REPLY: True, **kept} if said else None, last=True)
        message = None
        if not said and (reply.content or kept):
            message = self._worded(reply.content, data=reply.data)
        await self._updater.update_status(state, message)

    async def _failed(self, error: ErrorEvent) -> None:
        """A refused request leaves a waiting task unchanged; any other error ends it."""
        if self._direct:
            await self._begin()
        if self._replied:
            await self._chunk(self._rest, last=True)
        ours: dict[str, Any] = {
            "error": {k: v for k in ("code", "incident") if (v := getattr(error, k))}
        }
        if error.incident is not None or error.code == "STOPPING":
            # Report a call that ran before the failure as well.
            data = self._turned.reply().data
            await self._updater.failed(self._worded(error.error, data=data, ours=ours))
            return
        text = error.words
        ours["refused"] = True
        if self._task is not None:
            waiting = await still_waiting(self._host, self._caller, self._pending)
            self.waiting = [proposal.id for proposal in waiting]
            message = self._worded(text, waiting, ours=ours)
            await self._updater.requires_input(message)
        else:
            await self._updater.reject(self._worded(text, ours=ours))


def _says_direct(events: Sequence[Event]) -> bool:
    first = events[0] if events else None
    return isinstance(first, IntermittentUpdate) and bool(own(first.content).get("direct"))


def _pending(task: Task | None) -> list[Approval]:
    """The proposals of the task's newest reply, to be restated."""
    return proposals_of(conversation([task])) if task is not None else []
