"""A turn's frames are kept for their owner, who may read them again, and for nobody else."""

from __future__ import annotations

import asyncio

import pytest

from sayso.errors import StreamGone, StreamTaken
from sayso.hosting import buffers
from sayso.hosting.buffers import Buffer, Buffers


async def read(buffer: Buffer, after: int = 0) -> list[bytes]:
    return [frame async for frames in buffer.read(after) for frame in frames]


def test_readers_get_what_was_sent_and_what_comes() -> None:
    async def work() -> None:
        buffer = Buffer()
        buffer.put(b"1", b"2")
        readers = [asyncio.ensure_future(read(buffer, after)) for after in (0, 1, 2, 5)]
        await asyncio.sleep(0)
        buffer.put(b"3")
        await asyncio.sleep(0)
        buffer.put(b"4")
        buffer.end()
        found = await asyncio.gather(*readers)
        assert found == [[b"1", b"2", b"3", b"4"], [b"2", b"3", b"4"], [b"3", b"4"], []]
        assert await read(buffer, 3) == [b"4"]

    asyncio.run(work())


def test_of_a_long_stream_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "BYTES", 10)

    async def work() -> None:
        buffer = Buffer()
        buffer.put(*(b"%4d" % n for n in range(100)))
        buffer.end()
        assert await read(buffer, 98) == [b"  98", b"  99"]
        with pytest.raises(StreamGone):
            await read(buffer, 97)

    asyncio.run(work())


def test_a_buffer_is_its_owners_alone() -> None:
    async def work() -> None:
        kept = Buffers()
        mine = kept.open("ann", "turn")
        assert kept.get("ann", "turn") is mine
        assert kept.get("bob", "turn") is None and kept.get(None, "turn") is None
        kept.open("bob", "turn")
        with pytest.raises(StreamTaken):
            kept.open("ann", "turn")

    asyncio.run(work())


def test_what_has_ended_goes_after_its_time_and_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        monkeypatch.setattr(buffers, "MOST", 2)
        kept = Buffers()
        running = kept.open(None, "running")
        for number in range(4):
            kept.open(None, f"{number}").end()
        assert [kept.get(None, f"{n}") is not None for n in range(4)] == [False, False, True, True]
        monkeypatch.setattr(buffers, "KEPT", -1.0)
        assert kept.get(None, "3") is None and kept.get(None, "running") is running

    asyncio.run(work())


def test_the_oldest_goes_where_all_together_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(buffers, "TOTAL", 25)
        kept = Buffers()
        for number in range(4):
            buffer = kept.open(None, f"{number}")
            buffer.put(b"ten bytes.")
            buffer.end()
        assert [kept.get(None, f"{n}") is not None for n in range(4)] == [False, False, True, True]

    asyncio.run(work())
