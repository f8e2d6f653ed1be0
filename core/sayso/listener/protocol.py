"""The HTTP protocol of a connection: uvicorn's, with limits and a short path for chat requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from sayso.http.access import with_one_host
from sayso.http.asgi import App
from sayso.http.disconnect import A_MOMENT
from sayso.http.endpoints import ChatEndpoint, Headers
from sayso.listener.connections import (
    CONTINUE,
    CorkedTransport,
    Flow,
    HalfClosed,
    idle_connections,
    is_detectable,
)
from sayso.listener.exchange import Exchange
from sayso.listener.unchunked import Unchunked
from sayso.service.ports import serves_on

CLOSING = 2
"""Seconds for connections to close after the turns have ended."""
HEAD_SIZE = 64 * 2**10
"""Most bytes of a request's head; a longer one gets 431. Trailers may be as long."""
HEAD_TIME = 30.0
"""Seconds for a connection to send a whole request head."""
BODY_TIME = 60.0
"""Most seconds between two chunks of a request's body."""
INVALID = "Invalid HTTP request received."
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/json\r\ncontent-length: 62\r\nconnection: close\r\n\r\n"
    b'{"detail":"the request head is too large","code":"TOO_LARGE"}\n'
)


class Http(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a corked transport, with limits on data before a request.

    A plugin's second port gets the same limits with `uvicorn.Config(app, http=Http)`; its socket is
    given to `Http.serves_on`.

    uvicorn accepts a head of any size, and a connection that never sends one. The timer runs only
    while no request does, so it adds no cost to each request on a busy or idle connection. Chat
    requests are answered by an Exchange once they are complete, all others by a task, as in
    uvicorn.
    """

    transport: CorkedTransport  # type: ignore[assignment]
    cycle: RequestResponseCycle | Exchange  # type: ignore[assignment]
    _chat: Callable[[bytes, bytes, Headers], tuple[ChatEndpoint, str | None] | None] | None = None
    """Finds the endpoint of a chat request that needs no task; None: all need one."""
    _exchange: Exchange | None = None
    """The request being received or answered, if it needs no task."""
    _whole: Exchange | None = None
    """The same, if its whole body was in the data just read."""
    _in_head = True
    """Whether the head of a request is expected or has begun."""
    _head = 0
    """Bytes so far of a head, or of trailers, that did not end with the data read."""
    _late: asyncio.TimerHandle | None = None
    _chunk = False
    """Whether a chunk has begun without data: a slow first one, or the trailers."""
    _retired = False
    """Whether the next request is the last."""
    _then: Callable[[], None] | None = None
    """Called after the pending replies; until then nothing more is read."""

    serves_on = staticmethod(serves_on)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(CorkedTransport(transport))  # type: ignore[arg-type]
        self.flow = Flow(transport, self.pipeline)
        self._idle = idle_connections()
        app = self.app
        # Any wrapper of the app must see all requests, even if it passes on the app's attributes.
        own = isinstance(app, App) and type(app).__call__ is App.__call__
        if own and not (self.config.access_log or self.root_path):
            self._chat = app.chat
        self._continues = own and app.host.config.server.on_disconnect == "continue"
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        self._unset_keepalive_if_required()
        self.transport.unwatch()
        self._then = None
        super().connection_lost(exc)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.left()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the connection while a reply is pending: a client that sends no more may still read
        it.

        Most such clients have gone, though: unless turns continue without their client, something
        is sent that shows it, and where nothing can be, only a quick reply is waited for.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.pipeline:
            return None
        cycle.keep_alive = False
        if self._continues:
            return True
        if is_detectable() and self._probed(cycle):
            HalfClosed(self.transport, self.loop)
        else:
            self.loop.call_later(A_MOMENT, self.transport.close)
        return True

    def _probed(self, cycle: RequestResponseCycle | Exchange) -> bool:
        """Whether something was sent, or is being sent, that a client which still reads expects."""
        if isinstance(cycle, Exchange):
            cycle.probe()
            return True
        if cycle.response_started:
            return True
        modern = not isinstance(cycle, Unchunked)
        if modern:
            self.transport.write(CONTINUE)
        return modern

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.watch()

    def resume_writing(self) -> None:
        self.transport.unwatch()
        super().resume_writing()
        if self._exchange is not None:
            self._exchange.read_on()

    def data_received(self, data: bytes) -> None:
        if self._then is not None:
            return
        cycle = self.cycle
        in_body = not self._in_head and cycle is not None and cycle.more_body
        while len(data) > (room := HEAD_SIZE - self._head) and (self._chunk or not in_body):
            self._read(data[:room])
            if self.transport.is_closing() or self.parser is None or self._then is not None:
                return
            unfinished = self._in_head or self._chunk
            if unfinished and self.cycle is cycle:
                self._refuse(self._too_large)
                return
            data, cycle, self._head, in_body = data[room:], self.cycle, 0, not unfinished
        self._read(data)
        if self._in_head or self._chunk:
            # It is unknown where a head begins behind something else; it then gets one more read.
            goes_on = self.cycle is cycle and (self._head or not in_body)
            self._head = self._head + len(data) if goes_on else 1
        else:
            self._head = 0
        if self._between_requests():
            self._expect_request()
        else:
            if self._late is not None:
                self._request_came()
            if not (self._in_head or self.cycle.response_complete) and self.cycle.more_body:
                self._expect_body()

    def on_message_begin(self) -> None:
        """Parser callback: a request begins. Its scope is made only if it turns out to need one."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Parser callback: a head is complete."""
        if self._offers():
            return
        self._in_head = False
        exchange = self._new_exchange()
        if exchange is not None:
            self.cycle = self._exchange = exchange
            return
        url, headers = self.url, self.headers
        modern = self.parser.get_http_version() != "1.0"
        headers = with_one_host(headers, url, required=modern)
        expects = self.expect_100_continue and modern
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()
        # This is called for trailers too, which must not be taken for headers (RFC 9110, section
        # 6.5.1).
        self.headers = headers
        # A first request that asks for a WebSocket has no cycle.
        if self._retired and self.cycle is not None:
            self.cycle.keep_alive = False
        if not modern:
            self.cycle.__class__ = Unchunked

    def _new_exchange(self) -> Exchange | None:
        """The request as one that needs no task; None if anything about it is unusual."""
        if self._chat is None or self.expect_100_continue:
            return None
        parser, before = self.parser, self.cycle
        found = self._chat(parser.get_method(), self.url, self.headers)
        # A reply must wait for a client that does not read earlier data.
        waits = self.flow.write_paused or not (before is None or before.response_complete)
        if found is None or waits:
            return None
        if parser.should_upgrade() or parser.get_http_version() != "1.1":
            return None
        keep_alive = not self._retired and parser.should_keep_alive()
        return Exchange(self, *found, keep_alive=keep_alive)

    def on_body(self, body: bytes) -> None:
        """Parser callback: a chunk of a body."""
        self._chunk = False
        self._head = 0
        if (exchange := self._coming()) is not None:
            exchange.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Parser callback: a body is complete."""
        if (exchange := self._coming()) is not None:
            exchange.more_body = False
            self._whole = exchange
        elif not self._offers():
            super().on_message_complete()

    def _coming(self) -> Exchange | None:
        # A WebSocket request queued behind a running one does not become `cycle`.
        exchange = self._exchange
        if exchange is None or exchange is not self.cycle or not exchange.more_body:
            return None
        return exchange

    def _should_upgrade(self) -> bool:
        # HTTP/1.0 has no upgrades (RFC 9110, section 7.8).
        return self.parser.get_http_version() != "1.0" and super()._should_upgrade()

    def _offers(self) -> bool:
        """Whether the head offers to continue with another protocol than WebSocket."""
        if not self.parser.should_upgrade() or self._should_upgrade():
            return False
        return any(name == b"upgrade" for name, _ in self.headers)

    def _read(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                if not self._offers():
                    if self._should_upgrade():
                        self._after_replies(self.handle_websocket_upgrade)
                    break
                data = self._head_without_offer() + data[upgrade.args[0] :]
            except HttpParserError:
                self.logger.warning(INVALID)
                self._refuse(self._invalid)
                break
            else:
                break
        whole, self._whole = self._whole, None
        if whole is not None and not self.transport.is_closing():
            whole.begin()

    def _head_without_offer(self) -> bytes:
        """The head without its offer of HTTP/2, such as of Java's client and `curl --http2`: the
        parser would skip the body of such a request."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([*lines, b"", b""])

    def retire(self, *, at_once: bool) -> None:
        """Make the current request the last, however long it takes; close a connection without one
        `at_once`."""
        self._retired = True
        waits = self.cycle is None or self.cycle.response_complete
        if not (waits and (not at_once or (self._in_head and self._head))):
            super().shutdown()

    def shutdown(self) -> None:
        """Close, or make the running request the last one and give it a moment to end."""
        super().shutdown()
        if self._exchange is not None and self._exchange.more_body:
            self._exchange.stop()
        elif self._exchange is not None:
            self.loop.call_later(CLOSING, self._exchange.cut_off)

    def on_response_complete(self) -> None:
        """Continue with the next request, or wait for one; uvicorn has a timer for each such
        wait."""
        self._exchange = None
        self.server_state.total_requests += 1
        self.transport.flush()
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._then is not None:
            then, self._then = self._then, None
            then()
        else:
            self._idle.add(self)

    def _unset_keepalive_if_required(self) -> None:
        self._idle.discard(self)

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        self._request_came()
        # Break the reference cycle: the parser and this object refer to each other.
        self.parser = None  # type: ignore[assignment]
        conn = getattr(self.transport.get_protocol(), "conn", None)
        if conn is None or conn.handshake_exc is None or self.transport.is_closing():
            return
        # `websockets` could not read the head; uvicorn would keep the connection for ever.
        if said := b"".join(conn.data_to_send()):
            self.transport.write(said)
            self.transport.close()
        else:
            self.send_400_response("Invalid WebSocket handshake received.")

    def on_chunk_header(self) -> None:
        """Parser callback: a chunk begins, or the trailers do."""
        self._chunk = True

    def on_chunk_complete(self) -> None:
        """Parser callback: a chunk has ended, or the body."""
        self._chunk = False

    def _between_requests(self) -> bool:
        """Whether it waits for a head, without another time limit."""
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        # A request may be refused while it is read.
        return self._in_head or self not in self._idle

    def _expect_request(self) -> None:
        if self._late is None and self.transport.get_protocol() is self:
            self._late = self.loop.call_later(HEAD_TIME, self.transport.close)

    def _expect_body(self) -> None:
        if self.transport.get_protocol() is self:
            self._late = self.loop.call_later(BODY_TIME, self._body_stalled)

    def _body_stalled(self) -> None:
        if self.flow.read_paused or self.pipeline:
            # Reading is paused, or an earlier request runs.
            self._expect_body()
        else:
            self.transport.close()

    def _request_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, answer: Callable[[], None]) -> None:
        """Stop reading; answer in turn, after the replies to complete requests."""
        cycle = self.cycle
        if self._in_head or cycle is None or not cycle.more_body:
            self._after_replies(answer)
        elif self.pipeline:
            # Its body is the broken one, and it has not begun.
            self.pipeline.popleft()
            cycle.more_body = False
            self._then = answer
        elif cycle.response_complete or (
            isinstance(cycle, RequestResponseCycle) and cycle.response_started
        ):
            self.transport.close()
        else:
            answer()

    def _after_replies(self, then: Callable[[], None]) -> None:
        if self.cycle is None or self.cycle.response_complete:
            then()
        else:
            self._then = then

    def _too_large(self) -> None:
        self.transport.write(TOO_LARGE)
        self.transport.close()

    def _invalid(self) -> None:
        self.send_400_response(INVALID)
