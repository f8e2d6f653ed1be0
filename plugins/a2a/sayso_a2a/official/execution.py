"""Sayso's turns as the official SDK's executor: one turn for each message of a task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.agent_execution.active_task import TERMINAL_TASK_STATES
from a2a.server.cluster.task_store import ConcurrentTaskModificationError
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import ListTasksRequest, SendMessageRequest, Task, TaskState
from a2a.types import Message as WireMessage
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict

from sayso import Caller, ChatRequest, EventStream, Host
from sayso_a2a.artifacts import Json, whole
from sayso_a2a.incoming import PROTOCOL, Incoming
from sayso_a2a.official.callers import ELSEWHERE, caller_in, own_context
from sayso_a2a.official.conversation import (
    changed,
    conversation,
    ours_of,
    parts_of,
    user_message,
)
from sayso_a2a.official.replies import canceled_message, decision_message
from sayso_a2a.official.running import Execution
from sayso_a2a.official.stores import RUNNING, KeptTasks
from sayso_a2a.settings import Approvals
from sayso_a2a.task import proposals_of
from sayso_a2a.waiting import CANCELED, started, withdraw
from sayso_a2a.watching import Watch

if TYPE_CHECKING:
    from sayso_a2a.official.database import DatabaseTasks

TAKEN = "sayso.taken"
TOO_LATE = "sayso.too_late"
"""The keys in a call's state for two facts: whether the message got its turn, and whether another
process continued the task first."""

Send = Callable[[SendMessageRequest, ServerCallContext], Awaitable[object]]
logger = logging.getLogger("sayso.a2a")
_EARLIER_TASKS = 50
_WAITS = TaskState.TASK_STATE_INPUT_REQUIRED


class Executor(AgentExecutor):
    """Runs each message of a task as a turn of the host."""

    def __init__(self, host: Host, store: KeptTasks | DatabaseTasks, approvals: Approvals) -> None:
        self._host = host
        self._store = store
        self.approvals = approvals
        self.watch = Watch(host, self._decided)
        self.send: Send | None = None
        """Sends a message on a task, as its caller would."""
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
        execution = Execution(
            self._host, self._store.in_hand, context, event_queue, message, self.approvals
        )
        if task is not None and not await self._goes_on(task, message, context.call_context):
            context.call_context.state[TOO_LATE] = True
            return
        self.watch.end(task_id)
        held = bool(self._host.plugins.implementations("intercept_response"))
        stream = self._host.stream(request, _caller(context, message, held=held))
        self._streams[task_id] = stream
        try:
            await execution.follow(stream, hesitates=self._hesitates(context))
            if task_id not in self._canceled:
                await execution.end()
                await self._watch_for(context, execution)
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

    async def _watch_for(self, context: RequestContext, execution: Execution) -> None:
        owner, again = context.call_context.user.user_name, ELSEWHERE in context.call_context.state
        await self.watch.begin(context.task_id or "", owner, execution.waiting, again=again)

    async def watch_those_left(self, since: float = 0.0) -> None:
        """Watch the waiting tasks of all processes that changed since then."""
        for owner, task in await self._store.waiting(since):
            ids = [proposal.id for proposal in proposals_of(conversation([task]))]
            self.watch.take_up(task.id, owner, ids)

    async def _decided(self, owner: str, task_id: str, decisions: list[Json]) -> None:
        """Continue a task whose calls were decided elsewhere, unless somebody else has."""
        context = own_context(owner)
        task = await self._store.get(task_id, context)
        if self.send is None or task is None or task.status.state != _WAITS:
            return
        message = decision_message(task, decisions)
        try:
            await self.send(SendMessageRequest(message=message), context)
        except A2AError as error:
            logger.info("task %s does not go on by itself: %s", task_id, error.message)

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
        message = await self.canceled(context.current_task, context.call_context)
        await TaskUpdater(event_queue, task_id, context_id).cancel(message)

    async def canceled(self, task: Task | None, context: ServerCallContext) -> WireMessage | None:
        """Reject the calls of a task that is being canceled. Returns the outcomes of those that had
        started, or that they are unknown yet; empty if there are none."""
        if task is None:
            return None
        self.watch.end(task.id)
        proposals = proposals_of(conversation([task]))
        rows = await withdraw(self._host, caller_in(context), proposals, CANCELED)
        return canceled_message(task, rows) if rows else None

    async def with_outcomes(self, task: Task, context: ServerCallContext) -> None:
        """Add to a canceled task the outcomes of calls that still ran when it was canceled."""
        ours = ours_of(task.status.message)
        if task.status.state != TaskState.TASK_STATE_CANCELED or not ours.get("running"):
            return
        rows = await started(self._host, caller_in(context), ours["calls"])
        if any(row.state == "EXECUTING" for row in rows):
            return
        kept = await self._store.get(task.id, context)
        if kept is not None:
            kept.status.message.CopyFrom(canceled_message(task, rows))
            await self._store.save(kept, context)
            task.status.CopyFrom(kept.status)

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
