"""Streams kept by other processes: those of this machine answer on sockets in the state folder,
those of other machines on a port.

Writing every line of every kept stream into PostgreSQL would cost some hundred times as much as
keeping it in memory. A reader that reached the wrong process is connected to the one with its
stream. A frame is sent after its length; a length of 0 ends a stream that was sent completely.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sayso import Host, StreamGone
from sayso_resume.machines import Machines

logger = logging.getLogger("sayso.resume")
_LONGEST = 100
"""Most bytes that the path of a socket may have on every system."""
_PATIENCE = 5.0
"""Seconds for a neighbour to say whether it has a stream."""
_END = (0).to_bytes(4)
Json = dict[str, Any]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Neighbours:
    """The other processes that serve the same agent: those with the same state folder, and those of
    the other `machines`."""

    def __init__(self, host: Host, machines: Machines | None = None) -> None:
        self._host = host
        self._machines = machines
        self._own = host.state_dir / "streams" / f"{secrets.token_hex(4)}.sock"

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Within the block, answer the neighbours, and find their streams."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._answering_near())
            if self._machines is not None:
                await stack.enter_async_context(self._machines.answering(self._answer_far))
            self._host.buffers.elsewhere = self.find
            stack.callback(setattr, self._host.buffers, "elsewhere", None)
            yield

    @asynccontextmanager
    async def _answering_near(self) -> AsyncIterator[None]:
        if not hasattr(asyncio, "start_unix_server") or len(bytes(self._own)) > _LONGEST:
            logger.warning("streams are read on in their own process alone: no socket fits here")
            yield
            return
        self._own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        server = await asyncio.start_unix_server(self._answer_near, self._own)
        try:
            yield
        finally:
            server.close()
            self._own.unlink(missing_ok=True)

    async def find(self, owner: str | None, id: str) -> "Remote | None":
        """The stream that a neighbour keeps of this owner and id; a running one is preferred to an
        ended one."""
        near = await self._near(owner, id)
        if self._machines is None or (near is not None and near.running):
            return near
        far = [Remote(one, owner, id) for one in await self._machines.connections()]
        there = await asyncio.gather(*(one.is_there() for one in far))
        found = [one for one, has in zip(far, there, strict=True) if has]
        return max(filter(None, [near, *found]), key=lambda one: one.running, default=None)

    async def _near(self, owner: str | None, id: str) -> "Remote | None":
        found: Remote | None = None
        for path in sorted(self._own.parent.glob("*.sock")):
            if path == self._own:
                continue
            asked = Remote(partial(_connected, path), owner, id)
            if await asked.is_there() and (found is None or asked.running):
                found = asked
        return found

    async def _answer_near(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._answer(reader, writer, far=False)

    async def _answer_far(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._answer(reader, writer, far=True)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, far: bool
    ) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                wanted = json.loads(await reader.readline())
            owner, id_, after = wanted["owner"], wanted["id"], wanted["after"]
            own = self._host.buffers.get(owner, id_)
            # Another machine cannot tell which process of this one keeps the stream.
            looks = far and (own is None or not own.running)
            buffer = (await self._near(owner, id_) if looks else None) or own
            running = buffer is not None and buffer.running
            _say(writer, {"found": buffer is not None, "running": running})
            if buffer is not None and after is not None:
                await _send(writer, buffer.read(after))
        except (OSError, ValueError) as error:
            logger.debug("a neighbour has left", exc_info=error)
        finally:
            writer.close()


class Remote:
    """The stream of one turn, kept by a neighbour."""

    running = False

    def __init__(
        self, connect: Callable[[], Awaitable[Streams]], owner: str | None, id: str
    ) -> None:
        self._connect = connect
        self._wanted: Json = {"owner": owner, "id": id}

    async def is_there(self) -> bool:
        """Whether the neighbour has it."""
        try:
            async with asyncio.timeout(_PATIENCE):
                _, writer, said = await self._asked(None)
        except (OSError, ValueError):
            return False
        writer.close()
        self.running = said["running"]
        return bool(said["found"])

    async def read(self, after: int = 0) -> AsyncGenerator[list[bytes], None]:
        """The frames after the first `after`, as they arrive. Raises ConnectionError if they break
        off, StreamGone if one of them is not kept any more."""
        reader, writer, _ = await self._asked(after)
        try:
            if not json.loads(await reader.readline())["kept"]:
                raise StreamGone
            while length := int.from_bytes(await reader.readexactly(4)):
                yield [await reader.readexactly(length)]
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the process that runs the turn has ended") from error
        finally:
            writer.close()

    async def _asked(
        self, after: int | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Json]:
        reader, writer = await self._connect()
        try:
            _say(writer, {**self._wanted, "after": after})
            return reader, writer, json.loads(await reader.readline())
        except BaseException:
            writer.close()
            raise


async def _connected(path: Path) -> Streams:
    """A connection to a neighbour; the socket of a dead process is removed."""
    try:
        return await asyncio.open_unix_connection(path)
    except ConnectionRefusedError:
        await asyncio.to_thread(path.unlink, missing_ok=True)
        raise


def _say(writer: asyncio.StreamWriter, said: Json) -> None:
    writer.write(json.dumps(said).encode() + b"\n")


async def _send(writer: asyncio.StreamWriter, pieces: AsyncGenerator[list[bytes], None]) -> None:
    first: list[bytes] = []
    try:
        with suppress(StopAsyncIteration):
            first = await anext(pieces)
    except StreamGone:
        _say(writer, {"kept": False})
        return
    _say(writer, {"kept": True})
    _put(writer, first)
    async for frames in pieces:
        _put(writer, frames)
        await writer.drain()
    writer.write(_END)
    await writer.drain()


def _put(writer: asyncio.StreamWriter, frames: list[bytes]) -> None:
    for frame in frames:
        writer.write(len(frame).to_bytes(4) + frame)
