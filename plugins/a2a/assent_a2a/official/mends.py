"""A layer around the SDK's endpoints: limits, and where its answers differ from the standard.

The SDK answers a wrong content type as unparsable JSON, where A2A has an error of its own
(-32005), and labels REST replies `application/a2a+json`, which plain JSON clients refuse: only
those get it who ask for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from a2a.server.request_handlers import build_error_response
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, ContentTypeNotSupportedError, InvalidRequestError
from pydantic_core import to_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_ACCEPTED = (b"application/json", b"application/a2a+json")


class Mended:
    """An ASGI application around the SDK's; `rest` says which of its two bindings it is."""

    def __init__(self, app: ASGIApp, *, limit: int, rest: bool) -> None:
        self._app = app
        self._limit = limit
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        if scope["method"] in ("POST", "PUT", "PATCH"):
            given = await self._body(receive)
            if given is None:
                error = InvalidRequestError(message=f"the body is larger than {self._limit} bytes")
                await self._refuse(error, 413, send)
                return
            body = given
            if not _accepted(scope, body):
                message = "the body must be sent as 'application/json'"
                await self._refuse(ContentTypeNotSupportedError(message=message), 400, send)
                return
        await self._app(scope, _again(body, receive), self._relabelled(scope, send))

    async def _body(self, receive: Receive) -> bytes | None:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limit:
                return None
            if not message.get("more_body"):
                return b"".join(parts)

    async def _refuse(self, error: A2AError, status: int, send: Send) -> None:
        content = build_rest_error_payload(error)
        if not self._rest:
            status, content = 200, build_error_response(None, error)
        body = to_json(content)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _relabelled(self, scope: Scope, send: Send) -> Send:
        if not self._rest or _asks_for_a2a_json(scope):
            return send

        async def relabelling(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, b"application/json")
                    if name == b"content-type" and value.startswith(b"application/a2a+json")
                    else (name, value)
                    for name, value in message["headers"]
                ]
            await send(message)

        return relabelling


def _accepted(scope: Scope, body: bytes) -> bool:
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    if not kinds:
        # To cancel or to subscribe needs no body, hence no content type.
        return not body
    return kinds[-1].split(b";", 1)[0].strip().lower() in _ACCEPTED


def _asks_for_a2a_json(scope: Scope) -> bool:
    return any(
        name == b"accept" and b"application/a2a+json" in value.lower()
        for name, value in scope["headers"]
    )


def _again(body: bytes, receive: Receive) -> Receive:
    """The body that was read, as one message, then whatever comes."""
    given = False

    async def receiving() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
