"""Requests that end by an invalid message, or by an error without an id.

The SDK drops both, so the call would wait until its timeout.
"""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from sayso_mcp.refusals import PART, answered

_UNREAD = "its answer cannot be read"


class Asked:
    """The stream to a server; remembers which requests have no answer yet."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._open: dict[str, types.JSONRPCRequest] = {}

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        match item.message:
            case types.JSONRPCRequest() as request:
                self._open[str(request.id)] = request
            case types.JSONRPCNotification(method="notifications/cancelled", params=params):
                self._open.pop(str((params or {}).get("requestId")), None)
        await self._inner.send(item)

    def received(self, found: Any) -> Any:
        """The message received; a message that the SDK would drop becomes an error of its request.

        An error without an id is attributed to the only open call. The server may have meant
        something else by it, so the call is never reported as having had no effect.
        """
        if isinstance(found, ValidationError) and (id_ := _answers(found)) is not None:
            found = _error(id_, _UNREAD)
        message = found.message if isinstance(found, SessionMessage) else None
        match message:
            case types.JSONRPCError(id=None) if self._methods == ["tools/call"]:
                _, request = self._open.popitem()
                return _error(request.id, message.error.message)
            case types.JSONRPCResponse() | types.JSONRPCError():
                self._open.pop(str(message.id), None)
        return found

    @property
    def _methods(self) -> list[str]:
        return [request.method for request in self._open.values()]

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Asked:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


def _answers(found: ValidationError) -> Any:
    """The id of the request that an unreadable message answers; None if it answers none."""
    given = found.errors(include_url=False)[0]["input"]
    if isinstance(given, str):
        return answered(given[:PART].encode("utf-8", "replace"))
    if not isinstance(given, dict) or "method" in given or not given.keys() & {"result", "error"}:
        return None
    id_ = given.get("id")
    return id_ if isinstance(id_, int | str) and not isinstance(id_, bool) else None


def _error(id_: types.RequestId, text: str) -> SessionMessage:
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=text)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id_, error=error))
