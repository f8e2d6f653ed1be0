"""Chat requests that the listener answers without a task of their own.

A task, its future and the coroutines of ASGI around a turn cost as much as the turn, and each step
between them takes one more round of the event loop. Here the parsed request goes to the endpoint at
once, and callbacks write the reply. A request that is unusual in any way (a body in chunks or a
long one, pipelining, a foreign host, `Expect`, …) goes through ASGI, which answers the same byte
for byte (`tests/test_exchange.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from sayso.errors import Busy, Stopping
from sayso.hosting.streams import EventStream
from sayso.http.disconnect import A_MOMENT, delayed_calls
from sayso.http.endpoints import JSON, ChatEndpoint, Headers
from sayso.http.ndjson import NDJSON
from sayso.listener.connections import CONTINUE, CorkedTransport
from sayso.turns.output import Gathered
from sayso.wire.chat import encode_lines
from sayso.wire.events import IntermittentUpdate
from sayso.workers.running import StartedTurn

logger = logging.getLogger("sayso.server")
SIGN_OF_LIFE = encode_lines([IntermittentUpdate("")])
TEXT = (b"content-type", b"text/plain; charset=utf-8")


class Connection(Protocol):
    """The operations needed of the connection that a request came on."""

    client: tuple[str, int] | None
    flow: FlowControl
    server_state: ServerState
    transport: CorkedTransport

    def on_response_complete(self) -> None:
        """Continue with the next request."""
        ...


class _NoEvent:
    def set(self) -> None:
        """Do nothing: no task waits for the event."""


class Exchange:
    """One request and its reply on a connection, in place of uvicorn's `RequestResponseCycle`.

    The public attributes up to `disconnected` are those that uvicorn's protocol reads.
    """

    __slots__ = (
        "_turn",
        "_body",
        "_connection",
        "_endpoint",
        "_gathered",
        "_principal",
        "_started",
        "_stream",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
    )

    message_event = _NoEvent()
    """The event by which uvicorn's protocol wakes the cycle's task."""

    def __init__(
        self,
        connection: Connection,
        endpoint: ChatEndpoint,
        principal: str | None,
        *,
        keep_alive: bool,
    ) -> None:
        self._connection = connection
        self._endpoint = endpoint
        self._principal = principal
        self._turn: StartedTurn | None = None
        self._stream: EventStream | None = None
        self._started = False
        self.keep_alive = keep_alive
        self.more_body = True
        self.response_complete = False
        self.disconnected = False
        self._body: bytes | bytearray = b""

    def take(self, piece: bytes) -> None:
        """Take a chunk of the body, usually the only one."""
        if not self._body:
            self._body = piece
            return
        # A list of two-byte chunks would take twenty times the memory that the limit allows.
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += piece

    def begin(self) -> None:
        """Start the turn that the request asks for, or refuse it; the body is complete."""
        endpoint, client = self._endpoint, self._connection.client
        body, self._body = bytes(self._body), b""
        try:
            request, caller = endpoint.read(body, self._principal, client[0] if client else None)
            if endpoint.streams:
                self._stream = endpoint.host.stream(request, caller)
                delayed_calls().add(self.send_head)
                self._stream.when_ready(self._more)
            else:
                self._gathered = Gathered()
                self._turn = endpoint.host.begin(request, caller, self._gathered)
                self._turn.running.on_end(self._ended)
        except Exception as error:
            self._refuse(error)

    def stop(self) -> None:
        """Refuse the request: the service ends before its body is complete."""
        self._refuse(Busy("the service is stopping"))

    def send_head(self) -> None:
        """Send the head of a stream whose first events take long."""
        if self._stream is not None and not self._started and not self.disconnected:
            self._write(self._head(200, NDJSON, chunked=True))

    def probe(self) -> None:
        """Send bytes that have no meaning to the client."""
        if self._stream is None:
            self._write(CONTINUE)
        elif not self._connection.flow.write_paused:
            self.send_head()
            self._write(_chunk(SIGN_OF_LIFE))

    def read_on(self) -> None:
        """Continue a stream: the client has read the data written to it."""
        if self._stream is not None:
            self._more()

    def left(self) -> None:
        """End the turn a moment later, so that an approval sent with the last bytes is carried
        out."""
        if self._stream is None and self._turn is None:
            # No turn was started whose end would release the connection, so release it here.
            del self._connection
        else:
            asyncio.get_running_loop().call_later(A_MOMENT, self._end)

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.drop()
        elif self._turn is not None and self._endpoint.cancels:
            self._turn.running.cancel()

    def cut_off(self) -> None:
        """Answer now: the service has waited long enough for the turn to end."""
        if self.disconnected or self.response_complete:
            return
        self.keep_alive = False
        if self._stream is None:
            self._refuse(Stopping())
        else:
            self._connection.transport.close()

    def _ended(self) -> None:
        """Send the whole reply of the turn, which has ended."""
        assert self._turn is not None
        error = self._endpoint.host.failure_of(self._turn)
        if self.response_complete:
            return
        if error is not None:
            self._gathered.failed(error)
            self._refuse(error)
            return
        try:
            body = self._endpoint.reply(self._gathered)
        except Exception as failure:
            self._refuse(failure)
        else:
            self._respond(200, body)

    def _refuse(self, error: BaseException) -> None:
        try:
            status, body, headers = self._endpoint.refusal(error)
        except Exception:
            # The waiting client must get an answer, as from uvicorn when an app fails.
            logger.exception("a failure could not be reported")
            self.keep_alive = False
            self._respond(500, b"Internal Server Error", kind=TEXT)
        else:
            self._respond(status, body, headers)

    def _respond(
        self, status: int, body: bytes, headers: Headers = (), kind: tuple[bytes, bytes] = JSON
    ) -> None:
        length = (b"content-length", str(len(body)).encode())
        self._write(self._head(status, [kind, length, *headers]) + body)
        self._complete()

    def _more(self) -> None:
        """Send the waiting part of a stream; unless that was the end, wait for more."""
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
        if not self._started and (lines or not more):
            parts.append(self._head(200, NDJSON, chunked=True))
        if lines:
            parts.append(_chunk(lines))
        if not more:
            parts.append(b"0\r\n\r\n")
        if parts:
            self._write(parts[0] if len(parts) == 1 else b"".join(parts))
        if more:
            stream.when_ready(self._more)
        else:
            self._stream = None
            stream.drop()
            self._complete()

    def _head(self, status: int, headers: Headers, *, chunked: bool = False) -> bytes:
        """The head of the response, in uvicorn's form."""
        self._started = True
        parts = [STATUS_LINE[status]]
        for name, value in (*self._connection.server_state.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        if chunked:
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        if not self.disconnected:
            self._connection.transport.write_now(data)

    def _complete(self) -> None:
        if not self.disconnected:
            self.response_complete = True
            if not self.keep_alive:
                self._connection.transport.close()
            self._connection.on_response_complete()
        # The connection refers to this exchange; avoid a reference cycle.
        del self._connection


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
