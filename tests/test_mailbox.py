"""Calls posted to an event loop from other threads, whatever wakes it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

import pytest
import uvloop

from sayso.workers.mailbox import Mailbox, mailbox
from slow import few

DEADLINE = 120.0
MAKERS = [asyncio.new_event_loop, uvloop.new_event_loop]
name: ContextVar[str] = ContextVar("name", default="nobody")

pytestmark = pytest.mark.parametrize("make", MAKERS, ids=["asyncio", "uvloop"])
Make = Callable[[], asyncio.AbstractEventLoop]


def test_calls_of_several_threads_all_run_in_order_on_the_loop(make: Make) -> None:
    ran: dict[int, list[int]] = {number: [] for number in range(4)}
    where: set[int] = set()

    async def main() -> None:
        box, all_ran = mailbox(), asyncio.Event()

        def call(thread: int, number: int) -> None:
            where.add(threading.get_ident())
            ran[thread].append(number)
            if sum(map(len, ran.values())) == 4 * 5_000:
                all_ran.set()

        def post(thread: int) -> None:
            chance = random.Random(thread)
            for number in range(5_000):
                box.post(lambda n=number: call(thread, n), last=chance.random() < 0.5)  # type: ignore[misc]

        threads = [threading.Thread(target=post, args=(number,)) for number in ran]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(DEADLINE):
            await all_ran.wait()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert where == {threading.get_ident()}

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())
    assert all(numbers == list(range(5_000)) for numbers in ran.values())


@pytest.mark.parametrize("last", [False, True])
def test_sleeping_loop_is_woken_for_each_call_in_a_context_of_its_own(
    make: Make, last: bool
) -> None:
    async def main() -> None:
        box, seen = mailbox(), []
        name.set("the loop's")

        def post(came: asyncio.Event) -> None:
            name.set("the poster's")
            box.post(lambda: seen.append(name.get()) or came.set(), last=last)  # type: ignore[func-returns-value]

        for _ in range(20):
            came = asyncio.Event()
            threading.Thread(target=post, args=(came,)).start()
            async with asyncio.timeout(DEADLINE):
                await came.wait()
        assert seen == ["nobody"] * 20

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())


def test_failing_call_is_logged_and_the_next_one_runs(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        box = mailbox()
        for _ in range(3):
            came = asyncio.Event()
            box.post(lambda: 1 / 0, last=True)
            box.post(came.set, last=True)
            async with asyncio.timeout(DEADLINE):
                await came.wait()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())
    assert caplog.text.count("ZeroDivisionError") == 3


def test_loop_without_a_descriptor_to_be_had_is_woken_all_the_same(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def eventfd(value: int, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("os.eventfd", eventfd)

    async def main() -> None:
        box = mailbox()
        for _ in range(3):
            came = asyncio.Event()
            threading.Thread(target=box.post, args=(came.set,), kwargs={"last": True}).start()
            async with asyncio.timeout(DEADLINE):
                await came.wait()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())


def test_loop_that_watches_no_further_descriptor_keeps_none_of_them(make: Make) -> None:
    class Full:
        """The running loop, which can watch no further descriptor."""

        def __init__(self) -> None:
            self.is_closed = asyncio.get_running_loop().is_closed
            self.call_soon_threadsafe = asyncio.get_running_loop().call_soon_threadsafe

        def add_reader(self, *args: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    async def main() -> None:
        full = Full()
        box = Mailbox(full)  # type: ignore[arg-type]
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            came = asyncio.Event()
            box.post(came.set, last=True)
            async with asyncio.timeout(DEADLINE):
                await came.wait()
        assert len(os.listdir("/proc/self/fd")) == before

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())


@pytest.mark.parametrize("last", few([False, True], True))
def test_closed_loop_drops_what_is_posted_and_gives_its_descriptors_back(
    make: Make, last: bool
) -> None:
    boxes: list[Mailbox] = []
    ran: list[bool] = []

    async def main() -> None:
        came = asyncio.Event()
        mailbox().post(came.set, last=True)
        await came.wait()
        boxes.append(mailbox())

    def round_() -> int:
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(main())
        for _ in range(3):
            boxes[-1].post(lambda: ran.append(True), last=last)
        boxes.clear()
        mailbox_of_another_loop_is_remembered(make)
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())) if os.path.exists("/proc") else 0

    before = [round_() for _ in range(2)][-1]
    assert [round_() for _ in range(3)][-1] <= before
    assert not ran


def mailbox_of_another_loop_is_remembered(make: Make) -> None:
    """Each thread keeps the last mailbox that it used: make that a new one."""

    async def main() -> None:
        mailbox()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())
