"""The stores of the official adapter's tasks, and the leases by which tasks survive their process.

A running task is leased to its process, which renews the lease while it lives. If a lease has run
out, the process has died, and the task is shown as failed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from a2a.server.agent_execution.active_task import TERMINAL_TASK_STATES
from a2a.server.cluster.task_store import ConcurrentTaskModificationError
from a2a.server.context import ServerCallContext
from a2a.server.tasks import PushNotificationConfigStore, TaskStore
from a2a.server.tasks.push_notification_config_store import normalize_push_notification_config
from a2a.types import (
    ListTasksRequest,
    ListTasksResponse,
    Part,
    Role,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, encode_list_tasks_cursor

from sayso_a2a.official.callers import speaks_0_3
from sayso_a2a.official.conversation import OURS
from sayso_a2a.rows import Row, Rows
from sayso_a2a.task import LEASE, LEFT_BEHIND, SWEEP_EVERY

CANCELED = "TASK_STATE_CANCELED"

_LATEST = (1 << 63) - 1
RUNNING = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
RUNNING_NAMES = [TaskState.Name(state) for state in RUNNING]
_ENDED_NAMES = frozenset(TaskState.Name(state) for state in TERMINAL_TASK_STATES)


def lease_of(task: Task, now: float) -> float:
    """The end of the task's lease if it is saved now; 0.0 if it does not run."""
    return now + LEASE if task.status.state in RUNNING else 0.0


class InHand:
    """The tasks that this process runs. They do not count as abandoned, however old their lease
    is."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._awaited: dict[str, asyncio.Future[None]] = {}

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._ids))

    def discard(self, task_id: str) -> None:
        """Remove the task."""
        self._ids.discard(task_id)

    @contextmanager
    def next_save(self, task_id: str) -> Iterator[asyncio.Future[None]]:
        """A future that is done when a save of the task has ended, successfully or not."""
        self._awaited[task_id] = asyncio.get_running_loop().create_future()
        try:
            yield self._awaited[task_id]
        finally:
            del self._awaited[task_id]

    @contextmanager
    def saving(self, task: Task) -> Iterator[None]:
        """Note that the task is being saved; it stays in hand only if the saved state is a running
        one."""
        if task.status.state in RUNNING:
            self._ids.add(task.id)
        try:
            yield
        except ConcurrentTaskModificationError:
            self._ids.discard(task.id)
            raise
        finally:
            awaited = self._awaited.get(task.id)
            if awaited is not None and not awaited.done():
                awaited.set_result(None)
        if task.status.state not in RUNNING:
            self._ids.discard(task.id)


def check_goes_on(task: Task, found: str) -> None:
    """Raise ConcurrentTaskModificationError for a task that has ended in the state `found`.

    The SDK then stops the task here. Saving it as canceled once more is allowed: the process that
    runs it learns of the cancellation from the store, and passes it on to its followers.
    """
    said_again = found == CANCELED == TaskState.Name(task.status.state)
    if found in _ENDED_NAMES and not said_again:
        raise ConcurrentTaskModificationError(task.id)


def as_left_behind(task: Task, lease: float, now: float) -> Task:
    """The task, marked as failed if its process has died."""
    if task.status.state in RUNNING and lease < now:
        task.status.state = TaskState.TASK_STATE_FAILED
        message = task.status.message
        message.Clear()
        message.message_id, message.role = secrets.token_hex(16), Role.ROLE_AGENT
        message.task_id, message.context_id = task.id, task.context_id
        message.parts.append(Part(text=LEFT_BEHIND))
        message.metadata.update({OURS: {"error": {"code": "INTERRUPTED"}}})
    return task


class KeptTasks(TaskStore):
    """The SDK's tasks in the bounded store of this package; each belongs to its principal."""

    longest_id = 1000

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.in_hand = InHand()
        self._swept = 0.0

    async def open(self) -> None:
        """Open the file."""
        await self._rows.open()
        await self.sweep()

    async def close(self) -> None:
        """End the leases of tasks that this process still runs, and close the file."""
        await self._rows.lease([*self.in_hand], 0.0)
        await self._rows.close()

    async def beat(self) -> list[str]:
        """Renew this process's leases; returns the tasks that others have canceled meanwhile."""
        mine = [*self.in_hand]
        await self._rows.lease(mine, LEASE)
        if time.monotonic() - self._swept > SWEEP_EVERY:
            await self.sweep()
        return await self._rows.those_in(CANCELED, mine)

    async def sweep(self) -> None:
        """Fail the tasks of dead processes, so that lists by state are correct."""
        self._swept = time.monotonic()
        for row in await self._rows.silent(RUNNING_NAMES):
            await self._rows.change(row.owner, row.id, self._failed)

    async def waiting(self, since: float = 0.0) -> list[tuple[str, Task]]:
        """Tasks that wait for input and were changed at `since` (seconds since 1970) or later, each
        with its owner; the newest, if they are many."""
        state = TaskState.Name(TaskState.TASK_STATE_INPUT_REQUIRED)
        rows = await self._rows.silent([state], int(since * 1e9))
        return [(row.owner, Task.FromString(row.body)) for row in rows]

    def _failed(self, row: Row | None) -> Row | None:
        if row is None or row.state not in RUNNING_NAMES or row.lease >= time.time():
            return None
        if row.id in self.in_hand:
            return None
        failed = TaskState.Name(TaskState.TASK_STATE_FAILED)
        body = self._read(row).SerializeToString()
        return replace(row, state=failed, body=body, lease=0.0)

    async def save(
        self, task: Task, context: ServerCallContext, *, waited: TaskStatus | None = None
    ) -> None:
        """Store the task in place of its earlier state, unless that has ended.

        With `waited`, only if the stored one still waits in exactly this status.
        """
        row = Row(
            task.id,
            context.user.user_name,
            task.context_id,
            TaskState.Name(task.status.state),
            _time(task),
            task.SerializeToString(),
        )

        def change(found: Row | None) -> Row:
            check_goes_on(task, found.state if found is not None else "")
            if waited not in (None, Task.FromString(found.body).status if found else None):
                raise ConcurrentTaskModificationError(task.id)
            # Start the lease now, not when the save was queued.
            return replace(row, lease=lease_of(task, time.time()))

        with self.in_hand.saving(task):
            await self._rows.change(row.owner, row.id, change)

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """The caller's task with this id."""
        row = await self._rows.get(context.user.user_name, task_id)
        return None if row is None else self._read(row)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete the caller's task with this id."""
        self.in_hand.discard(task_id)
        await self._rows.delete(context.user.user_name, task_id)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """A page of the caller's tasks, the newest first."""
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        since = 0
        if params.HasField("status_timestamp_after"):
            since = max(0, min(params.status_timestamp_after.ToNanoseconds(), _LATEST))
        rows, total = await self._rows.page(
            context.user.user_name,
            context=params.context_id,
            state=TaskState.Name(params.status) if params.status else "",
            since=since,
            after=_position(params.page_token),
            limit=size + 1,
        )
        token = ""
        if len(rows) > size:
            rows = rows[:size]
            token = encode_list_tasks_cursor(ListTasksCursor(rows[-1].updated, rows[-1].id))
        return ListTasksResponse(
            next_page_token=token,
            tasks=[self._read(row) for row in rows],
            total_size=total,
            page_size=size,
        )

    def _read(self, row: Row) -> Task:
        task = Task.FromString(row.body)
        return task if row.id in self.in_hand else as_left_behind(task, row.lease, time.time())


def _position(token: str) -> tuple[int, str] | None:
    if not token:
        return None
    cursor = decode_list_tasks_cursor(token)
    if cursor is None or not 0 <= (cursor.timestamp_ns or 0) <= _LATEST:
        raise InvalidParamsError(message="the page token is not one of this service")
    return cursor.timestamp_ns or 0, cursor.task_id


def _time(task: Task) -> int:
    if task.status.HasField("timestamp"):
        stamp: int = task.status.timestamp.ToNanoseconds()
        return stamp
    return time.time_ns()


class Address(NamedTuple):
    """An address for notifications of a task, the task's owner, and whether 0.3 is spoken there."""

    config: TaskPushNotificationConfig
    owner: str
    speaks_0_3: bool


def sendable_config(task_id: str, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    """The address as it is stored. Raises InvalidParamsError for credentials that no header can
    carry: a line break in them would start another header."""
    auth = config.authentication
    for text in (config.token, auth.scheme, auth.credentials):
        if not text.isprintable():
            raise InvalidParamsError(
                message="credentials of a push notification address hold line ends or controls"
            )
    kept: TaskPushNotificationConfig = normalize_push_notification_config(task_id, config)
    return kept


class KeptPushConfigs(PushNotificationConfigStore):
    """The addresses of notifications, for the newest `most` tasks."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[str, dict[str, Address]] = OrderedDict()

    async def set_info(
        self,
        task_id: str,
        notification_config: TaskPushNotificationConfig,
        context: ServerCallContext,
    ) -> TaskPushNotificationConfig:
        """Store an address of a task; if there are too many, those of the oldest task are
        deleted."""
        config = sendable_config(task_id, notification_config)
        address = Address(config, context.user.user_name, speaks_0_3(context))
        self._kept.setdefault(task_id, {})[config.id] = address
        self._kept.move_to_end(task_id)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return config

    async def get_info(
        self, task_id: str, context: ServerCallContext
    ) -> list[TaskPushNotificationConfig]:
        """The caller's addresses of a task."""
        kept = await self.addresses(task_id)
        return [each.config for each in kept if each.owner == context.user.user_name]

    async def delete_info(
        self, task_id: str, context: ServerCallContext, config_id: str | None = None
    ) -> None:
        """Delete one of the caller's addresses of a task, or all of them."""
        for config in await self.get_info(task_id, context):
            if config_id in (None, config.id):
                del self._kept[task_id][config.id]

    async def addresses(self, task_id: str) -> list[Address]:
        """The addresses that notifications of the task go to."""
        return [*self._kept.get(task_id, {}).values()]
