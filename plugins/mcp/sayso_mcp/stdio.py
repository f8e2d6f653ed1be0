"""MCP over stdin and stdout, kept clean whatever the agent's code prints, forks or floods.

The protocol uses private descriptors that no child inherits. Descriptor 0 is then empty and
descriptor 1 is stderr, until the process ends: even a late `print` cannot reach the client.
"""

from __future__ import annotations

import asyncio
import os
import queue
import select
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from sayso import PluginError
from sayso_mcp.refusals import PART, message_of, refusal, too_long
from sayso_mcp.service import Service

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


_LOOK = 0.02


async def serve_stdio(service: Service, wire: StdioWire) -> None:
    """Serve one client until it closes its end and all its earlier requests are answered."""
    server = service.server(one_session=True)
    async with wire.streams(service.host.config.limits.body) as (read, write):
        await server.run(read, write, server.create_initialization_options())


class StdioWire:
    """The two private descriptors. Reading and writing have a thread each, since either may be a
    file, a pipe or a terminal, and may block for ever."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing
        self.ended = False
        """Whether the client has closed its end of stdin."""

    @classmethod
    def claim(cls) -> StdioWire:
        """Take stdin and stdout away from everything else in this process, for good.

        Raises PluginError if one of them is closed: its number may belong to another file by now.
        """
        if sys.__stdin__ is None or sys.__stdout__ is None:
            raise PluginError(
                "plugin 'mcp': the transport 'stdio' needs stdin and stdout, and one of them is "
                "closed; let a client start the process, or set plugin.mcp.transport"
            )
        wire = cls(os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=wire._close_in_child)
        return wire

    def _close_in_child(self) -> None:
        """Close the descriptors in a forked child: otherwise the client would wait for the child to
        end too."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for mine in (self.reading, self.writing):
            # Replaced rather than closed: a closed number would be reused for another file.
            os.dup2(nothing, mine, inheritable=False)
        os.close(nothing)

    @asynccontextmanager
    async def streams(self, limit: int) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        """The incoming messages, and the stream for outgoing ones; `limit` is in bytes per line."""
        into, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        write, out = anyio.create_memory_object_stream[SessionMessage](16)
        asked = _Unanswered()
        reader = _Reader(self.reading, into, write, limit, asked, self._settle)
        writer = _Writer(self.writing, asked)
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

    async def _settle(self, asked: _Unanswered) -> None:
        """After the end of stdin: wait for the calls whose answers can still be sent.

        A question to the client cannot be answered any more, so its call is not waited for.
        """
        self.ended = True
        while asked.calls - set(asked.questions.values()):
            if _is_hung_up(self.writing):
                return
            await asyncio.sleep(_LOOK)


def _is_hung_up(descriptor: int) -> bool:
    """Whether the reader of `descriptor` has closed its end."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class _Unanswered:
    """The client's calls without an answer, and for each open question to the client its call."""

    def __init__(self) -> None:
        self.calls: set[types.RequestId] = set()
        self.questions: dict[types.RequestId | None, types.RequestId | None] = {}

    def came(self, message: types.JSONRPCMessage) -> None:
        """Note a message from the client."""
        match message:
            case types.JSONRPCRequest(id=id_):
                self.calls.add(id_)
            case types.JSONRPCNotification():
                # A cancelled request gets no answer.
                self.calls.discard(_cancelled(message))
            case types.JSONRPCResponse(id=id_) | types.JSONRPCError(id=id_):
                self.questions.pop(id_, None)

    def goes(self, sent: SessionMessage) -> None:
        """Note a question before it is sent: its answer may arrive at once."""
        if isinstance(sent.message, types.JSONRPCRequest):
            call = getattr(sent.metadata, "related_request_id", None)
            self.questions[sent.message.id] = call

    def went(self, sent: SessionMessage) -> None:
        """Note any other message that was sent to the client."""
        match sent.message:
            case types.JSONRPCNotification():
                self.questions.pop(_cancelled(sent.message), None)
            case types.JSONRPCResponse(id=id_) | types.JSONRPCError(id=id_):
                self.calls.discard(id_)


def _cancelled(message: types.JSONRPCNotification) -> Any:
    """The request that the message cancels; None if it cancels none."""
    id_ = (message.params or {}).get("requestId")
    is_one = message.method == "notifications/cancelled" and isinstance(id_, int | str)
    return id_ if is_one else None


class _Reader:
    """Reads lines on a thread and passes them on as messages, no faster than they are consumed."""

    def __init__(
        self,
        descriptor: int,
        into: MemoryObjectSendStream[SessionMessage | Exception],
        back: Outgoing,
        limit: int,
        asked: _Unanswered,
        at_end: Callable[[_Unanswered], Awaitable[None]],
    ) -> None:
        self._descriptor = descriptor
        self._into = into
        self._back = back
        self._limit = limit
        self._asked = asked
        self._at_end = at_end
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
        self._hand(lambda: self._at_end(self._asked))
        self._hand(self._into.aclose)

    def _read(self) -> None:
        line, begin = bytearray(), b""
        while not self._stopped and (chunk := self._chunk()):
            first, *others = chunk.split(b"\n")
            line += first
            for next_ in others:
                self._give(bytes(line), begin)
                line, begin = bytearray(next_), b""
            if len(line) > self._limit and not begin:
                begin = bytes(line[:PART])
            if begin:
                del line[:-PART]
        if not self._stopped:
            self._give(bytes(line), begin)

    def _chunk(self) -> bytes:
        """The next bytes. Another process that shares stdin may have made it non-blocking."""
        while True:
            try:
                return os.read(self._descriptor, 65536)
            except BlockingIOError:
                select.select([self._descriptor], [], [])

    def _give(self, line: bytes, begin: bytes) -> None:
        """Pass on the line as a message; with a `begin` it is the end of a line that is too
        long."""
        if begin:
            self._refuse(too_long(begin, line, self._limit))
            return
        if not line.strip():
            return
        try:
            message = message_of(line)
        except ValueError:
            self._refuse(refusal(line))
            return
        self._asked.came(message)
        self._hand(lambda: self._into.send(SessionMessage(message)))

    def _refuse(self, answer: SessionMessage | None) -> None:
        if answer is not None:
            self._hand(lambda: self._back.send(answer))

    def _hand(self, work: Callable[[], Any]) -> None:
        """Run `work` on the loop and wait for it; do nothing once the loop is closing."""
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

    def __init__(self, descriptor: int, asked: _Unanswered) -> None:
        self._descriptor = descriptor
        self._asked = asked
        self._lines: queue.SimpleQueue[tuple[bytes, Callable[[], None]] | None] = (
            queue.SimpleQueue()
        )
        self._loop = asyncio.get_running_loop()
        self._broken = False
        threading.Thread(target=self._run, name="mcp-stdout", daemon=True).start()

    async def drain(self, out: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write messages until their stream ends."""
        async for message in out:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            written = asyncio.Event()
            self._asked.goes(message)
            self._lines.put((line.encode() + b"\n", written.set))
            await written.wait()
            self._asked.went(message)

    def stop(self) -> None:
        self._lines.put(None)

    def _run(self) -> None:
        while (item := self._lines.get()) is not None:
            line, done = item
            if not self._broken:
                self._write(line)
            # The loop may be closed when a blocked write ends.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._written(rest) :]
        except OSError:
            self._broken = True

    def _written(self, rest: memoryview) -> int:
        try:
            return os.write(self._descriptor, rest)
        except BlockingIOError:
            select.select([], [self._descriptor], [])
            return 0
