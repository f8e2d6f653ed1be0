"""Chat over HTTP: raw ASGI endpoints that protocol plugins use on their routes.

A plain ASGI object costs half of a path operation; middleware applies all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope, Send

from sayso.context import Caller
from sayso.errors import Busy, InvalidRequest, RequestError, TooLarge, UnsupportedMediaType
from sayso.hosting import Host
from sayso.hosting.repeats import KEY, Attempt
from sayso.http.disconnect import DisconnectWatch
from sayso.http.ndjson import stream_reply
from sayso.turns.output import Gathered
from sayso.wire.chat import continued_request, reply_json
from sayso.wire.failures import Failure
from sayso.wire.histories import Histories
from sayso.wire.json_bytes import dump_json
from sayso.wire.messages import ChatRequest
from sayso.workers import per_loop

PRINCIPAL = "sayso.principal"
"""The key in an ASGI scope under which the app's authentication stores the caller's name."""

FOREIGN = "sayso.foreign_page"
"""The key in an ASGI scope that marks a request of a web page under a name not known to be ours."""

LONG = 64 * 2**10
"""Bytes above which a body or a frame queues for its turn to be read."""
_ROUNDS = 3
"""Rounds of the event loop between two long bodies: enough to read, run and answer a short
request."""


@cache
def _histories(nesting: int) -> Histories:
    """Those of all bodies that are read with these limits."""
    return Histories()


_PLAIN = {b"", b"identity", b"chunked"}
JSON = (b"content-type", b"application/json")
Headers = Sequence[tuple[bytes, bytes]]
ErrorShape = Callable[[BaseException, Failure], tuple[int, dict[str, Any]]]
"""A protocol's form of a refusal or a failure: the HTTP status and a JSON body."""


def caller_of(scope: Scope, protocol: str) -> Caller:
    """The caller: the authenticated principal and the peer's address."""
    client = scope.get("client")
    address = client[0] if client else None
    socket = scope["type"] == "websocket"
    return Caller(
        protocol, scope.get(PRINCIPAL), address, foreign_page=FOREIGN in scope, socket=socket
    )


def is_json(kind: bytes) -> bool:
    """Whether this is the `Content-Type` of JSON."""
    return kind == JSON[1] or kind.split(b";", 1)[0].strip().lower() == JSON[1]


_reading = per_loop(asyncio.Lock)


async def turn_to_read(body: str | bytes | bytearray) -> None:
    """Return when this body or frame may be read: at once, unless it is long.

    Reading a long one takes up to a second in which nobody is answered. Ten that arrive together
    would take ten seconds at a stretch, and delay everybody's `/health`; with this queue, others
    are served between two of them. Long replies that have to be written use the same queue.
    """
    if len(body) > LONG:
        async with _reading():
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)


async def read_body(
    scope: Scope, receive: Receive, limit: int, *, takes: Callable[[bytes], bool] = is_json
) -> bytes:
    """The whole body, as soon as it may be read (`turn_to_read`).

    Raises UnsupportedMediaType for one whose content type `takes` refuses (as it is, all but JSON)
    or that is compressed, TooLarge for one above
    `limit` bytes, and InvalidRequest for one that breaks off.
    """
    length = b""
    kind = b""
    codings = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"content-length":
            length = value
        elif name in (b"content-encoding", b"transfer-encoding"):
            codings += b"," + value.lower()
    if not takes(kind):
        raise UnsupportedMediaType
    if codings and not {coding.strip() for coding in codings.split(b",")} <= _PLAIN:
        raise UnsupportedMediaType(
            "the request body must not be compressed: send it without a content coding"
        )
    if length.isdigit() and int(length) > limit:
        raise TooLarge("request body", limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body") and len(body) <= limit:
        await turn_to_read(body)
        return body
    # A list of two-byte chunks would take twenty times the memory that the limit allows.
    whole = bytearray(body)
    while message.get("more_body") and len(whole) <= limit:
        message = await receive()
        whole += message.get("body", b"")
    if len(whole) > limit:
        raise TooLarge("request body", limit)
    if message.get("type") == "http.disconnect":
        # The received part may look like a whole request, with a decision in it.
        raise InvalidRequest.at(["body"], "json_invalid", "the body broke off before its end")
    await turn_to_read(whole)
    return bytes(whole)


def standard_error(error: BaseException, failure: Failure) -> tuple[int, dict[str, Any]]:
    """V2's error bodies (design, section 7): the list form for 422, otherwise `detail` and `code`.

    If calls were carried out before the failure, their outcomes are in `data`.
    """
    if isinstance(error, InvalidRequest):
        return 422, {"detail": error.items}
    body: dict[str, Any] = {"detail": failure.message, "code": failure.code}
    if failure.incident:
        body["incident"] = failure.incident
    if failure.outcomes is not None:
        body["data"] = from_json(dump_json(failure.outcomes))
    if isinstance(error, RequestError):
        body |= error.extra()
    return failure.status, body


class ChatEndpoint:
    """An ASGI application for one chat path: reads a ChatRequest, answers whole or as a stream.

    `forward_fields` is V2's form: it forwards and echoes the request fields (interface.md, rule 1),
    gives the reason of an early stop in `meta_data.stop_reason`, and the revision of each proposal.
    `deprecated` marks the path in the OpenAPI document.
    """

    def __init__(
        self,
        host: Host,
        protocol: str,
        *,
        stream: bool = False,
        forward_fields: bool = False,
        errors: ErrorShape = standard_error,
        deprecated: bool = False,
    ) -> None:
        self.host = host
        self.protocol = protocol
        self.streams = stream
        self.forward_fields = forward_fields
        self.errors = errors
        self.deprecated = deprecated
        self.cancels = host.config.server.on_disconnect == "cancel"
        # Code that gets the messages may change them.
        shares = host.agent.function is None
        shares = shares and not host.plugins.implementations("intercept_request")
        self.histories = _histories(host.config.limits.nesting) if shares else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        try:
            body = await read_body(scope, receive, self.host.config.limits.body)
            known = caller_of(scope, self.protocol)
            request, caller = self.read(body, known.principal, known.address, known.foreign_page)
            attempt = await self._attempt(scope, body, caller) if self.host.repeats else None
        except asyncio.CancelledError:
            # The server has waited long enough for the rest of the body.
            await answer(send, *self.refusal(Busy("the service is stopping")))
            return
        except Exception as error:
            await answer(send, *self.refusal(error))
            return
        if attempt is None:
            await self._serve(request, caller, receive, send)
        else:
            await attempt.answered(partial(self._serve, request), caller, send)

    async def _attempt(self, scope: Scope, body: bytes, caller: Caller) -> Attempt | None:
        """The attempt that answers a request with a key; raises RequestError."""
        values = [value for name, value in scope["headers"] if name == KEY]
        if not values or self.host.repeats is None:
            return None
        return await self.host.repeats.attempt(values, (scope["path"].encode(), body), caller)

    async def _serve(
        self, request: ChatRequest, caller: Caller, receive: Receive, send: Send
    ) -> int:
        """Answer the request; returns the status of its turn."""
        if self.streams:
            return await stream_reply(self.host, request, caller, receive, send)
        return await self._reply(request, caller, receive, send)

    def read(
        self,
        body: bytes | str,
        principal: str | None,
        address: str | None,
        foreign_page: bool = False,
    ) -> tuple[ChatRequest, Caller]:
        """The request and its caller with the address; raises RequestError."""
        limits = self.host.config.limits
        request = continued_request(
            body,
            self.histories,
            messages=limits.messages,
            nesting=limits.nesting,
            values=limits.values,
        )
        fields = request.request_fields if self.forward_fields else None
        caller = Caller(
            self.protocol,
            principal,
            address,
            request_fields=fields,
            foreign_page=foreign_page,
            plain=not self.forward_fields,
            keep=self.host.buffers.wish(fields) if fields else "",
        )
        return request, caller

    def reply(self, gathered: Gathered) -> bytes:
        """The body of the reply made of a turn's events."""
        return reply_json(gathered.events, stop_reason=self.forward_fields)

    def refusal(self, error: BaseException) -> tuple[int, bytes, Headers]:
        """Status, body and further headers of the reply to a failed request."""
        failure = self.host.failure(error)
        status, body = self.shown(error, failure)
        return status, to_json(body), failure.headers

    def shown(self, error: BaseException, failure: Failure) -> tuple[int, dict[str, Any]]:
        """Status and body of the reply that reports `failure`."""
        status, body = self.errors(error, failure)
        if self.streams:
            body = {"type": "error", "error": failure.message, **body}
        return status, body

    async def _reply(
        self, request: ChatRequest, caller: Caller, receive: Receive, send: Send
    ) -> int:
        gathered = Gathered()
        try:
            started = self.host.begin(request, caller, gathered)
            watch = DisconnectWatch(receive, started.running.cancel if self.cancels else None)
            try:
                await self.host.end_of(started)
            finally:
                watch.stop()
            body = self.reply(gathered)
        except asyncio.CancelledError:
            return 0
        except Exception as error:
            gathered.failed(error)
            failure = self.host.failure(error)
            status, shown = self.shown(error, failure)
            await answer(send, status, to_json(shown), failure.headers)
            return failure.status
        await answer(send, 200, body)
        return 200


async def answer(send: Send, status: int, body: bytes, headers: Headers = ()) -> None:
    """Send a whole answer in JSON, with these additional headers."""
    length = (b"content-length", str(len(body)).encode())
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [JSON, length, *headers],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})
