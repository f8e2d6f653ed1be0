"""The bodies that clients post, checked before the SDK reads them."""

from __future__ import annotations

import json
import secrets

from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCRequest
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso import turn_to_read
from sayso_mcp.refusals import (
    PART,
    answered,
    message_of,
    mismatch,
    no_response,
    refusal,
    repeated,
)


class Messages:
    """Refuses invalid bodies before the SDK sees them.

    - A body that is no message gets 400 with an explanation.
    - A request whose id is invalid: the SDK would take it for a notification and never answer.
    - With `headed`: a request whose header names another version than its body.
    - With `headed`: a repeated request that has no answer yet. It would run twice.

    Some clients use one id for several open requests. A second one gets another id inside, since
    the SDK would no longer answer the first. The SDK's own refusals come first, for instance for a
    session that is over, which clients then begin anew.
    """

    def __init__(self, app: ASGIApp, limit: int, *, headed: bool = False) -> None:
        self.app = app
        self.headed = headed
        self.unanswered: dict[tuple[str, str], bytes] = {}
        """The bodies of the requests that have no answer yet, by session and id."""
        self.whole = RequestBodyLimitMiddleware(self._read, limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.whole if scope["method"] == "POST" else self.app)(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = [await receive()]
        if first[0].get("more_body", True):
            # The client left while sending the body.
            return
        body: bytes = first[0]["body"]
        await turn_to_read(body)
        refused = False

        async def again() -> Message:
            return first.pop() if first else await receive()

        async def worded(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == 400:
                refused = True
                answer = Response(error, 400, media_type="application/json")
                await answer(scope, receive, send)
            elif not refused:
                await send(message)

        asked = None
        try:
            message = message_of(body)
            if self.headed and getattr(message, "method", "") == "resources/read":
                send = AsJson(send)
            asked = self._asked(scope, message)
            answer = self._wrong(scope, message, asked, body)
            if answer is None and asked in self.unanswered and isinstance(message, JSONRPCRequest):
                send = renamed = Renamed(send, message)
                asked = asked[0], renamed.id
                first[0]["body"] = renamed.body
            sdk_takes_it = answer is not None
        except ValueError as failure:
            answer = refusal(body) or no_response()
            sdk_takes_it = not isinstance(failure, ValidationError)
        if sdk_takes_it:
            first[0]["body"] = b""
        # The SDK parses the body once more.
        await turn_to_read(body)
        error = None if answer is None else answer.message.model_dump_json(exclude_unset=True)
        if error is not None:
            await self.app(scope, again, worded)
        elif asked is None:
            await self.app(scope, again, send)
        else:
            await self._answered(asked, body, scope, again, send)

    def _asked(self, scope: Scope, message: JSONRPCMessage) -> tuple[str, str] | None:
        """The session and the id of a request; the SDK finds its reply stream by these two."""
        session = Headers(scope=scope).get("mcp-session-id") if self.headed else None
        if session is None or not isinstance(message, JSONRPCRequest):
            return None
        return session, str(message.id)

    def _wrong(
        self, scope: Scope, message: JSONRPCMessage, asked: tuple[str, str] | None, body: bytes
    ) -> SessionMessage | None:
        if asked is not None and self.unanswered.get(asked) == body:
            return repeated(asked[1])
        version = Headers(scope=scope).get("mcp-protocol-version")
        return mismatch(message, version) if self.headed else None

    async def _answered(
        self, asked: tuple[str, str], body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Have a request answered, and free its id once the answer is sent."""
        self.unanswered[asked] = body

        def over() -> None:
            if self.unanswered.get(asked) is body:
                del self.unanswered[asked]

        async def sent(message: Message) -> None:
            _, _, data = message.get("body", b"")[:PART].partition(b"data:")
            if str(answered(data)) == asked[1]:
                over()
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            over()


class AsJson:
    """Sends the only answer of an event stream as JSON, which clients read at any length."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._events = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            if kind.startswith("text/event-stream"):
                self._start = message
                return
        if self._start is None:
            await self._send(message)
            return
        self._events += message.get("body", b"")
        if not message.get("more_body"):
            await self._answer(self._start)

    async def _answer(self, start: Message) -> None:
        datas = (each for each in self._events.splitlines() if each.startswith(b"data: {"))
        body = next(datas, b"").removeprefix(b"data: ")
        kept = [each for each in start["headers"] if each[0].lower() != b"content-type"]
        headers = [*kept, (b"content-type", b"application/json")]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


class Renamed:
    """Sends the answer under the id that the client gave; inside, the request has another."""

    def __init__(self, send: Send, request: JSONRPCRequest) -> None:
        self._send = send
        self.id = f"sayso-{secrets.token_hex(16)}"
        self._within = json.dumps(self.id).encode()
        self._given = json.dumps(request.id).encode()
        own = request.model_copy(update={"id": self.id})
        self.body = own.model_dump_json(by_alias=True, exclude_unset=True).encode()

    async def __call__(self, message: Message) -> None:
        if self._within in message.get("body", b""):
            given = message["body"].replace(self._within, self._given, 1)
            message = {**message, "body": given}
        await self._send(message)
