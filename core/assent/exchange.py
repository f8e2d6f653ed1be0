"""Chat requests that the listener answers without a task of their own.

A task, its future and the coroutines of ASGI around a turn cost as much as the turn, and each of
their hand-overs is one more round of the event loop. Here the parsed request goes to the endpoint
at once, and callbacks write what comes back. All that is not plain about a request (a body in
pieces, pipelining, a foreign host, `Expect`, …) takes the way through ASGI, which says the same
byte for byte (`tests/test_exchange.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from assent.departure import A_MOMENT, soon
from assent.errors import Busy
from assent.events import reply_json
from assent.http import JSON, ChatEndpoint, Headers
from assent.ndjson import NDJSON
from assent.output import Gathered
from assent.streams import STOPPED, Begun, EventStream

if TYPE_CHECKING:
    from uvicorn.protocols.http.flow_control import FlowControl
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from assent.corked import Corked

logger = logging.getLogger("assent.server")


class Connection(Protocol):
    """The connection of an exchange: the listener's protocol."""

    transport: Corked
    flow: FlowControl


class Exchange:
    """One request and its reply on a connection."""

    __slots__ = ("_begun", "_connection", "_endpoint", "_gathered", "_stream", "cycle")

    def __init__(
        self, connection: Connection, cycle: RequestResponseCycle, endpoint: ChatEndpoint
    ) -> None:
        self._connection = connection
        self.cycle = cycle
        self._endpoint = endpoint
        self._begun: Begun | None = None
        self._stream: EventStream | None = None

    def begin(self) -> None:
        """Begin the turn that the request asks for, or refuse it."""
        endpoint, cycle = self._endpoint, self.cycle
        body, cycle.body = bytes(cycle.body), bytearray()
        try:
            request, caller = endpoint.read(body, cycle.scope)  # type: ignore[arg-type]
            if endpoint.streams:
                self._stream = endpoint.host.stream(request, caller)
                soon().add(self)
                self._stream.when_ready(self._more)
            else:
                self._gathered = Gathered()
                self._begun = endpoint.host.begin(request, caller, self._gathered)
                self._begun.running.on_end(self._ended)
        except Exception as error:
            self._refuse(error)

    def look(self) -> None:
        """Send the head of a stream whose first events take their time."""
        if self._stream is not None and not self.cycle.response_started:
            self._write(self._head(200, NDJSON, chunked=True))

    def read_on(self) -> None:
        """The client has read what was written to it."""
        if self._stream is not None:
            self._more()

    def left(self) -> None:
        """The client has gone, perhaps with the last byte of an approval; that is carried out."""
        asyncio.get_running_loop().call_later(A_MOMENT, self._end)

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.drop()
        elif self._begun is not None and self._endpoint.cancels:
            self._begun.running.cancel()

    def _ended(self) -> None:
        """The turn of a whole reply has ended."""
        assert self._begun is not None
        error = self._endpoint.host.failure_of(self._begun)
        if isinstance(error, asyncio.CancelledError):
            if not self.cycle.disconnected:
                self._refuse(Busy(STOPPED))
            return
        try:
            if error is not None:
                raise error
            self._respond(200, reply_json(self._gathered.events))
        except Exception as failure:
            self._refuse(failure)

    def _refuse(self, error: Exception) -> None:
        self._respond(*self._endpoint.refusal(error))

    def _respond(self, status: int, body: bytes, headers: Headers = ()) -> None:
        length = (b"content-length", str(len(body)).encode())
        self._write(self._head(status, [JSON, length, *headers]) + body)
        self._complete()

    def _more(self) -> None:
        """Send what waits of a stream; unless that was the end, come back for more."""
        stream = self._stream
        if stream is None or self._connection.flow.write_paused:
            return
        try:
            lines, more = stream.lines_now()
        except Exception:
            logger.exception("a stream broke off")
            self._connection.transport.close()
            return
        parts: list[bytes] = []
        if not self.cycle.response_started and (lines or not more):
            parts.append(self._head(200, NDJSON, chunked=True))
        if lines:
            parts += (b"%x\r\n" % len(lines), lines, b"\r\n")
        if not more:
            parts.append(b"0\r\n\r\n")
        if parts:
            self._write(b"".join(parts))
        if more:
            stream.when_ready(self._more)
        else:
            self._stream = None
            stream.drop()
            self._complete()

    def _head(self, status: int, headers: Headers, *, chunked: bool = False) -> bytes:
        """The head of the response, as uvicorn writes it."""
        cycle = self.cycle
        cycle.response_started = True
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        if chunked:
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        if not self.cycle.disconnected:
            self._connection.transport.write_now(data)

    def _complete(self) -> None:
        cycle = self.cycle
        if not cycle.disconnected:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                self._connection.transport.close()
            cycle.on_response()
        # It holds the connection, which holds the cycle.
        cycle.on_response = _nothing


def _nothing(*_: Any) -> None:
    pass
