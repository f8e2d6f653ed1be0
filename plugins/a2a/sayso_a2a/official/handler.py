"""The SDK's request handler with what Sayso adds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from a2a.server.agent_execution import RequestContext
from a2a.server.agent_execution.active_task import TERMINAL_TASK_STATES, ActiveTask
from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.events.event_queue import QueueShutDown  # type: ignore[attr-defined]
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtensionSupportRequiredError,
    InternalError,
    InvalidParamsError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length

from sayso import Data, Host
from sayso import Message as SaysoMessage
from sayso_a2a.official.bodies import problem_of_message
from sayso_a2a.official.callers import ELSEWHERE, OVER_GRPC, may_list, speaks_0_3
from sayso_a2a.official.conversation import changed, user_message
from sayso_a2a.official.execution import TAKEN, TOO_LATE, Executor
from sayso_a2a.official.following import (
    Look,
    and_the_rest,
    as_they_come,
    by_changes,
    changes,
    status_of,
    until_ended,
    without_repeats,
)
from sayso_a2a.official.running import STREAMING
from sayso_a2a.official.stores import RUNNING, KeptTasks
from sayso_a2a.settings import Approvals
from sayso_a2a.waiting import decided_elsewhere

if TYPE_CHECKING:
    from sayso_a2a.official.database import DatabaseTasks

logger = logging.getLogger("sayso.a2a")
_MOST_ADDRESSES = 20
_LOOK = 0.05
_RUNS = "the task still runs; wait until it has ended"
_NAMES_NO_CONTEXT = (
    "this service does not authenticate its callers, so it lists only the tasks of one context: "
    "name a contextId, or configure [auth]"
)
_STOPS = "the service is stopping; subscribe to the task again"
_ENDED = "the task has ended before the message had its turn"


class Handler(DefaultRequestHandler):
    """The SDK's handler with three additions: decisions are checked before a task sees them, a
    canceled task's calls are withdrawn, and tasks that run in other processes can be followed."""

    def __init__(
        self, host: Host, store: KeptTasks | DatabaseTasks, executor: Executor, **options: Any
    ) -> None:
        super().__init__(agent_executor=executor, task_store=store, **options)
        self._host = host
        self._store = store
        self._executor = executor
        executor.send = self.on_message_send

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Message | Task:
        """Run a message and answer with its task or message."""
        await self._prepare(params.message, context)
        answer: Message | Task = await super().on_message_send(params, context)
        if isinstance(answer, Task) and not params.configuration.return_immediately:
            answer = await self._after_turn(answer, params, context)
        ended = isinstance(answer, Task) and answer.status.state in TERMINAL_TASK_STATES
        _check_in_time(params.message, context, ended=ended)
        return answer

    async def _after_turn(
        self, answer: Task, params: SendMessageRequest, context: ServerCallContext
    ) -> Task:
        """The task after this message's turn; the SDK may return it as a later message left it."""
        id = params.message.message_id

        def had_its_turn(task: Task) -> bool:
            state = task.status.state
            asked = any(said.message_id == id for said in task.history)
            return state in TERMINAL_TASK_STATES or (asked and state not in RUNNING)

        if had_its_turn(answer):
            return answer
        limit = asyncio.get_running_loop().time() + self._host.config.limits.turn_time
        while TOO_LATE not in context.state and asyncio.get_running_loop().time() < limit:
            task: Task | None = await self._store.get(answer.id, context)
            if task is None:
                break
            if had_its_turn(task):
                return apply_history_length(task, params.configuration)
            await asyncio.sleep(_LOOK)
        return answer

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Run a message and answer with its events."""
        await self._prepare(params.message, context)
        context.state[STREAMING] = True
        answer = super().on_message_send_stream(params, context)
        followed = and_the_rest(as_they_come(answer), self._looking(context))
        async with aclosing(by_changes(followed)) as events:
            async for event in events:
                yield event
        _check_in_time(params.message, context, ended=True)

    def _looking(self, context: ServerCallContext) -> Look:
        async def look(task_id: str) -> Task | None:
            if TOO_LATE in context.state:
                return None
            found: Task | None = await self._store.get(task_id, context)
            runs = found is not None and found.status.state in RUNNING
            if self._host.stopping and runs and task_id not in self._store.in_hand:
                # The turn lasts longer than this process.
                raise InternalError(message=_STOPS)
            return found

        return look

    async def _prepare(self, message: Message, context: ServerCallContext) -> None:
        if message.role != Role.ROLE_USER:
            # A message with the agent's role in a task's history would count as ours.
            raise InvalidParamsError(message="the role of a sent message is ROLE_USER")
        if not all(part.WhichOneof("content") for part in message.parts):
            raise InvalidParamsError(message="a part has text, raw, url or data")
        if OVER_GRPC in context.state and (problem := problem_of_message(message)):
            raise InvalidParamsError(message=problem)
        _check_decides(user_message(message), self._executor.approvals, context)
        _check_modes(message, self._agent_card)
        for extension in self._agent_card.capabilities.extensions:
            asked = context.requested_extensions
            if extension.required and extension.uri not in asked and ELSEWHERE not in context.state:
                raise ExtensionSupportRequiredError(
                    message=f"this agent needs the extension {extension.uri!r}"
                )
        if len(message.context_id) > self._store.longest_id:
            most = self._store.longest_id
            raise InvalidParamsError(message=f"a context id has at most {most} characters")
        if not message.task_id:
            return
        task = await self._store.get(message.task_id, context)
        if task is None:
            return
        # The SDK refuses it too, but only after it has made queues for the task, which it never
        # removes.
        if task.status.state in TERMINAL_TASK_STATES:
            state = TaskState.Name(task.status.state)
            raise UnsupportedOperationError(message=f"the task has ended: {state}")
        if task.status.state in RUNNING and task.id not in self._store.in_hand:
            raise UnsupportedOperationError(message=_RUNS)
        message.context_id = message.context_id or task.context_id

    async def _setup_active_task(
        self, params: SendMessageRequest, call_context: ServerCallContext
    ) -> tuple[ActiveTask, RequestContext]:
        try:
            taken: tuple[ActiveTask, RequestContext] = await super()._setup_active_task(
                params, call_context
            )
            return taken
        except UnsupportedOperationError:
            # The task ended after it was read.
            left = await self._active_task_registry.get(params.message.task_id)
            if left is not None and left.is_finished and left._producer_task is None:
                await left.aclose()
            raise

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """The task and its changes, also if another process runs it."""
        look = self._looking(context)
        task = await look(params.id)
        elsewhere = (
            task is not None and task.status.state in RUNNING and task.id not in self._store.in_hand
        )
        if task is not None and elsewhere and self._agent_card.capabilities.streaming:
            followed = changes(task, look)
        else:
            new = without_repeats(super().on_subscribe_to_task(params, context), look)
            coming = as_they_come(until_ended(new, params.id, look))
            followed = and_the_rest(coming, look)
        async with aclosing(by_changes(followed)) as events:
            async for event in events:
                yield event

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Store an address for the task's notifications; a task has a few at most."""
        if self._push_config_store is not None:
            known = await self._push_config_store.get_info(params.task_id, context)
            if len(known or ()) >= _MOST_ADDRESSES and params.id not in [c.id for c in known]:
                most = f"a task has at most {_MOST_ADDRESSES} addresses for notifications"
                raise InvalidParamsError(message=most)
        kept: TaskPushNotificationConfig = await super().on_create_task_push_notification_config(
            params, context
        )
        return kept

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """One address for the task's notifications; a caller of 0.3 need not say which."""
        if not params.id and speaks_0_3(context):
            kept = self._push_config_store
            known = await kept.get_info(params.task_id, context) if kept is not None else ()
            params.id = known[0].id if known else params.task_id
        found: TaskPushNotificationConfig = await super().on_get_task_push_notification_config(
            params, context
        )
        return found

    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> Task | None:
        """Cancel a task, and reject its proposals."""
        task: Task | None = await super().on_cancel_task(params, context)
        # The SDK asks the executor only where the task has a producer.
        await self._executor.canceled(task, context)
        return task

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """The task; a canceled one with the outcomes of its calls since."""
        task: Task | None = await super().on_get_task(params, context)
        if task is not None:
            await self._executor.with_outcomes(task, context)
        return task

    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        """A page of tasks, in the form of `on_get_task`.

        Raises InvalidParamsError for a caller who may not see tasks of every context, and names
        none.
        """
        if not params.context_id and not may_list(self._host, context):
            raise InvalidParamsError(message=_NAMES_NO_CONTEXT)
        page: ListTasksResponse = await super().on_list_tasks(params, context)
        for task in page.tasks:
            await self._executor.with_outcomes(task, context)
        return page

    async def _write_cancel(
        self, task_id: str, current: Task, version: Any, context: ServerCallContext
    ) -> Task:
        # For a task that this process does not run: the SDK would keep the time and message of the
        # previous state, and would notify nobody.
        message = await self._executor.canceled(current, context)
        canceled = changed(current, TaskState.TASK_STATE_CANCELED, message)
        await self._store.save(canceled, context)
        if self._push_sender is not None:
            await self._push_sender.send_notification(task_id, status_of(canceled))
        return canceled


def _check_decides(said: SaysoMessage, approvals: Approvals, context: ServerCallContext) -> None:
    """Refuse decisions if they are not made over A2A."""
    data = said.data or Data()
    decides = any(each.execute or each.rejection_reason for each in (*data.stated, *data.cmds))
    if decides and approvals != "client" and ELSEWHERE not in context.state:
        raise UnsupportedOperationError(message=decided_elsewhere(approvals))


def _check_modes(message: Message, card: AgentCard) -> None:
    """Refuse a part with a media type that the card does not accept; a part without one is
    accepted.

    The SDK compares strings: it refuses `text/plain; charset=utf-8`, and takes `*/*` for a type.
    """
    skills = [mode for skill in card.skills for mode in skill.input_modes]
    modes = sorted({_essence(mode) for mode in (*card.default_input_modes, *skills)})
    for part in message.parts:
        sent = _essence(part.media_type)
        if modes and sent and not any(fnmatchcase(sent, mode) for mode in modes):
            taken = ", ".join(modes)
            raise ContentTypeNotSupportedError(
                message=f"the media type {part.media_type!r} is not taken; the card has: {taken}"
            )


def _essence(media_type: str) -> str:
    """A media type without its parameters, in lower case (RFC 9110, section 8.3.1)."""
    return media_type.partition(";")[0].strip().lower()


def _check_in_time(message: Message, context: ServerCallContext, *, ended: bool) -> None:
    """Refuse a message that the task was not waiting for."""
    if TOO_LATE in context.state:
        raise UnsupportedOperationError(message=_RUNS)
    # A message with decisions only gets the outcome that another message has brought about.
    if ended and TAKEN not in context.state and user_message(message).content:
        raise UnsupportedOperationError(message=_ENDED)


def _guarded(name: str) -> Any:
    """The handler's method `name`; unforeseen errors are logged, and callers see nothing of them.

    The SDK would send their text to JSON-RPC callers; a database's has its statement and address.
    """
    method = getattr(Handler, name)

    def hidden(error: Exception) -> A2AError:
        if isinstance(error, A2AError):
            return error
        if isinstance(error, QueueShutDown):
            return UnsupportedOperationError(message=_ENDED)
        logger.error("a call of the official protocol failed", exc_info=error)
        return InternalError(message="the service failed")

    async def answers(self: Handler, *given: Any, **named: Any) -> Any:
        try:
            return await method(self, *given, **named)
        except Exception as error:
            raise hidden(error) from error

    async def streams(self: Handler, *given: Any, **named: Any) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(method(self, *given, **named)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            raise hidden(error) from error

    return streams if name in ("on_message_send_stream", "on_subscribe_to_task") else answers


for _name in [name for name in dir(Handler) if name.startswith("on_")]:
    setattr(Handler, _name, _guarded(_name))
