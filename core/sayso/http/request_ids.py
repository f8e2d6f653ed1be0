"""`X-Request-ID`: a proxy or a caller names its request; the answer and the log repeat this
name."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso.service.lines import adding_fields

HEADER = b"x-request-id"
_FIT = re.compile(rb"[A-Za-z0-9._-]{1,128}")


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The id by which logs know the request; None where its caller sends none.

    An id of up to 128 letters, digits, dots, underscores and hyphens is taken as it is. Sayso
    replaces any other id, and several ids, by a new one: they could forge a line of a log.
    """
    given = [value for name, value in headers if name == HEADER]
    if not given:
        return None
    if len(given) == 1 and _FIT.fullmatch(given[0]):
        return given[0]
    return secrets.token_hex(16).encode()


class RequestIds:
    """Middleware that answers with the id of the request and adds it to each log record of the
    request.

    The id is a label and proves nothing. The id of a WebSocket stands in its log records only.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection (ASGI)."""
        known = None if scope["type"] == "lifespan" else request_id(scope["headers"])
        if known is None:
            await self.app(scope, receive, send)
            return
        with adding_fields(request_id=known.decode()):
            labelled = _labelled(send, known) if scope["type"] == "http" else send
            await self.app(scope, receive, labelled)


def _labelled(send: Send, known: bytes) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (HEADER, known)]}
        await send(message)

    return sent
