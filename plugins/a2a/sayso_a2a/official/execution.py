"""Sayso's turns as the official SDK's executor: one turn for each message of a task."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.agent_execution.active_task import TERMINAL_TASK_STATES
from a2a.server.cluster.task_store import ConcurrentTaskModificationError
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    Artifact,
    ListTasksRequest,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)
from a2a.types import Message as WireMessage
from google.protobuf.json_format import MessageToDict

from sayso import (
    Approval,
    Caller,
    ChatRequest,
    Done,
    ErrorEvent,
    Event,
    EventStream,
    Host,
    IntermittentUpdate,
    TextDelta,
    turn_to_read,
)
from sayso_a2a.artifacts import Json, whole
from sayso_a2a.incoming import PROTOCOL, Incoming
from sayso_a2a.official.callers import caller_in
from sayso_a2a.official.conversation import (
    agent_message,
    changed,
    conversation,
    parsed,
    parts_of,
    user_message,
)
from sayso_a2a.official.stores import RUNNING, InHand, KeptTasks
from sayso_a2a.refusals import plain_refusal
from sayso_a2a.task import proposals_of
from sayso_a2a.tasks import left_open, still_waiting
from sayso_a2a.turned import Turned, own

if TYPE_CHECKING:
    from sayso_a2a.official.database import DatabaseTasks

STREAMING = "sayso.streaming"
TAKEN = "sayso.taken"
TOO_LATE = "sayso.too_late"
"""The key in a call's state for three facts: whether the answer is streamed, whether the message
got its turn, and whether another process continued the task first."""

PATIENCE = 2.0
"""Seconds in which a plain callable can declare that it answers without a task."""

_UPDATES_APART = 0.5
_SAVE_SECONDS = 1.0
_RESTS = 3.0
"""While streaming, wait this many times as long as the last save took before saving again."""
_EARLIER_TASKS = 50
_STATES = {
    "completed": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "rejected": TaskState.TASK_STATE_REJECTED,
    "input-required": TaskState.TASK_STATE_INPUT_REQUIRED,
    "auth-required": TaskState.TASK_STATE_AUTH_REQUIRED,
}


class Executor(AgentExecutor):
    """Runs each message of a task as a turn of the host."""

    def __init__(self, host: Host, store: KeptTasks | DatabaseTasks) -> None:
        self._host = host
        self._store = store
        self._streams: dict[str, EventStream] = {}
        # Tasks whose turns are being stopped; true if another process canceled them.
        self._canceled: dict[str, bool] = {}

    def stop(self, task_id: str) -> None:
        """Stop the turn of a task that was canceled through another process."""
        if (stream := self._streams.get(task_id)) is not None and task_id not in self._canceled:
            self._canceled[task_id] = True
            stream.stop()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Run one message of a task."""
        message, task_id = context.message, context.task_id
        if message is None or task_id is None:
            return
        task = context.current_task
        if task is not None and task.status.state in TERMINAL_TASK_STATES:
            # The task ended while this message waited for its turn; the sender gets that error.
            return
        context.call_context.state[TAKEN] = True
        request = await self._request(context, message)
        execution = _Execution(self._host, self._store.in_hand, context, event_queue, message)
        if task is not None and not await self._goes_on(task, message, context.call_context):
            context.call_context.state[TOO_LATE] = True
            return
        held = bool(self._host.plugins.implementations("intercept_response"))
        stream = self._host.stream(request, _caller(context, message, held=held))
        self._streams[task_id] = stream
        try:
            await execution.follow(stream, hesitates=self._hesitates(context))
            if task_id not in self._canceled:
                await execution.end()
            elif self._canceled[task_id]:
                # The store already has it as canceled; the SDK in this process has to be told too.
                await TaskUpdater(event_queue, task_id, context.context_id or "").cancel()
        except asyncio.CancelledError:
            stream.stop()
            raise
        finally:
            del self._streams[task_id]
            self._canceled.pop(task_id, None)
            await stream.aclose()

    async def _goes_on(self, task: Task, message: WireMessage, context: ServerCallContext) -> bool:
        """Claim a waiting task for this message, in one transaction of the store.

        Another process may have a message for the same task; only one of them continues it.
        """
        if task.status.state in RUNNING and task.id not in self._store.in_hand:
            return False
        continued = changed(task, TaskState.TASK_STATE_WORKING)
        if all(message.message_id != said.message_id for said in task.history):
            continued.history.append(message)
        try:
            await self._store.save(continued, context, waited=task.status)
        except ConcurrentTaskModificationError:
            return False
        # The SDK continues with this very object.
        task.CopyFrom(continued)
        return True

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Stop the turn of the task, if one runs; a claimed tool still finishes."""
        task_id, context_id = context.task_id or "", context.context_id or ""
        if (stream := self._streams.get(task_id)) is not None:
            self._canceled[task_id] = False
            stream.stop()
        await TaskUpdater(event_queue, task_id, context_id).cancel()

    def _hesitates(self, context: RequestContext) -> bool:
        """Whether the agent may answer without a task: only a callable, only the first message."""
        at_once = bool(context.configuration and context.configuration.return_immediately)
        fresh = context.current_task is None
        return fresh and not at_once and self._host.agent.function is not None

    async def _request(self, context: RequestContext, message: WireMessage) -> ChatRequest:
        tasks = await self._earlier(context)
        if (current := context.current_task) is not None:
            # Other waiting tasks of the context are unrelated to this one's pending calls.
            ended = [task for task in tasks if task.status.state in TERMINAL_TASK_STATES]
            tasks = [*ended, current]
        history = conversation(tasks)[-(self._host.config.limits.messages - 1) :]
        return ChatRequest(messages=[*history, user_message(message)])

    async def _earlier(self, context: RequestContext) -> list[Task]:
        """The other tasks of the context that do not run: this turn continues their
        conversation."""
        wanted = ListTasksRequest(context_id=context.context_id or "", page_size=_EARLIER_TASKS)
        found = await self._store.list(wanted, context.call_context)
        still = [task for task in found.tasks if task.status.state not in RUNNING]
        others = [task for task in still if task.id != context.task_id]
        return sorted(others, key=lambda task: task.status.timestamp.ToNanoseconds())


def _caller(context: RequestContext, message: WireMessage, *, held: bool) -> Caller:
    caller = caller_in(context.call_context)
    sent = Incoming(
        message.message_id,
        context.task_id or "",
        context.context_id or "",
        parts_of(message),
        whole(MessageToDict(message.metadata)),
        list(message.extensions),
        held,
    )
    return Caller(
        PROTOCOL,
        caller.principal,
        caller.address,
        caller.client,
        sent.fields(),
        caller.foreign_page,
    )


class _Execution:
    """One turn, and the task events made from it."""

    def __init__(
        self,
        host: Host,
        in_hand: InHand,
        context: RequestContext,
        queue: EventQueue,
        message: WireMessage,
    ) -> None:
        self._host = host
        self._in_hand = in_hand
        self._caller = caller_in(context.call_context)
        self._queue = queue
        self._message = message
        self._task = context.current_task
        self._ids = context.task_id or "", context.context_id or ""
        self._updater = TaskUpdater(queue, *self._ids)
        self._streams_text = bool(context.call_context.state.get(STREAMING))
        self._pending = _pending(self._task)
        self._turned = Turned()
        self._direct = False
        self._reply_id = secrets.token_hex(8)
        self._replied = False
        self._open = False
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
        await self._say(text, last=any(isinstance(e, (Done, ErrorEvent)) for e in events))

    async def _say(self, text: str, *, last: bool = False) -> None:
        """Stream a part of the reply's text as a chunk of an artifact."""
        if not (text and self._streams_text):
            return
        with self._in_hand.next_save(self._ids[0]) as saved:
            began = time.monotonic()
            await self._chunk(text, last=last)
            if last:
                return
            # With each chunk the whole task is saved and sent to its followers, so text that
            # arrives during a save is joined to one chunk. A hanging store delays the turn only for
            # so long.
            await asyncio.wait({saved}, timeout=_SAVE_SECONDS)
        # If many saves queue for the store, this gives way to new tasks.
        await asyncio.sleep(min(_RESTS * (time.monotonic() - began), _SAVE_SECONDS))

    async def _chunk(self, text: str, *, last: bool) -> None:
        # The SDK takes tens of milliseconds to encode a long text, on the loop that serves
        # everybody.
        await turn_to_read(text)
        await self._updater.add_artifact(
            [Part(text=text)],
            artifact_id=self._reply_id,
            name="reply",
            append=self._replied,
            last_chunk=last,
        )
        self._replied, self._open = True, not last

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
        task_id, context_id = self._ids
        # The SDK's updater has no parameter for a description.
        await self._queue.enqueue_event(
            TaskArtifactUpdateEvent(
                task_id=task_id,
                context_id=context_id,
                artifact=parsed(artifact, Artifact),
                append=bool(said.get("append")),
                last_chunk=bool(said.get("last", True)),
            )
        )

    def _worded(self, text: str, approvals: Sequence[Approval] = (), **rest: Any) -> WireMessage:
        return agent_message(*self._ids, text, approvals=approvals, **rest)

    async def end(self) -> None:
        """Put the task into its state after the turn, with the reply as its status message."""
        turned = self._turned
        if turned.error is not None:
            await self._failed(turned.error)
            return
        if self._open:
            # Only after the last chunk was sent is it known that no more text comes.
            await self._chunk("", last=True)
        reply = turned.reply()
        await turn_to_read(reply.content)
        if waiting := await left_open(self._host, self._caller, turned, self._pending):
            message = self._worded(reply.content, waiting, data=reply.data, ours={"refused": True})
            await self._updater.requires_input(message)
            return
        message = self._worded(reply.content, reply.data.approvals, data=reply.data)
        if self._direct:
            message.task_id = ""
            await self._queue.enqueue_event(message)
            return
        for artifact in own(turned.done.data if turned.done else None).get("artifacts", ()):
            await self._artifact(artifact, {})
        plain = not reply.content and not reply.data.approvals and not message.metadata.fields
        state = _STATES.get(turned.state, TaskState.TASK_STATE_COMPLETED)
        await self._updater.update_status(state, None if plain else message)

    async def _failed(self, error: ErrorEvent) -> None:
        """A refused request leaves a waiting task unchanged; any other error ends it."""
        if self._direct:
            await self._begin()
        ours: dict[str, Any] = {
            "error": {k: v for k in ("code", "incident") if (v := getattr(error, k))}
        }
        if error.incident is not None or error.code == "STOPPING":
            # Report a call that ran before the failure as well.
            data = self._turned.reply().data
            await self._updater.failed(self._worded(error.error, data=data, ours=ours))
            return
        text = plain_refusal(error)
        ours["refused"] = True
        if self._task is not None:
            waiting = await still_waiting(self._host, self._caller, self._pending)
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
