"""MCP over stdin and stdout, kept clean whatever the agent's code prints, forks or floods.

The wire lives on private descriptors that no child inherits; descriptor 0 is then empty and
descriptor 1 is stderr, until the process ends: a late `print` cannot reach the client either.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from assent_mcp.service import Service

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


async def serve_stdio(service: Service, wire: StdioWire) -> None:
    """Serve one client until its end of the wire closes."""
    server = service.server(one_session=True)
    async with wire.streams(service.host.config.limits.body) as (read, write):
        await server.run(read, write, server.create_initialization_options())


class StdioWire:
    """The two private descriptors. Reading and writing have a thread each, since either may be
    a file, a pipe or a terminal, and may block for ever."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing

    @classmethod
    def claim(cls) -> StdioWire:
        """Take stdin and stdout away from everybody else in this process, for good."""
        wire = cls(os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return wire

    @asynccontextmanager
    async def streams(self, limit: int) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        """The messages that come, and where to put those that go; `limit` is bytes a line."""
        into, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        write, out = anyio.create_memory_object_stream[SessionMessage](16)
        reader = _Reader(self.reading, into, limit)
        writer = _Writer(self.writing)
        reader.start()
        writing = asyncio.create_task(writer.drain(out))
        try:
            yield read, write
            await write.aclose()
            await writing
        finally:
            reader.stop()
            writing.cancel()
            await asyncio.wait([writing])
            writer.stop()
            for stream in (into, read, write, out):
                stream.close()


class _Reader:
    """Reads lines on a thread and sends them as messages, no faster than they are taken."""

    def __init__(
        self, descriptor: int, into: MemoryObjectSendStream[SessionMessage | Exception], limit: int
    ) -> None:
        self._descriptor = descriptor
        self._into = into
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._sending: Future[None] | None = None
        self._stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="mcp-stdin", daemon=True).start()

    def stop(self) -> None:
        self._stopped = True
        if self._sending is not None:
            self._sending.cancel()

    def _run(self) -> None:
        try:
            self._read()
        except OSError as error:
            broken = error
            self._hand(lambda: self._into.send(broken))
        self._hand(self._into.aclose)

    def _read(self) -> None:
        line = bytearray()
        too_long = False
        while not self._stopped and (chunk := os.read(self._descriptor, 65536)):
            first, *others = chunk.split(b"\n")
            line += first
            for begin in others:
                if not too_long and line.strip():
                    self._give(bytes(line))
                line, too_long = bytearray(begin), False
            if len(line) > self._limit and not too_long:
                too_long = True
                self._hand(lambda: self._into.send(ValueError("the line is too long")))
            if too_long:
                line.clear()

    def _give(self, line: bytes) -> None:
        item: SessionMessage | Exception
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            item = SessionMessage(message)
        except ValueError as error:
            item = error
        self._hand(lambda: self._into.send(item))

    def _hand(self, work: Callable[[], Any]) -> None:
        """Run `work` on the loop and wait for it; nothing once the loop wants no more."""
        if self._stopped or self._loop.is_closed():
            return

        async def run() -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await work()

        with suppress(Exception):
            self._sending = asyncio.run_coroutine_threadsafe(run(), self._loop)
            self._sending.result()


class _Writer:
    """Writes messages on a thread, one whole line at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: queue.SimpleQueue[tuple[bytes, Callable[[], None]] | None] = (
            queue.SimpleQueue()
        )
        self._loop = asyncio.get_running_loop()
        self._broken = False
        threading.Thread(target=self._run, name="mcp-stdout", daemon=True).start()

    async def drain(self, out: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write what comes until its stream ends."""
        async for message in out:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            written = asyncio.Event()
            self._lines.put((line.encode() + b"\n", written.set))
            await written.wait()

    def stop(self) -> None:
        self._lines.put(None)

    def _run(self) -> None:
        while (item := self._lines.get()) is not None:
            line, done = item
            if not self._broken:
                self._write(line)
            # The loop may be gone when a blocked write ends.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._broken = True
