"""Server-Sent Events: frames, comments in a silence, and a client that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from sayso import sse_frame, sse_reply
from sayso.http import sse


class Client:
    """One end of an ASGI connection: `sent` are the received parts, `leave` disconnects it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.more = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.more.set()

    async def got(self, part: bytes, times: int = 1) -> None:
        """Return when it has received `part` this many times."""
        while self.body.count(part) < times:
            self.more.clear()
            await self.more.wait()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def test_a_frame_has_lines_that_end_with_lf_alone() -> None:
    assert sse_frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert sse_frame(b"{}", "named") == b"event: named\ndata: {}\n\n"


def test_a_comment_goes_first_and_in_each_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "SILENCE", 0.01)

    async def work() -> None:
        client = Client()
        silent = asyncio.Event()

        async def frames() -> AsyncGenerator[bytes, None]:
            yield sse_frame(b"1")
            await silent.wait()
            yield sse_frame(b"2")

        reply = asyncio.ensure_future(sse_reply(frames(), client.receive, client.send))
        await client.got(b": \n\n", 3)
        silent.set()
        await reply
        assert client.sent[0]["status"] == 200
        assert client.body.startswith(b": \n\ndata: 1\n\n: \n\n")
        assert client.body.endswith(b"data: 2\n\n") and client.sent[-1]["more_body"] is False

    asyncio.run(work())


def test_frames_are_ended_where_they_wait_when_the_client_leaves() -> None:
    async def work() -> None:
        client = Client()
        ended = asyncio.Event()

        async def frames() -> AsyncGenerator[bytes, None]:
            try:
                yield sse_frame(b"1")
                await asyncio.sleep(600)
            finally:
                ended.set()

        reply = asyncio.ensure_future(sse_reply(frames(), client.receive, client.send))
        await client.got(b"data: 1")
        client.left.set()
        await reply
        assert ended.is_set()

    asyncio.run(work())


def test_a_failure_of_the_frames_passes() -> None:
    async def work() -> None:
        client = Client()

        async def frames() -> AsyncGenerator[bytes, None]:
            yield sse_frame(b"1")
            raise ValueError("no more")

        with pytest.raises(ValueError, match="no more"):
            await sse_reply(frames(), client.receive, client.send)

    asyncio.run(work())
