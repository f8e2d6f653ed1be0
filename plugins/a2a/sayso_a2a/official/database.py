"""The SDK's database store for several machines, with a bound and leases, and with cancellation
through any of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from a2a.compat.v0_3.model_conversions import core_to_compat_push_notification_config_model
from a2a.server.cluster.task_store import ConcurrentTaskModificationError
from a2a.server.context import ServerCallContext
from a2a.server.models import PushNotificationConfigModel, TaskModel
from a2a.server.tasks import DatabasePushNotificationConfigStore, DatabaseTaskStore
from a2a.types import (
    ListTasksRequest,
    ListTasksResponse,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)
from google.protobuf.json_format import MessageToDict
from sqlalchemy import (
    Column,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    func,
    insert,
    make_url,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from sayso import PluginError
from sayso_a2a.official.callers import speaks_0_3
from sayso_a2a.official.stores import (
    CANCELED,
    RUNNING,
    RUNNING_NAMES,
    Address,
    InHand,
    as_left_behind,
    check_goes_on,
    lease_of,
    sendable_config,
)
from sayso_a2a.task import LEASE, SWEEP_EVERY

logger = logging.getLogger("sayso.a2a")
_LEASE_KEPT = 3600.0
_BUSY = 30.0
_LEASES = Table(
    "sayso_task_leases",
    MetaData(),
    Column("task_id", String(36), primary_key=True),
    Column("until", Float, nullable=False),
)


_VERSION = 1
"""The version of all these tables; a database without a version has the same tables."""
_SCHEMA = Table("sayso_a2a_schema", _LEASES.metadata, Column("version", Integer, primary_key=True))


def _engine(url: str) -> AsyncEngine:
    try:
        # A write waits for other writes; on SQLite five seconds by default.
        is_file = make_url(url).get_backend_name() == "sqlite"
        return create_async_engine(url, connect_args={"timeout": _BUSY} if is_file else {})
    except SQLAlchemyError as error:
        raise PluginError(
            "plugin.a2a.database names no database and async driver of SQLAlchemy, "
            f"such as 'postgresql+asyncpg://db/sayso': {error}"
        ) from error
    except ValueError:
        # The error of SQLAlchemy may show the end of a password that it takes for the port.
        raise PluginError(
            "plugin.a2a.database names a port that is no number; "
            "write special characters of a password as %XX"
        ) from None


class DatabasePushConfigs(DatabasePushNotificationConfigStore):
    """The SDK's store of addresses; a row also has the version of the protocol spoken there."""

    async def set_info(
        self,
        task_id: str,
        notification_config: TaskPushNotificationConfig,
        context: ServerCallContext,
    ) -> TaskPushNotificationConfig:
        """Store an address of a task."""
        config = sendable_config(task_id, notification_config)
        owner = self.owner_resolver(context)
        if speaks_0_3(context):
            row = core_to_compat_push_notification_config_model(task_id, config, owner)
        else:
            row = self._to_orm(task_id, config, owner)
        async with self.async_session_maker.begin() as session:
            await session.merge(row)
        return config

    async def addresses(self, task_id: str) -> list[Address]:
        """The addresses that notifications of the task go to."""
        rows = self.config_model
        async with self.async_session_maker() as session:
            found = await session.execute(select(rows).where(rows.task_id == task_id))
            return [
                Address(self._from_orm(row), row.owner, row.protocol_version == "0.3")
                for row in found.scalars()
            ]


class DatabaseTasks(DatabaseTaskStore):
    """The SDK's store with at most `most` tasks, each for `ttl` seconds after its last change."""

    # The width of the SDK's columns.
    longest_id = 36

    def __init__(self, url: str, *, ttl: float, most: int) -> None:
        super().__init__(_engine(url))
        self.push_configs = DatabasePushConfigs(self.engine)
        self._ttl = ttl
        self._most = most
        self.in_hand = InHand()
        self._swept = 0.0
        self._ahead = 0.0

    async def open(self) -> None:
        """Create missing tables, and delete expired tasks."""
        try:
            await self._make_tables()
        except DBAPIError:
            # Another process created them at the same moment.
            await self._make_tables()
        await self._ask_time()
        try:
            await self.sweep()
        except DBAPIError:
            logger.warning("the tasks could not be swept now, another process may do it")

    async def _make_tables(self) -> None:
        async with self.engine.begin() as connection:
            await connection.run_sync(_LEASES.metadata.create_all)
            found = (await connection.execute(select(_SCHEMA.c.version))).scalars().all()
            if not found:
                await connection.execute(insert(_SCHEMA).values(version=_VERSION))
        if max(found, default=_VERSION) > _VERSION:
            raise PluginError(
                f"the tables in plugin.a2a.database have schema {max(found)}, and this sayso-a2a "
                f"knows {_VERSION}; upgrade sayso-a2a, or set plugin.a2a.database to another"
            )
        await self.initialize()
        await self.push_configs.initialize()

    async def _ask_time(self) -> None:
        """Read the database's time: the clocks of two machines may differ by more than a lease."""
        # MySQL's local time would jump twice a year.
        in_zone = self.engine.dialect.name in ("mysql", "mariadb")
        asked = select(func.utc_timestamp() if in_zone else func.current_timestamp())
        async with self.engine.connect() as connection:
            time_read = (await connection.execute(asked)).scalar_one()
        self._ahead = (
            time_read.replace(tzinfo=time_read.tzinfo or UTC).timestamp() - time.monotonic()
        )

    def _now(self) -> float:
        return self._ahead + time.monotonic()

    async def close(self) -> None:
        """End the leases of tasks that this process still runs, and close the connections."""
        await self._lease([*self.in_hand], 0.0)
        await self.engine.dispose()

    async def beat(self) -> list[str]:
        """Renew this process's leases; returns the tasks that others have canceled meanwhile."""
        await self._ask_time()
        mine = [*self.in_hand]
        await self._lease(mine, LEASE)
        if time.monotonic() - self._swept > SWEEP_EVERY:
            await self.sweep()
        if not mine:
            return []
        wanted = select(TaskModel.id, TaskModel.status).where(TaskModel.id.in_(mine))
        async with self.async_session_maker() as session:
            return [
                id for id, status in await session.execute(wanted) if _state(status) == CANCELED
            ]

    async def save(
        self, task: Task, context: ServerCallContext, *, waited: TaskStatus | None = None
    ) -> None:
        """Store the task in place of its earlier state, unless that has ended.

        With `waited`, only if the stored one still waits in exactly this status.
        """
        model = self._to_orm(task, self.owner_resolver(context))
        with self.in_hand.saving(task):
            async with self.async_session_maker.begin() as session:
                # Write first: SQLite takes no lock for reading, whatever isolation is asked for.
                await session.execute(delete(_LEASES).where(_LEASES.c.task_id == task.id))
                wanted = select(TaskModel.status).where(TaskModel.id == task.id).with_for_update()
                status = (await session.execute(wanted)).scalar_one_or_none()
                check_goes_on(task, _state(status))
                if waited is not None and status != MessageToDict(waited):
                    raise ConcurrentTaskModificationError(task.id)
                await session.merge(model)
                # Start the lease now, not when the save was queued.
                if lease := lease_of(task, self._now()):
                    await session.execute(insert(_LEASES).values(task_id=task.id, until=lease))

    async def waiting(self, since: float = 0.0) -> list[tuple[str, Task]]:
        """Tasks that wait for input and were changed at `since` (seconds since 1970) or later, each
        with its owner; the newest, if they are many."""
        waits = TaskState.Name(TaskState.TASK_STATE_INPUT_REQUIRED)
        changed = datetime.fromtimestamp(since, UTC).replace(tzinfo=None)
        wanted = (
            select(TaskModel)
            .where(TaskModel.status["state"].as_string() == waits)
            .where(TaskModel.last_updated >= changed)
            .order_by(TaskModel.last_updated.desc())
            .limit(1000)
        )
        async with self.async_session_maker() as session:
            found = (await session.execute(wanted)).scalars().all()
            return [(model.owner, self._from_orm(model)) for model in found]

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """The caller's task with this id."""
        task = await super().get(task_id, context)
        if task is None:
            return None
        async with self.async_session_maker() as session:
            await self._look_at(session, [task])
        return task

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """A page of the caller's tasks, the newest first."""
        page = await super().list(params, context)
        async with self.async_session_maker() as session:
            await self._look_at(session, page.tasks)
        return page

    async def _look_at(self, session: AsyncSession, tasks: Iterable[Task]) -> None:
        found = [task for task in tasks if task.status.state in RUNNING]
        running = [task for task in found if task.id not in self.in_hand]
        if not running:
            return
        # In one statement: a task that stopped running since it was read has no lease any more.
        wanted = (
            select(TaskModel.id, TaskModel.status, _LEASES.c.until)
            .outerjoin(_LEASES, _LEASES.c.task_id == TaskModel.id)
            .where(TaskModel.id.in_([task.id for task in running]))
        )
        leases = {
            id: until or 0.0
            for id, status, until in await session.execute(wanted)
            if _state(status) in RUNNING_NAMES
        }
        for task in running:
            if task.id in leases:
                as_left_behind(task, leases[task.id], self._now())

    async def _lease(self, ids: Sequence[str], seconds: float) -> None:
        if ids:
            async with self.async_session_maker.begin() as session:
                await session.connection()
                # Count from the time of the write, which may have waited for a connection.
                until = self._now() + seconds if seconds else 0.0
                wanted = update(_LEASES).where(_LEASES.c.task_id.in_(ids)).values(until=until)
                await session.execute(wanted)

    async def sweep(self) -> None:
        """Delete tasks that are too old or too many, and fail those whose process died."""
        self._swept = time.monotonic()
        await self._forget()
        silent = or_(_LEASES.c.until.is_(None), _LEASES.c.until < self._now())
        wanted = (
            select(TaskModel)
            .outerjoin(_LEASES, _LEASES.c.task_id == TaskModel.id)
            .where(TaskModel.status["state"].as_string().in_(RUNNING_NAMES), silent)
            .where(TaskModel.id.not_in([*self.in_hand]))
            .limit(1000)
            .with_for_update(of=TaskModel)
        )
        async with self.async_session_maker.begin() as session:
            for model in (await session.execute(wanted)).scalars().all():
                failed = as_left_behind(self._from_orm(model), 0.0, self._now())
                await session.merge(self._to_orm(failed, model.owner))

    async def erase(self, owned: Callable[[str], bool]) -> tuple[int, int]:
        """Delete the tasks of these owners, with their addresses for notifications; returns their
        number, and that of the tasks that a process runs, which stay."""
        now = self._now()
        runs = select(_LEASES.c.task_id).where(_LEASES.c.until > now)
        async with self.async_session_maker.begin() as session:
            found = (await session.execute(select(TaskModel.owner).distinct())).scalars().all()
            mine = TaskModel.owner.in_([owner for owner in found if owned(owner or "")])
            wanted = select(TaskModel.id).where(mine)
            free = wanted.where(TaskModel.id.not_in(runs))
            ids = (await session.execute(free)).scalars().all()
            await session.execute(delete(TaskModel).where(TaskModel.id.in_(ids)))
            addresses = PushNotificationConfigModel.task_id.in_(ids)
            await session.execute(delete(PushNotificationConfigModel).where(addresses))
            left = (await session.execute(wanted)).scalars().all()
        return len(ids), len(left)

    async def _forget(self) -> None:
        changed = TaskModel.last_updated
        oldest = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=self._ttl)
        async with self.async_session_maker.begin() as session:
            await session.execute(delete(TaskModel).where(changed < oldest))
            newest = select(changed).order_by(changed.desc()).offset(self._most - 1).limit(1)
            if (last := (await session.execute(newest)).scalar_one_or_none()) is not None:
                await session.execute(delete(TaskModel).where(changed < last))
            late = self._now() - _LEASE_KEPT
            await session.execute(delete(_LEASES).where(_LEASES.c.until < late))
            of_none = PushNotificationConfigModel.task_id.not_in(select(TaskModel.id))
            await session.execute(delete(PushNotificationConfigModel).where(of_none))


def _state(status: Any) -> str:
    """The state in a status column, which holds the JSON of a TaskStatus."""
    return str(status.get("state", "")) if isinstance(status, dict) else ""
