"""Streams kept by other processes of this machine: each answers on a socket in the state folder.

Writing every line of every kept stream into a store would cost a hundred times as much as keeping
it in memory. A reader that reached the wrong process is connected to the one with its stream. A
frame is sent over the socket after its length; a length of 0 ends a stream that was sent
completely.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sayso import Host, StreamGone

logger = logging.getLogger("sayso.resume")
_LONGEST = 100
"""Most bytes that the path of a socket may have on every system."""
_PATIENCE = 5.0
"""Seconds for a neighbour to say whether it has a stream."""
_END = (0).to_bytes(4)
Json = dict[str, Any]


class Neighbours:
    """The processes that serve the same agent from the same state folder."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._own = host.state_dir / "streams" / f"{secrets.token_hex(4)}.sock"

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Within the block, answer the neighbours, and find their streams."""
        if not hasattr(asyncio, "start_unix_server") or len(bytes(self._own)) > _LONGEST:
            logger.warning("streams are read on in their own process alone: no socket fits here")
            yield
            return
        self._own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        server = await asyncio.start_unix_server(self._answer, self._own)
        self._host.buffers.elsewhere = self.find
        try:
            yield
        finally:
            self._host.buffers.elsewhere = None
            server.close()
            self._own.unlink(missing_ok=True)

    async def find(self, owner: str | None, id: str) -> "Remote | None":
        """The stream that a neighbour keeps of this owner and id; a running one is preferred to an
        ended one."""
        found: Remote | None = None
        for path in sorted(self._own.parent.glob("*.sock")):
            if path == self._own:
                continue
            asked = Remote(path, owner, id)
            if await asked.is_there() and (found is None or asked.running):
                found = asked
        return found

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            wanted = json.loads(await reader.readline())
            buffer = self._host.buffers.get(wanted["owner"], wanted["id"])
            running = buffer is not None and buffer.running
            _say(writer, {"found": buffer is not None, "running": running})
            if buffer is not None and wanted["after"] is not None:
                await _send(writer, buffer.read(wanted["after"]))
        except (OSError, ValueError) as error:
            logger.debug("a neighbour has left", exc_info=error)
        finally:
            writer.close()


class Remote:
    """The stream of one turn, kept by a neighbour."""

    running = False

    def __init__(self, path: Path, owner: str | None, id: str) -> None:
        self._path = path
        self._wanted: Json = {"owner": owner, "id": id}

    async def is_there(self) -> bool:
        """Whether the neighbour has it; the socket of a dead process is removed."""
        try:
            async with asyncio.timeout(_PATIENCE):
                _, writer, said = await self._asked(None)
        except ConnectionRefusedError:
            self._path.unlink(missing_ok=True)
            return False
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
        reader, writer = await asyncio.open_unix_connection(self._path)
        _say(writer, {**self._wanted, "after": after})
        return reader, writer, json.loads(await reader.readline())


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
