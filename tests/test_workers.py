from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gates import Gate
from sayso.workers import Channel, Workers, per_loop
from sayso.workers.code import UserCode
from sayso.workers.mailbox import mailbox

DEADLINE = 120.0


def run(work: Callable[[Workers], Any], **options: Any) -> Any:
    """Run `work(workers)` on a loop of its own, as the server's loop would."""

    async def main() -> Any:
        async with asyncio.timeout(DEADLINE), Workers(**options) as workers:
            return await work(workers)

    return asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def sleeping(seconds: float) -> str:
    time.sleep(seconds)  # noqa: ASYNC251
    return threading.current_thread().name


async def thread_name() -> str:
    return threading.current_thread().name


async def ident() -> int:
    return threading.get_ident()


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Home never counts as blocked, however slow the machine is."""
    monkeypatch.setattr("sayso.workers.workers.LOOK", 2 * DEADLINE)


@pytest.mark.usefixtures("unhurried")
def test_turn_runs_at_home_and_off_the_callers_loop() -> None:
    async def work(workers: Workers) -> None:
        names = {await workers.spawn(thread_name) for _ in range(20)}
        assert names == {"sayso-home"}
        assert workers.loops == 1

    run(work)


def test_64_turns_block_side_by_side_while_the_server_loop_stays_free() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        turns = [workers.spawn(gate.turn) for _ in range(64)]
        # This is the server's loop: if it sees them all blocked, it is free itself.
        await until(lambda: gate.count == 64)
        assert not any(turn.done() for turn in turns)
        gate.open()
        assert len(await asyncio.gather(*turns)) == 64

    run(work)


def test_user_code_that_blocks_after_an_await_holds_up_no_turn_on_the_engine_loop() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()

        async def turn() -> str:
            await asyncio.sleep(0.02)
            return await workers.spawn(gate.turn)

        turns = [workers.on_engine_loop(turn) for _ in range(32)]
        await until(lambda: gate.count == 32)
        gate.open()
        await asyncio.gather(*turns)

    run(work)


def test_blocking_functions_get_a_thread_each() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()

        async def turn() -> None:
            await workers.threads.run(gate.block)

        turns = [workers.spawn(turn) for _ in range(64)]
        await until(lambda: gate.count == 64)
        gate.open()
        await asyncio.gather(*turns)

    run(work)


def test_blocking_functions_in_threads_need_no_further_loop() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        turns = [workers.spawn(lambda: workers.threads.run(gate.block)) for _ in range(8)]
        await until(lambda: gate.count == 8)
        assert set(await asyncio.gather(*[workers.spawn(thread_name) for _ in range(8)])) == {
            "sayso-home"
        }
        gate.open()
        await asyncio.gather(*turns)

    run(work, loops=1)


def test_standard_way_to_a_thread_gets_a_thread_each_too() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()

        async def turn() -> None:
            with pytest.raises(LookupError):
                await asyncio.to_thread(fail)

        def fail() -> None:
            gate.block()
            raise LookupError

        turns = [workers.spawn(turn) for _ in range(48)]
        await until(lambda: gate.count == 48)
        gate.open()
        await asyncio.gather(*turns)

    run(work)


def test_engine_loop_has_a_thread_while_user_code_holds_all_of_its_own() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        turn = workers.spawn(lambda: workers.threads.run(gate.block))
        await until(lambda: gate.count == 1)
        try:
            # Stores open and close in this way.
            assert (
                await workers.on_engine_loop(lambda: asyncio.to_thread(lambda: "closed"))
                == "closed"
            )
        finally:
            gate.open()
        await turn

    run(work, threads=1)


def test_threads_keep_to_their_limit_and_idle_ones_end() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        running, most = 0, 0
        lock = threading.Lock()

        def job() -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            gate.block()
            with lock:
                running -= 1

        before = set(threading.enumerate())
        jobs = asyncio.gather(*[workers.threads.run(job) for _ in range(12)])
        await until(lambda: gate.count == 3)
        gate.open()
        await jobs
        assert most == 3
        await until(
            lambda: not any(t.name == "sayso-thread" for t in set(threading.enumerate()) - before)
        )
        assert await workers.threads.run(lambda: "again") == "again"

    run(work, threads=3, idle_seconds=0.05)


@pytest.fixture
def shortage(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set the system has no thread to give."""
    short, start = threading.Event(), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if short.is_set():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr("threading.Thread.start", refuse)
    monkeypatch.setattr("sayso.workers.workers.SHORT", 0.02)
    return short


def test_turns_are_spread_again_when_a_shortage_of_threads_is_over(
    shortage: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        shortage.set()
        turns = [workers.spawn(gate.turn) for _ in range(8)]
        await until(lambda: "ulimit -u" in caplog.text and gate.count == 1)
        assert workers.loops == 1
        shortage.clear()
        await until(lambda: gate.count == 8)
        gate.open()
        await asyncio.gather(*turns)

    run(work)


def test_turns_are_spread_again_when_a_shortage_of_descriptors_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sayso.workers.workers.SHORT", 0.02)

    async def work(workers: Workers) -> None:
        gate = Gate()
        with no_descriptors():
            turns = [workers.spawn(gate.turn) for _ in range(8)]
            await until(lambda: "ulimit -n" in caplog.text and gate.count == 1)
        await until(lambda: gate.count == 8)
        gate.open()
        await asyncio.gather(*turns)

    run(work)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Meanwhile the process cannot open further files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), hard))
    try:
        yield
    finally:
        os.close(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_calls_wait_for_the_threads_there_are_while_no_more_can_be_had(
    shortage: threading.Event,
) -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        first = asyncio.ensure_future(workers.threads.run(gate.block))
        await until(lambda: gate.count == 1)
        shortage.set()
        more = asyncio.gather(*[workers.threads.run(gate.block) for _ in range(8)])
        gate.open()
        assert [await first] * 8 == await more

    run(work)


def test_calls_without_any_thread_fail_and_cost_none_of_the_later_ones(
    shortage: threading.Event,
) -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        shortage.set()
        for _ in range(4):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await workers.threads.run(gate.block)
        shortage.clear()
        calls = asyncio.gather(*[workers.threads.run(gate.block) for _ in range(4)])
        await until(lambda: gate.count == 4)
        gate.open()
        await calls

    run(work, threads=4)


def test_one_loop_keeps_blocking_turns_at_home() -> None:
    async def work(workers: Workers) -> None:
        turns = [workers.spawn(lambda: sleeping(0.05)) for _ in range(4)]
        assert set(await asyncio.gather(*turns)) == {"sayso-home"}
        assert workers.loops == 1

    run(work, loops=1)


def test_loops_keep_to_their_limit_and_idle_ones_end() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        turns = [workers.spawn(gate.turn) for _ in range(12)]
        await until(lambda: gate.count == 3)
        assert workers.loops == 3
        gate.open()
        assert len(await asyncio.gather(*turns)) == 12
        assert workers.loops <= 3
        await until(lambda: workers.loops == 1)

    run(work, loops=3, idle_seconds=0.1)


def test_task_that_a_turn_leaves_behind_runs_to_its_end_on_whatever_loop() -> None:
    ended: list[str] = []

    async def left_behind() -> None:
        try:
            await asyncio.sleep(0.5)
            ended.append("done")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def work(workers: Workers) -> None:
        gate, left = Gate(), []

        async def leaving() -> None:
            left.append(asyncio.create_task(left_behind()))
            gate.block()

        turns = [workers.spawn(leaving) for _ in range(2)]
        await until(lambda: gate.count == 2)
        assert workers.loops == 2
        gate.open()
        await asyncio.gather(*turns)
        await until(lambda: len(ended) == 2)
        await until(lambda: workers.loops == 1)

    run(work, loops=2, idle_seconds=0.05)
    assert ended == ["done", "done"]


def test_task_without_end_does_not_keep_its_loop_for_good() -> None:
    async def work(workers: Workers) -> None:
        gate, tasks = Gate(), []

        async def pooled() -> None:
            tasks.append(asyncio.create_task(asyncio.sleep(3600)))
            gate.block()

        turns = [workers.spawn(pooled) for _ in range(2)]
        await until(lambda: gate.count == 2)
        gate.open()
        await asyncio.gather(*turns)
        await until(lambda: sum(task.cancelled() for task in tasks) == 1)
        assert workers.loops == 1

    run(work, loops=2, idle_seconds=0.01)


def test_new_turn_is_not_placed_on_a_loop_that_blocks_after_its_first_await() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()

        async def late() -> int:
            await asyncio.sleep(0)
            gate.block()
            return await ident()

        blocked = workers.spawn(late)
        await until(lambda: gate.count == 1)
        other = await workers.spawn(ident)
        assert not blocked.done()
        gate.open()
        assert await blocked != other

    run(work)


@pytest.mark.parametrize("computing", [False, True])
def test_turns_that_block_as_they_come_on_block_side_by_side(computing: bool) -> None:
    async def work(workers: Workers) -> None:
        workers.computing = computing
        gate = Gate()

        async def late() -> str:
            await asyncio.sleep(0)
            return gate.block()

        turns = [workers.spawn(late) for _ in range(64)]
        await until(lambda: gate.count == 64)
        gate.open()
        assert len(set(await asyncio.gather(*turns))) > 1

    run(work)


def test_turn_that_has_just_suspended_comes_on_before_another_is_taken() -> None:
    """Also if the loop was about to handle its calls from other threads."""

    async def work(workers: Workers) -> None:
        gate, second = Gate(), threading.Event()

        async def other() -> None:
            await asyncio.sleep(0)
            second.set()

        async def first() -> None:
            asyncio.get_running_loop().call_soon(workers.spawn, other)
            mailbox().post(lambda: None)
            await asyncio.sleep(0)
            gate.block()

        turn = workers.spawn(first)
        await until(second.is_set)
        assert not turn.done()
        gate.open()
        await turn

    run(work)


async def block_shared_loop(workers: Workers) -> None:
    """Make a turn block home after it has waited there beside another; return when that is over."""
    gate, going = Gate(), threading.Event()

    async def late() -> None:
        while not going.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        gate.block()

    turns: list[Any] = []

    def apart() -> bool:
        return workers._apart_until > 0.0

    # A slow machine may look blocked before two are there, or a further loop may have taken one.
    while not apart() and not any(len(one.turns) > 1 for one in workers._loops):
        turns.append(workers.spawn(late))
        await until(lambda: apart() or sum(len(one.turns) for one in workers._loops) == len(turns))
    going.set()
    await until(apart)
    gate.open()
    await asyncio.gather(*turns)


@pytest.fixture
def soon_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops with suspended turns are often asked for a sign, also while the test computes."""
    monkeypatch.setattr("sayso.workers.workers.ASK", 0.02)
    monkeypatch.setattr("sayso.workers.workers.COMPUTING", 1000.0)


@pytest.mark.usefixtures("soon_asked")
def test_turns_get_loops_of_their_own_after_one_blocked_that_it_shared() -> None:
    async def work(workers: Workers) -> None:
        gate, going = Gate(), threading.Event()

        async def late() -> None:
            while not going.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            gate.block()

        await block_shared_loop(workers)
        turns = [workers.spawn(late) for _ in range(16)]
        await until(lambda: not workers.waiting)
        going.set()
        await until(lambda: gate.count == 16)
        gate.open()
        await asyncio.gather(*turns)

    run(work)


@pytest.mark.usefixtures("soon_asked", "unhurried")
def test_loop_that_shares_no_more_takes_the_next_turn_when_its_own_has_ended() -> None:
    async def work(workers: Workers) -> None:
        await block_shared_loop(workers)
        turns = [workers.spawn(lambda: asyncio.sleep(0.01)) for _ in range(8)]
        await asyncio.gather(*turns)
        assert workers.loops == 1

    run(work)


@pytest.mark.usefixtures("soon_asked")
def test_turns_that_share_no_loop_get_more_of_them_also_while_others_come_and_go() -> None:
    async def work(workers: Workers) -> None:
        threads: set[int] = set()

        async def brief() -> None:
            await asyncio.sleep(0.005)
            threads.add(threading.get_ident())

        async def client() -> None:
            while len(threads) < 4:
                await workers.spawn(brief)

        await block_shared_loop(workers)
        await asyncio.gather(*[client() for _ in range(16)])

    run(work)


@pytest.mark.usefixtures("soon_asked")
def test_turns_beyond_the_last_loop_are_spread_over_all() -> None:
    async def work(workers: Workers) -> None:
        going = threading.Event()

        async def waiting() -> int:
            while not going.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            return await ident()

        await block_shared_loop(workers)
        turns = []
        for _ in range(16):
            turns.append(workers.spawn(waiting))
            await until(lambda: not workers.waiting)
        going.set()
        places = await asyncio.gather(*turns)
        assert len(set(places)) == 2

    run(work, loops=2)


def test_code_that_computes_keeps_no_turns_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayso.workers.workers.ASK", 0.02)
    monkeypatch.setattr("sayso.workers.workers.COMPUTING", -1.0)

    async def work(workers: Workers) -> None:
        gate = Gate()

        async def late() -> None:
            await asyncio.sleep(0)
            gate.block()

        turn = workers.spawn(late)
        await until(lambda: workers.home is not None and workers.home._missed > 3)
        assert workers._apart_until == 0.0
        gate.open()
        await turn

    run(work)


@pytest.mark.usefixtures("unhurried")
def test_turns_that_only_wait_stay_together() -> None:
    async def work(workers: Workers) -> None:
        async def waiting() -> str:
            await asyncio.sleep(1.0)
            return await thread_name()

        turns = [workers.spawn(waiting) for _ in range(64)]
        assert set(await asyncio.gather(*turns)) == {"sayso-home"}
        assert workers.calm

    run(work)


def test_exception_comes_out_and_harms_no_other_turn() -> None:
    async def work(workers: Workers) -> None:
        async def fail() -> None:
            raise LookupError("mine")

        turns: list[Any] = [workers.spawn(fail), workers.spawn(thread_name), workers.spawn(fail)]
        results = await asyncio.gather(*turns, return_exceptions=True)
        assert [type(result) for result in results] == [LookupError, str, LookupError]

    run(work)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, asyncio.CancelledError],
)
def test_exception_that_ends_programs_ends_no_loop_and_no_thread(
    error: type[BaseException],
) -> None:
    async def work(workers: Workers) -> None:
        def fail() -> None:
            raise error

        async def fail_here() -> None:
            fail()

        with pytest.raises(RuntimeError):
            await workers.threads.run(fail)
        with pytest.raises(RuntimeError):
            await workers.spawn(fail_here)
        assert await workers.spawn(thread_name) == "sayso-home"
        assert await workers.threads.run(lambda: 1) == 1

    run(work)


@pytest.mark.usefixtures("unhurried")
def test_exit_raised_in_a_task_of_the_users_own_leaves_home_running() -> None:
    async def work(workers: Workers) -> None:
        async def leave() -> None:
            raise SystemExit(3)

        async def turn() -> None:
            task = asyncio.create_task(leave())
            await asyncio.wait([task])
            task.exception()

        await workers.spawn(turn)
        assert await workers.spawn(thread_name) == "sayso-home"

    run(work)


@pytest.mark.usefixtures("unhurried")
def test_task_factory_of_the_users_own_may_do_what_it_likes() -> None:
    async def work(workers: Workers) -> None:
        called = threading.Event()

        def factory(loop: Any, coro: Any, **options: Any) -> Any:
            # A finalizer may do so at any time.
            loop.call_soon(lambda number: called.set(), 1)
            loop.call_soon(lambda: None)
            return asyncio.Task(coro, loop=loop, **options)

        def refusing(loop: Any, coro: Any, **options: Any) -> Any:
            raise LookupError

        async def install(factory: Any) -> None:
            asyncio.get_running_loop().set_task_factory(factory)

        await workers.spawn(lambda: install(factory))
        assert await workers.spawn(thread_name) == "sayso-home"
        await until(called.is_set)
        await workers.spawn(lambda: install(refusing))
        with pytest.raises(LookupError):
            await workers.spawn(thread_name)
        with pytest.raises(LookupError):
            await workers.at_home(thread_name)
        assert workers.home is not None and workers.home.box is not None
        loop = workers.home.box.loop()
        assert loop is not None
        loop.call_soon_threadsafe(loop.set_task_factory, None)
        assert await workers.at_home(thread_name) == "sayso-home"

    run(work)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="since Python 3.12")
def test_tasks_may_be_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not every uvloop works with every eager factory.
    monkeypatch.setattr("sayso.workers.loop.new_event_loop", asyncio.new_event_loop)

    async def work(workers: Workers) -> None:
        async def install() -> None:
            loop = asyncio.get_running_loop()
            loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]

        async def turn(pause: float | None) -> str:
            if pause is not None:
                await asyncio.sleep(pause)
            return await asyncio.create_task(thread_name())

        await workers.at_home(install)
        for pause in (None, 0, 0.01):
            assert await workers.at_home(lambda pause=pause: turn(pause)) == "sayso-home"  # type: ignore[misc]

    run(work)


def test_loop_of_another_thread_that_blocks_holds_up_nobody_elses_turns() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()

        async def spawn_and_block() -> None:
            running = workers.spawn(thread_name)
            gate.block()
            await running

        # Only after this, turns count as arriving several at a time.
        for _ in range(2):
            await asyncio.gather(*[workers.spawn(thread_name) for _ in range(8)])
        thread = threading.Thread(target=lambda: asyncio.run(spawn_and_block()))
        thread.start()
        await until(lambda: gate.count == 1)
        assert await workers.spawn(thread_name) == "sayso-home"
        gate.open()
        await until(lambda: not thread.is_alive())

    run(work, loops=1)


def test_turn_and_thread_run_in_a_copy_of_the_callers_context() -> None:
    word = contextvars.ContextVar("word", default="none")

    async def work(workers: Workers) -> None:
        async def turn() -> str:
            received = word.get() + await workers.threads.run(word.get)
            word.set("changed")
            return received

        word.set("one")
        first = workers.spawn(turn)
        word.set("two")
        assert await first == "oneone"
        assert await workers.at_home(turn) == "twotwo"
        assert word.get() == "two"

    run(work)


def test_cancelling_whoever_awaits_cancels_the_turn_and_its_cleanup_runs() -> None:
    async def work(workers: Workers) -> None:
        began, ended = threading.Event(), threading.Event()

        async def turn() -> None:
            began.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()

        for start in (workers.spawn, workers.at_home, workers.on_engine_loop):
            began.clear()
            ended.clear()

            async def wait(start: Any = start) -> None:
                await start(turn)

            waiting = asyncio.create_task(wait())
            await until(began.is_set)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await until(ended.is_set)

    run(work)


def test_cancelled_turn_has_cleaned_up_when_its_canceller_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A loop that is not reached in time counts as blocked.
    monkeypatch.setattr("sayso.workers.running.PATIENCE", DEADLINE)

    async def work(workers: Workers) -> None:
        cleaned = False
        began = threading.Event()

        async def turn() -> None:
            nonlocal cleaned
            began.set()
            try:
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(0.2)
                cleaned = True

        running = workers.spawn(turn)
        await until(began.is_set)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cleaned
        assert running.done()

    run(work)


def test_cancelling_a_blocked_turn_returns_at_once() -> None:
    async def work(workers: Workers) -> None:
        gate = Gate()
        running = workers.spawn(gate.turn)
        await until(lambda: gate.count == 1)
        threading.Thread(target=running.cancel).start()
        with pytest.raises(asyncio.CancelledError):
            await running
        gate.open()

    run(work)


def test_turn_cancelled_before_it_began_never_runs() -> None:
    async def work(workers: Workers) -> None:
        ran = []

        async def turn() -> None:
            ran.append(1)

        gate = Gate()
        blocking = workers.spawn(gate.turn)
        running = workers.spawn(turn)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        gate.open()
        await blocking
        await workers.spawn(thread_name)
        assert ran == []

    run(work, loops=1)


def test_closing_cancels_what_runs_and_does_not_wait_for_blocked_code() -> None:
    async def main() -> None:
        workers = Workers()
        await workers.start()
        gate = Gate()
        stuck = workers.spawn(gate.turn)
        await until(lambda: gate.count == 1)
        waiting = workers.spawn(lambda: asyncio.sleep(600))
        async with asyncio.timeout(DEADLINE / 2):
            await workers.close(0.3)
        results = await asyncio.gather(stuck, waiting, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 2
        with pytest.raises(RuntimeError, match="stopping"):
            workers.spawn(thread_name)
        gate.open()

    asyncio.run(main())


@pytest.mark.usefixtures("unhurried")
def test_per_loop_gives_one_object_a_loop_closed_with_it() -> None:
    events: list[str] = []

    class Client:
        async def aclose(self) -> None:
            events.append(f"closed on {threading.current_thread().name}")

    client = per_loop(Client)

    async def work(workers: Workers) -> None:
        async def same() -> bool:
            return client() is client()

        async def mine() -> Client:
            return client()

        assert await workers.spawn(same)
        at_home, here = await workers.spawn(mine), client()
        assert at_home is not here
        assert await workers.at_home(mine) is at_home
        assert events == []

    run(work)
    assert sorted(events) == ["closed on MainThread", "closed on sayso-home"]


@pytest.mark.usefixtures("unhurried")
def test_object_of_a_loop_ends_its_own_tasks_as_it_closes() -> None:
    events: list[str] = []

    class Pool:
        def __init__(self) -> None:
            self.worker = asyncio.get_running_loop().create_task(asyncio.sleep(600))

        async def close(self) -> None:
            events.append("cancelled before" if self.worker.cancelling() else "closed in order")
            self.worker.cancel()
            # Pools do this: the cancellation of their worker comes out.
            await asyncio.gather(self.worker)

    class Client:
        def close(self) -> None:
            events.append("the next one, too")

    pool, client = per_loop(Pool), per_loop(Client)

    async def main() -> None:
        workers = Workers()
        await workers.start()

        async def use() -> None:
            client()
            pool()

        await workers.spawn(use)
        async with asyncio.timeout(DEADLINE / 2):
            await workers.close(2 * DEADLINE)

    asyncio.run(main())
    assert events == ["closed in order", "the next one, too"]


@pytest.mark.usefixtures("unhurried")
def test_loops_end_in_time_whatever_an_object_raises_as_its_close_is_cut_off() -> None:
    class Pool:
        async def close(self) -> None:
            try:
                await asyncio.sleep(600)
            finally:
                raise RuntimeError("the pool was closing")

    pool = per_loop(Pool)

    async def main() -> int:
        workers = Workers()
        await workers.start()

        async def use() -> None:
            pool()

        await use()
        await workers.spawn(use)
        await workers.close(0.2)
        await until(lambda: not workers.loops)
        return workers.loops

    assert asyncio.run(main()) == 0


async def an_async_factory() -> str:
    return "made"


@pytest.mark.parametrize("factory", [5, an_async_factory])
def test_per_loop_refuses_what_makes_no_object(factory: Any) -> None:
    with pytest.raises(TypeError, match="per_loop takes a plain function that makes the object"):
        per_loop(factory)


def test_per_loop_without_a_loop_says_the_way_out() -> None:
    with pytest.raises(RuntimeError, match="a tool that is an 'async def'"):
        per_loop(list)()


def test_per_loop_keeps_no_foreign_loop_alive() -> None:
    made = []

    class Client:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            made.append(1)

        def __del__(self) -> None:
            made.pop()

    client = per_loop(Client)

    async def use() -> bool:
        return client() is client()

    for _ in range(3):
        assert asyncio.run(use())
        gc.collect()
    assert len(made) == 1


def test_subprocesses_start_on_worker_loops() -> None:
    async def work(workers: Workers) -> None:
        async def turn() -> bytes:
            process = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1)
            return (await process.communicate())[0]

        assert await workers.spawn(turn) == b"hi\n"

    run(work)


def test_channel_hands_everything_over_in_order_with_few_wake_ups() -> None:
    async def work(workers: Workers) -> None:
        channel: Channel[int] = Channel()

        async def produce() -> None:
            for number in range(200):
                await channel.put(number)
            channel.close()

        running = workers.spawn(produce)
        got: list[int] = []
        wakes = 0
        while items := await channel.ready():
            got += items
            wakes += 1
        await running
        assert got == list(range(200))
        assert wakes < 100
        assert await channel.ready() == []

    run(work)


@pytest.mark.parametrize("size", [None, len])
def test_channel_pauses_a_producer_whose_consumer_is_slow(size: Any) -> None:
    async def work(workers: Workers) -> None:
        limit = 4 if size is None else 40
        channel: Channel[bytes] = Channel(limit, size=size)
        put = 0

        async def produce() -> None:
            nonlocal put
            for _ in range(20):
                await channel.put(b"0123456789")
                put += 1
            channel.close()

        running = workers.spawn(produce)
        await until(lambda: channel.full)
        await asyncio.sleep(0.02)
        assert put == 4
        assert len(await channel.ready()) == 5
        assert [item async for item in channel] == [b"0123456789"] * 15
        await running

    run(work)


def test_channel_takes_items_from_threads() -> None:
    async def work(workers: Workers) -> None:
        channel: Channel[int] = Channel(8)

        async def produce() -> None:
            await asyncio.gather(
                *[workers.threads.run(channel.put_nowait, number) for number in range(50)]
            )
            channel.close()

        running = workers.spawn(produce)
        assert sorted([item async for item in channel]) == list(range(50))
        await running
        with pytest.raises(RuntimeError, match="closed"):
            channel.put_nowait(1)

    run(work)


def test_channel_raises_the_producers_error_after_its_items() -> None:
    async def work(workers: Workers) -> None:
        channel: Channel[int] = Channel()

        async def produce() -> None:
            await channel.put(1)
            channel.close(LookupError("mine"))

        await workers.spawn(produce)
        assert await channel.ready() == [1]
        with pytest.raises(LookupError):
            await channel.ready()

    run(work)


def test_cancelled_channel_lets_its_producer_go_on() -> None:
    async def work(workers: Workers) -> None:
        channel: Channel[int] = Channel(1)
        put = 0

        async def produce() -> int:
            nonlocal put
            for number in range(10):
                await channel.put(number)
                put += 1
            return put

        running = workers.spawn(produce)
        await until(lambda: put == 1)
        channel.cancel()
        assert await running == 10
        assert await channel.ready() == []
        assert channel.cancelled

    run(work)


def test_flood_of_items_is_given_in_parts_between_which_others_have_their_turn() -> None:
    async def take() -> tuple[list[int], int]:
        channel: Channel[int] = Channel()
        for n in range(20_000):
            channel.put_nowait(n)
        channel.close()
        taken: list[int] = []
        turns = [0]

        def other() -> None:
            turns.append(len(taken))
            loop.call_soon(other)

        loop = asyncio.get_running_loop()
        loop.call_soon(other)
        while items := await channel.ready():
            taken += items
        return taken, len(set(turns))

    taken, turns = asyncio.run(take())
    assert taken == list(range(20_000))
    assert turns >= 4


@pytest.mark.parametrize("ending", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt])
def test_generator_that_breaks_off_elsewhere_is_an_error_and_no_end(
    ending: type[BaseException],
) -> None:
    async def pieces() -> AsyncIterator[str]:
        yield "half"
        raise ending

    async def work(workers: Workers) -> None:
        said = []
        with pytest.raises(RuntimeError, match=ending.__name__):
            async for piece in UserCode(workers).items(pieces()):
                said.append(piece)
        assert said == ["half"]

    run(work)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_iterator_of_long_pieces_is_no_more_than_a_few_ahead(kind: str) -> None:
    made = 0

    def plain() -> Iterator[str]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield "x" * 2**20

    async def pieces() -> AsyncIterator[str]:
        for piece in plain():
            yield piece

    async def work(workers: Workers) -> None:
        taken = UserCode(workers).items(plain() if kind == "plain" else pieces())
        assert len(await anext(taken)) == 2**20
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await until(lambda: made > 4)
        assert 1 + len([piece async for piece in taken]) == made == 100

    run(work)


def fail() -> None:
    raise ValueError("in the child")


def forking(how: Callable[[], object]) -> tuple[int, ...]:
    """The process ids of the child, which runs `how`, and of its parent."""
    pid = os.fork()
    if pid == 0:
        how()
    return pid, os.getppid()


async def status(pid: int) -> int:
    """The exit status of the child; it is killed if it does not end."""
    ended: list[int] = []

    def wait() -> bool:
        ended[:] = os.waitpid(pid, os.WNOHANG)
        return ended[0] == pid

    try:
        async with asyncio.timeout(DEADLINE / 2):
            await until(wait)
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        await until(wait)
    return os.waitstatus_to_exitcode(ended[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_process_that_awaits_after_its_fork_does_nothing_else_that_its_loop_has_to_do() -> None:
    async def work(workers: Workers) -> None:
        reads, writes = os.pipe()

        async def fork() -> int:
            asyncio.get_running_loop().call_soon(os.write, writes, b"done ")
            pid, _ = forking(lambda: None)
            await asyncio.sleep(0)
            return pid

        try:
            assert await status(await workers.spawn(fork)) == 0
            assert os.read(reads, 100) == b"done "
        finally:
            os.close(reads)
            os.close(writes)

    run(work)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("how", "code"),
    [(lambda: sys.exit(3), 3), (lambda: sys.exit("no"), 1), (lambda: None, 0), (fail, 1)],
)
@pytest.mark.parametrize("kind", ["async", "awaiting", "plain", "pieces", "first step"])
def test_process_that_user_code_forks_ends_where_it_comes_back(
    kind: str, how: Callable[[], object], code: int
) -> None:
    async def work(workers: Workers) -> None:
        user_code = UserCode(workers)

        async def fork() -> tuple[int, ...]:
            pids = forking(how)
            if kind == "awaiting":
                await asyncio.sleep(0)
            return pids

        async def turn() -> tuple[int, ...]:
            called: tuple[int, ...] = await user_code.call(fork)
            return called

        match kind:
            case "plain":
                pid, _ = await user_code.call(forking, how)
            case "pieces":
                [(pid, _)] = [pids async for pids in user_code.items(map(forking, [how]))]
            case "first step":
                pid, _ = await workers.spawn(turn)
            case _:
                pid, _ = await workers.spawn(fork)
        assert await status(pid) == code
        names = {await workers.spawn(thread_name) for _ in range(20)}
        assert names == {"sayso-home"}

    run(work)


def test_async_generators_that_were_left_open_are_closed_with_their_loop() -> None:
    ended: list[str] = []
    kept: list[AsyncIterator[int]] = []

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append(f"{name} on {threading.current_thread().name}")

    async def begin() -> int:
        kept.append(numbers("left open"))
        async for _ in numbers("read to its end"):
            pass
        return await anext(kept[0])

    async def work(workers: Workers) -> None:
        await workers.spawn(begin)
        assert ended == ["read to its end on sayso-home"]
        home = workers.home
        assert home is not None
        # Ended ones must be forgotten: a service runs for months.
        gc.collect()
        assert [one() for one in home._generators] == kept

    run(work)
    assert ended == ["read to its end on sayso-home", "left open on sayso-home"]


@pytest.mark.parametrize("loops", [None, 1])
@pytest.mark.parametrize("quick", [1, 20])
def test_end_of_a_turn_is_known_while_the_next_one_blocks_the_loop(
    loops: int | None, quick: int
) -> None:
    """They are taken from the queue together, and the server is woken once for all of them."""
    gate = threading.Event()

    async def blocks() -> bool:
        return gate.wait(DEADLINE)

    async def work(workers: Workers) -> None:
        turns = [workers.spawn(thread_name) for _ in range(quick)]
        blocked = workers.spawn(blocks)
        assert [await turn for turn in turns] == ["sayso-home"] * quick
        assert not blocked.done()
        gate.set()
        assert await blocked

    run(work, loops=loops)


def test_call_that_is_cancelled_while_it_waits_for_a_thread_never_runs() -> None:
    async def work() -> list[str]:
        async with Workers(threads=1) as workers:
            code, ran, free = UserCode(workers), list[str](), threading.Event()

            def hold() -> None:
                assert free.wait(60)
                ran.append("held")

            holding = asyncio.ensure_future(code.call(hold))
            waiting = asyncio.ensure_future(code.call(ran.append, "waited"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting})
            free.set()
            await holding
            await code.call(ran.append, "last")
            return ran

    assert asyncio.run(work()) == ["held", "last"]
