"""The official adapter's tasks on stores that several processes share."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.agent_execution.active_task import ActiveTask
from a2a.server.context import ServerCallContext
from a2a.types import CancelTaskRequest, ListTasksRequest, Task, TaskState, TaskStatus
from a2a_services import (
    PATIENCE,
    V1,
    Cluster,
    Rpc,
    Service,
    configured,
    message,
    proposals,
    reply_of,
    running,
    wait_for,
)
from sqlalchemy import delete
from sqlalchemy.exc import OperationalError

from databases import empty_schema
from sayso import Config, PluginError
from sayso_a2a.official.conversation import conversation
from sayso_a2a.official.database import _LEASES, DatabaseTasks
from sayso_a2a.official.execution import Executor
from sayso_a2a.official.handler import Handler
from sayso_a2a.official.stores import KeptTasks
from sayso_a2a.rows import Rows

Context = ServerCallContext
Store = KeptTasks | DatabaseTasks
Make = Callable[..., Store]
HOLDING = """
import asyncio
from pathlib import Path
from sayso_a2a import reply, working

async def agent(messages, context):
    working(context)
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return reply("done")
"""


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | None]:
    """The address of a database for tasks; None for the plugin's own file."""
    if request.param == "file":
        yield None
        return
    pytest.importorskip("sqlalchemy")
    if request.param == "sqlite":
        pytest.importorskip("aiosqlite")
        yield f"sqlite+aiosqlite:///{tmp_path}/tasks.db"
        return
    with empty_schema() as url:
        yield url.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture(autouse=True)
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, a process that pauses for a while must not count as dead."""
    for module in ("stores", "database"):
        monkeypatch.setattr(f"sayso_a2a.official.{module}.LEASE", 600.0)


@pytest.fixture
def make(database: str | None, tmp_path: Path) -> Make:
    """A function that makes a store on the database: `make(ttl=, most=)`."""

    def store(ttl: float = 3600.0, most: int = 100) -> Store:
        if database is None:
            return KeptTasks(Rows("a2a", tmp_path / "tasks.db", ttl=ttl, most=most))
        return DatabaseTasks(database, ttl=ttl, most=most)

    return store


@pytest.fixture
def config(database: str | None, tmp_path: Path) -> Config:
    """The configuration of services that share their tasks and their ledger."""
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    return configured(tmp_path, ledger=ledger, adapter="a2a", database=database)


def task_of(id: str, state: TaskState.ValueType, age: float = 0.0) -> Task:
    """A task that has been in its state for `age` seconds."""
    status = TaskStatus(state=state)
    status.timestamp.FromNanoseconds(int((time.time() - age) * 1e9))
    return Task(id=id, context_id="c", status=status)


def test_task_left_behind_by_a_dead_process_has_failed(make: Make) -> None:
    async def use() -> None:
        here, there = make(), make()
        await here.open()
        await there.open()
        await here.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        await here.save(task_of("w", TaskState.TASK_STATE_INPUT_REQUIRED), Context())
        assert await here.beat() == []
        alive = await there.get("t", Context())
        # A process that ends releases its leases; those of a killed one run out.
        await here.close()
        left = await there.get("t", Context())
        await there.sweep()
        state = TaskState.TASK_STATE_FAILED
        failed = await there.list(ListTasksRequest(status=state), Context())
        waiting = await there.get("w", Context())
        listed = await there.list(ListTasksRequest(), Context())
        await there.close()
        assert [task.id for task in failed.tasks] == ["t"]
        assert alive is not None
        assert alive.status.state == TaskState.TASK_STATE_WORKING
        assert left is not None
        assert left.status.state == TaskState.TASK_STATE_FAILED
        assert "sign of life" in left.status.message.parts[0].text
        assert "may have taken effect" in left.status.message.parts[0].text
        assert conversation([left]) == []
        assert waiting is not None
        assert waiting.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert {t.id: t.status.state for t in listed.tasks} == {
            "t": TaskState.TASK_STATE_FAILED,
            "w": TaskState.TASK_STATE_INPUT_REQUIRED,
        }

    asyncio.run(use())


def test_task_of_ones_own_was_not_left_behind_however_old_its_lease(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        here, there = make(), make()
        await here.open()
        await there.open()
        monkeypatch.setattr("sayso_a2a.official.stores.LEASE", -1.0)
        await here.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        await here.sweep()
        reported = await here.get("t", Context())
        assert reported is not None
        assert reported.status.state == TaskState.TASK_STATE_WORKING
        listed = await here.list(ListTasksRequest(), Context())
        assert [task.status.state for task in listed.tasks] == [TaskState.TASK_STATE_WORKING]
        others = await there.get("t", Context())
        assert others is not None
        assert others.status.state == TaskState.TASK_STATE_FAILED
        await here.close()
        await there.close()

    asyncio.run(use())


@asynccontextmanager
async def held(store: Store, task_id: str) -> AsyncIterator[None]:
    """Delay every save of the task until the block ends."""
    if isinstance(store, DatabaseTasks):
        async with store.async_session_maker.begin() as session:
            await session.execute(delete(_LEASES).where(_LEASES.c.task_id == task_id))
            yield
            await session.rollback()
        return
    held = threading.Event()
    waiting = asyncio.ensure_future(store._rows._run(held.wait))
    yield
    held.set()
    await waiting


def test_lease_counts_from_when_it_is_written(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    later = 0.0

    class Clock:
        time_ns = staticmethod(time.time_ns)

        @staticmethod
        def time() -> float:
            return time.time() + later

        @staticmethod
        def monotonic() -> float:
            return time.monotonic() + later

    for module in ("official.stores", "official.database", "rows"):
        monkeypatch.setattr(f"sayso_a2a.{module}.time", Clock)

    async def use() -> None:
        nonlocal later
        here, there = make(), make()
        await here.open()
        await there.open()
        task = task_of("t", TaskState.TASK_STATE_WORKING)
        await here.save(task, Context())
        async with held(here if isinstance(here, KeptTasks) else there, "t"):
            waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(here.save(task, Context()))]
            if isinstance(here, KeptTasks):
                # The database is asked for its own time.
                waiting.append(asyncio.ensure_future(here.beat()))
            await asyncio.sleep(0.1)
            later = 10 * 600.0
        await asyncio.gather(*waiting)
        reported = await there.get("t", Context())
        assert reported is not None
        assert reported.status.state == TaskState.TASK_STATE_WORKING
        await here.close()
        await there.close()

    asyncio.run(use())


def test_process_learns_which_of_its_tasks_others_canceled(make: Make) -> None:
    from a2a.server.cluster.task_store import ConcurrentTaskModificationError

    async def use() -> None:
        here, there = make(), make()
        await here.open()
        await there.open()
        await here.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        await there.save(task_of("t", TaskState.TASK_STATE_CANCELED), Context())
        assert await here.beat() == ["t"]
        with pytest.raises(ConcurrentTaskModificationError):
            await here.save(task_of("t", TaskState.TASK_STATE_COMPLETED), Context())
        assert "t" not in here.in_hand
        assert await here.beat() == []
        await here.save(task_of("t", TaskState.TASK_STATE_CANCELED), Context())
        assert await here.beat() == []
        await here.close()
        await there.close()

    asyncio.run(use())


def test_task_that_has_ended_stays_as_it_ended(make: Make) -> None:
    from a2a.server.cluster.task_store import ConcurrentTaskModificationError

    async def use() -> None:
        here, there = make(), make()
        await here.open()
        await there.open()
        await here.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        await there.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        await here.save(task_of("t", TaskState.TASK_STATE_COMPLETED), Context())
        for state in (
            TaskState.TASK_STATE_WORKING,
            TaskState.TASK_STATE_INPUT_REQUIRED,
            TaskState.TASK_STATE_COMPLETED,
            TaskState.TASK_STATE_CANCELED,
        ):
            with pytest.raises(ConcurrentTaskModificationError):
                await there.save(task_of("t", state), Context())
        kept = await there.get("t", Context())
        assert kept is not None
        assert kept.status.state == TaskState.TASK_STATE_COMPLETED
        assert await there.beat() == []
        await here.close()
        await there.close()

    asyncio.run(use())


def test_task_that_ends_while_another_process_saves_it_stays_ended(make: Make) -> None:
    async def use() -> None:
        here, there = make(), make()
        await here.open()
        await there.open()
        for id in map(str, range(20)):
            await here.save(task_of(id, TaskState.TASK_STATE_WORKING), Context())
            await asyncio.gather(
                here.save(task_of(id, TaskState.TASK_STATE_COMPLETED), Context()),
                there.save(task_of(id, TaskState.TASK_STATE_INPUT_REQUIRED), Context()),
                return_exceptions=True,
            )
        ended = ListTasksRequest(status=TaskState.TASK_STATE_COMPLETED)
        found = await here.list(ended, Context())
        await here.close()
        await there.close()
        assert len(found.tasks) == 20

    asyncio.run(use())


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_running_task_is_not_taken_for_left_behind_by_a_machine_whose_clock_is_fast(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time

    async def use() -> list[int]:
        here, there = make(), make()
        await here.open()
        await here.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        monkeypatch.setattr(time, "time", lambda: right() + 1200)
        await there.open()
        await there.save(task_of("u", TaskState.TASK_STATE_WORKING), Context())
        await there.beat()
        await there.sweep()
        seen = [
            await there.get("t", Context()),
            *(await there.list(ListTasksRequest(), Context())).tasks,
        ]
        monkeypatch.setattr(time, "time", right)
        await here.sweep()
        seen.append(await here.get("t", Context()))
        await there.close()
        seen.append(await here.get("u", Context()))
        await here.close()
        return [task.status.state for task in seen if task is not None]

    *alive, left = asyncio.run(use())
    assert alive == [TaskState.TASK_STATE_WORKING] * 4
    assert left == TaskState.TASK_STATE_FAILED


def test_write_to_sqlite_waits_for_others_as_long_as_a_busy_machine_may_take(
    tmp_path: Path,
) -> None:
    pytest.importorskip("aiosqlite")

    async def use() -> Any:
        tasks = DatabaseTasks(f"sqlite+aiosqlite:///{tmp_path}/t.db", ttl=3600.0, most=100)
        await tasks.open()
        async with tasks.engine.connect() as connection:
            waits = await connection.exec_driver_sql("pragma busy_timeout")
        await tasks.close()
        return waits.scalar_one()

    assert asyncio.run(use()) == 30_000


def test_time_of_mysql_is_that_of_no_zone_whose_clocks_are_changed() -> None:
    pytest.importorskip("aiomysql")

    async def use() -> list[float]:
        ahead = []
        for zone in ("%2B05:00", "-05:00"):
            url = f"mysql+aiomysql://root@127.0.0.1/?init_command=SET time_zone='{zone}'"
            tasks = DatabaseTasks(url, ttl=3600.0, most=100)
            try:
                await tasks._ask_time()
            except OperationalError as error:
                pytest.skip(f"no MySQL server: {error}")
            finally:
                await tasks.engine.dispose()
            ahead.append(tasks._ahead)
        return ahead

    east, west = asyncio.run(use())
    assert abs(east - west) < 600


def test_database_forgets_what_is_too_old_and_too_many(tmp_path: Path) -> None:
    pytest.importorskip("aiosqlite")

    async def use() -> list[str]:
        store = DatabaseTasks(f"sqlite+aiosqlite:///{tmp_path}/t.db", ttl=5000, most=3)
        await store.open()
        for number in range(8):
            done = task_of(f"t{number}", TaskState.TASK_STATE_COMPLETED, age=1000 * number)
            await store.save(done, Context())
        await store.close()
        again = DatabaseTasks(f"sqlite+aiosqlite:///{tmp_path}/t.db", ttl=5000, most=3)
        await again.open()
        found = await again.list(ListTasksRequest(), Context())
        await again.close()
        return [task.id for task in found.tasks]

    assert asyncio.run(use()) == ["t0", "t1", "t2"]


def test_task_that_stops_running_while_it_is_read_is_not_taken_for_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiosqlite")
    look = DatabaseTasks._look_at

    async def look_late(self: DatabaseTasks, session: Any, tasks: Any) -> None:
        await self.save(task_of("t", TaskState.TASK_STATE_INPUT_REQUIRED), Context())
        await look(self, session, tasks)

    async def use() -> None:
        store = DatabaseTasks(f"sqlite+aiosqlite:///{tmp_path}/t.db", ttl=5000, most=3)
        await store.open()
        await store.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        monkeypatch.setattr(DatabaseTasks, "_look_at", look_late)
        got = await store.get("t", Context())
        assert got is not None
        assert got.status.state == TaskState.TASK_STATE_WORKING
        await store.save(task_of("t", TaskState.TASK_STATE_WORKING), Context())
        [listed] = (await store.list(ListTasksRequest(), Context())).tasks
        await store.close()
        assert listed.status.state == TaskState.TASK_STATE_WORKING

    asyncio.run(use())


def _begin(service: Service, text: str) -> str:
    answer = Rpc(service)(
        "SendMessage", message=message(text), configuration={"returnImmediately": True}
    )
    task_id: str = answer["result"]["task"]["id"]
    return task_id


def _state(service: Service, task_id: str) -> str:
    state: str = Rpc(service)("GetTask", id=task_id)["result"]["status"]["state"]
    return state


def _last(service: Service, said: Any, task_id: str, stream: bool) -> dict[str, Any]:
    """The answer to a message to the task; of a stream, the last event."""
    method = "SendStreamingMessage" if stream else "SendMessage"
    params = {"message": message(said, taskId=task_id)}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = service.http.post("/a2a/rpc", json=body, headers=V1).text
    shown: dict[str, Any] = json.loads(answer.split("data:")[-1])
    return shown


def _following(service: Service, task_id: str) -> tuple[list[dict[str, Any]], threading.Thread]:
    """The events of a subscriber as they arrive, after the first one has."""
    seen: list[dict[str, Any]] = []
    path = f"/a2a/rest/tasks/{task_id}:subscribe"

    def follow() -> None:
        with service.http.stream("POST", path, headers=V1) as reply:
            for line in reply.iter_lines():
                if line.startswith("data:"):
                    seen.append(json.loads(line.removeprefix("data:")))

    thread = threading.Thread(target=follow)
    thread.start()
    wait_for(lambda: seen)
    return seen, thread


def test_running_task_is_followed_and_canceled_through_another_process(
    config: Config, cluster: Cluster
) -> None:
    with running(cluster.agent, config) as here, running(Cluster().agent, config) as there:
        task_id = _begin(here, "hold")
        assert cluster.began.wait(PATIENCE)
        seen, thread = _following(there, task_id)
        first = seen[0]["task"]["status"]["state"]
        assert first in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
        refused = Rpc(there)("SendMessage", message=message("more", taskId=task_id))
        assert refused["error"]["code"] == -32004
        canceled = Rpc(there)("CancelTask", id=task_id)["result"]
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        thread.join(PATIENCE)
        assert seen[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
        # The task stops although its tool still runs, and sends nothing more.
        registry = here.host.plugins.get("a2a")._adapter(here.host)._handler._active_task_registry
        wait_for(lambda: not registry._active_tasks)
        cluster.holding.set()
        assert [_state(service, task_id) for service in (here, there)] == (
            ["TASK_STATE_CANCELED"] * 2
        )


def test_end_of_a_running_task_is_seen_through_another_process(
    config: Config, cluster: Cluster
) -> None:
    with running(cluster.agent, config) as here, running(Cluster().agent, config) as there:
        task_id = _begin(here, "hold")
        assert cluster.began.wait(PATIENCE)
        seen, thread = _following(there, task_id)
        cluster.holding.set()
        thread.join(PATIENCE)
        last = seen[-1]["statusUpdate"]["status"]
        assert last["state"] == "TASK_STATE_COMPLETED"
        said = seen[-2]["artifactUpdate"]["artifact"]["parts"]
        assert "".join(part["text"] for part in said) == "The tool says: held"


def test_waiting_task_is_decided_through_another_process(config: Config, cluster: Cluster) -> None:
    with running(cluster.agent, config) as here, running(cluster.agent, config) as there:
        task = Rpc(here).task("delete web")
        seen, thread = _following(here, task["id"])
        (call,) = proposals(task)
        done = Rpc(there).task({"id": call["id"], "execute": True}, taskId=task["id"])
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert seen[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        again = Rpc(here)("SendMessage", message=message("more", taskId=task["id"]))
        assert again["error"]["code"] == -32004
        assert cluster.deleted == ["web"]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["send", "stream"])
def test_one_of_two_messages_to_two_processes_goes_on_with_a_task(
    config: Config, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    execute = Executor.execute
    both = threading.Barrier(2)

    async def execute_together(self: Executor, context: Any, queue: Any) -> None:
        # Both have found the task waiting.
        if context.current_task is not None and not both.broken:
            await asyncio.to_thread(both.wait, PATIENCE)
        await execute(self, context, queue)

    with (
        running(cluster.agent, config) as here,
        running(cluster.agent, config) as there,
        ThreadPoolExecutor() as threads,
    ):
        task = Rpc(here).task("delete web")
        (call,) = proposals(task)
        approval = {"id": call["id"], "execute": True}
        monkeypatch.setattr(Executor, "execute", execute_together)

        said = threads.submit(_last, here, "what now?", task["id"], stream)
        decided = threads.submit(_last, there, approval, task["id"], stream)
        answers = [said.result(PATIENCE), decided.result(PATIENCE)]
        both.abort()
        errors = [answer["error"]["code"] for answer in answers if "error" in answer]
        assert errors == [-32004], answers
        if "error" in answers[1]:
            # The text was first, and approves nothing.
            assert cluster.deleted == []
            assert _state(there, task["id"]) == "TASK_STATE_INPUT_REQUIRED"
            Rpc(there).task(approval, taskId=task["id"])
        assert [_state(service, task["id"]) for service in (here, there)] == (
            ["TASK_STATE_COMPLETED"] * 2
        )
    assert cluster.deleted == ["web"]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_text_that_waited_for_the_end_of_a_task_is_refused_and_does_not_begin_it_again(
    config: Config, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    enqueue = ActiveTask.enqueue_request
    queued: list[str] = []

    async def enqueued(self: ActiveTask, request: RequestContext) -> Any:
        request_id = await enqueue(self, request)
        queued.append(self.task_id)
        return request_id

    monkeypatch.setattr(ActiveTask, "enqueue_request", enqueued)
    with running(cluster.agent, config) as service, ThreadPoolExecutor() as threads:
        task_id = _begin(service, "hold")
        assert cluster.began.wait(PATIENCE)
        second = threads.submit(_last, service, "more", task_id, stream)
        wait_for(lambda: len(queued) == 2)
        cluster.holding.set()
        assert second.result(PATIENCE)["error"]["code"] == -32004
        registry = service.host.plugins.get("a2a")._adapter(service.host)._handler
        wait_for(lambda: not registry._active_task_registry._active_tasks)
        task = Rpc(service)("GetTask", id=task_id)["result"]
    assert reply_of(task) == "The tool says: held"
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "more" not in json.dumps(task)


@pytest.mark.slow
@pytest.mark.parametrize("length", [None, 0])
def test_decision_behind_another_message_is_answered_after_its_own_turn(
    config: Config, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, length: int | None
) -> None:
    execute, enqueue = Executor.execute, ActiveTask.enqueue_request
    queued: list[str] = []

    async def enqueued(self: ActiveTask, request: RequestContext) -> Any:
        request_id = await enqueue(self, request)
        queued.append(self.task_id)
        return request_id

    async def execute_behind(self: Executor, context: Any, queue: Any) -> None:
        if len(queued) == 2:
            # The text gets its turn once the decision is queued behind it.
            await asyncio.to_thread(wait_for, lambda: len(queued) == 3)
        await execute(self, context, queue)

    monkeypatch.setattr(ActiveTask, "enqueue_request", enqueued)
    with running(cluster.agent, config) as service, ThreadPoolExecutor() as threads:
        task = Rpc(service).task("delete web")
        (call,) = proposals(task)
        monkeypatch.setattr(Executor, "execute", execute_behind)
        said = threads.submit(Rpc(service).task, "what now?", taskId=task["id"])
        wait_for(lambda: len(queued) == 2)
        decision = message({"id": call["id"], "execute": True}, taskId=task["id"])
        asked = {} if length is None else {"configuration": {"historyLength": length}}
        decided = Rpc(service)("SendMessage", message=decision, **asked)["result"]["task"]
        assert said.result(PATIENCE)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert reply_of(decided) == "The tool says: deleted web"
        assert decided["status"]["state"] == "TASK_STATE_COMPLETED"
        assert ("history" in decided) is (length is None)
    assert cluster.deleted == ["web"]


@pytest.mark.slow
def test_message_to_a_task_that_ends_at_this_moment_is_refused(
    config: Config, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = ActiveTask.enqueue_request

    async def enqueued_late(self: ActiveTask, request: RequestContext) -> Any:
        if request.message is not None and request.message.message_id == "late":
            await self.cancel(request.call_context)
        return await enqueue(self, request)

    monkeypatch.setattr(ActiveTask, "enqueue_request", enqueued_late)
    with running(cluster.agent, config) as service:
        task = Rpc(service).task("delete web")
        late = message("more", id="late", taskId=task["id"])
        assert Rpc(service)("SendMessage", message=late)["error"]["code"] == -32004
        assert _state(service, task["id"]) == "TASK_STATE_CANCELED"


@pytest.mark.slow
def test_message_to_a_task_that_ends_before_it_is_taken_leaves_no_queue_behind(
    config: Config, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, start = Handler._prepare, ActiveTask.start
    opened: list[ActiveTask] = []

    async def prepared(self: Handler, message: Any, context: ServerCallContext) -> None:
        await prepare(self, message, context)
        if message.task_id:
            await self.on_cancel_task(CancelTaskRequest(id=message.task_id), context)

    async def started(self: ActiveTask, *given: Any, **named: Any) -> None:
        opened.append(self)
        await start(self, *given, **named)

    monkeypatch.setattr(Handler, "_prepare", prepared)
    monkeypatch.setattr(ActiveTask, "start", started)
    with running(cluster.agent, config) as service:
        task = Rpc(service).task("delete web")
        late = message("more", taskId=task["id"])
        assert Rpc(service)("SendMessage", message=late)["error"]["code"] == -32004
        assert len(opened) == 2
        # An open queue's reader would be destroyed later, and log a trace.
        assert opened[1]._event_queue_agent.is_closed()
        assert opened[1]._event_queue_subscribers.is_closed()


def test_notifications_asked_for_in_one_process_are_known_in_another(
    tmp_path: Path, cluster: Cluster
) -> None:
    pytest.importorskip("aiosqlite")
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    url = f"sqlite+aiosqlite:///{tmp_path}/tasks.db"
    options: dict[str, Any] = {"push_notifications": True, "push_hosts": ["127.0.0.1"]}
    config = configured(tmp_path, ledger=ledger, adapter="a2a", database=url, **options)
    with running(cluster.agent, config) as here, running(cluster.agent, config) as there:
        task = Rpc(here).task("delete web")
        wanted = {"taskId": task["id"], "url": "http://127.0.0.1:9/x"}
        made = Rpc(here)("CreateTaskPushNotificationConfig", **wanted)["result"]
        listed = Rpc(there)("ListTaskPushNotificationConfigs", taskId=task["id"])["result"]
        assert listed["configs"] == [made]


@pytest.fixture(params=[False, True], ids=["file", "database"])
def workers(request: pytest.FixtureRequest, tmp_path: Path, unused_port: int) -> Iterator[str]:
    """The address of an agent on two worker processes; it works until the file `go` exists."""
    lines = [
        "[server]",
        f"port = {unused_port}",
        'host = "127.0.0.1"',
        "workers = 2",
        f"start_timeout = {PATIENCE}",
        "a2a = true",
        f'state_dir = "{tmp_path}/state"',
        "[plugin.a2a]",
        'adapter = "a2a"',
    ]
    if request.param:
        pytest.importorskip("aiosqlite")
        lines.append(f'database = "sqlite+aiosqlite:///{tmp_path}/tasks.db"')
    (tmp_path / "sayso.toml").write_text("\n".join(lines))
    (tmp_path / "holding.py").write_text(HOLDING)
    command = [sys.executable, "-m", "sayso", "serve", "holding.py:agent"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{unused_port}"

    def healthy() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return httpx.get(f"{url}/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(healthy)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


@pytest.mark.slow
def test_each_worker_follows_a_running_task_to_its_end(workers: str, tmp_path: Path) -> None:
    body = {"message": message("go"), "configuration": {"returnImmediately": True}}
    url = f"{workers}/a2a/rest"
    answer = httpx.post(f"{url}/message:send", json=body, headers=V1, timeout=PATIENCE)
    task_id = answer.json()["task"]["id"]
    found: list[list[str]] = [[] for _ in range(8)]

    def follow(states: list[str]) -> None:
        # A new connection, which any worker may accept.
        path = f"{url}/tasks/{task_id}:subscribe"
        with httpx.stream("POST", path, headers=V1, timeout=PATIENCE) as reply:
            assert reply.status_code == 200, reply.read()
            for line in reply.iter_lines():
                if line.startswith("data:"):
                    event = json.loads(line.removeprefix("data:"))
                    if noted := event.get("task") or event.get("statusUpdate"):
                        states.append(noted["status"]["state"])

    with ThreadPoolExecutor(8) as pool:
        following = [pool.submit(follow, states) for states in found]
        wait_for(lambda: all(found) or any(each.done() for each in following))
        (tmp_path / "go").touch()
        for each in following:
            each.result()
    assert {states[0] for states in found} <= {"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}
    assert {states[-1] for states in found} == {"TASK_STATE_COMPLETED"}


def test_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("aiosqlite")

    async def use() -> None:
        tasks = DatabaseTasks(f"sqlite+aiosqlite:///{tmp_path}/t.db", ttl=3600.0, most=100)
        await tasks.open()
        async with tasks.engine.begin() as connection:
            await connection.exec_driver_sql("update sayso_a2a_schema set version = 2")
        with pytest.raises(PluginError, match="have schema 2"):
            await tasks.open()
        await tasks.close()

    asyncio.run(use())
