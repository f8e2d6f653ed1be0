"""A transport that reports when the server closes, and repairs messages that the SDK would
refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from sayso_mcp.asked import Asked
from sayso_mcp.content import fit

Refused = Callable[[Any, str], None]
"""Called with a listed tool that cannot be read, and the reason."""


class Watched:
    """Wraps the transport `inner`; calls `ended` when nothing more can be read."""

    def __init__(
        self,
        inner: AbstractAsyncContextManager[Any],
        ended: Callable[[], None],
        refused: Refused,
    ) -> None:
        self._inner = inner
        self._ended = ended
        self._refused = refused

    async def __aenter__(self) -> Any:
        read, write = await self._inner.__aenter__()
        asked = Asked(write)
        return _Stream(read, asked, self._ended, self._refused), asked

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


class _Stream:
    """The stream from the server; calls `ended` at its end."""

    def __init__(
        self, inner: Any, asked: Asked, ended: Callable[[], None], refused: Refused
    ) -> None:
        self._inner = inner
        self._asked = asked
        self._ended = ended
        self._refused = refused

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    def _taken(self, found: Any) -> Any:
        return _listed(_complete(self._asked.received(_read(found))), self._refused)

    async def receive(self) -> Any:
        try:
            return self._taken(await self._inner.receive())
        except Exception:
            self._ended()
            raise

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> Any:
        try:
            return self._taken(await self._inner.__anext__())
        except (StopAsyncIteration, Exception):
            self._ended()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Stream:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._inner.__aexit__(*error)


def _read(found: Any) -> Any:
    """A message, or the error that the SDK put in its place, read once more.

    JavaScript servers that cut a text may write half of a surrogate pair. The SDK cannot read such
    a line, and its call would wait for ever.
    """
    if not isinstance(found, ValidationError):
        return found
    try:
        message = fit(json.loads(found.errors(include_url=False)[0]["input"]))
        return SessionMessage(types.jsonrpc_message_adapter.validate_python(message, by_name=False))
    except (ValueError, TypeError, RecursionError):
        return found


def _result(found: Any) -> dict[str, Any]:
    """The result in a message; empty if there is none."""
    message = found.message if isinstance(found, SessionMessage) else None
    return message.result if isinstance(message, types.JSONRPCResponse) else {}


def _complete(found: Any) -> Any:
    """A message whose result has the fields that the SDK demands and older servers omit: that it is
    complete, which is what an absent `resultType` means, and that a list may not be cached."""
    result = _result(found)
    result.setdefault("resultType", "complete")
    if "tools" in result:
        result |= {"ttlMs": 0, "cacheScope": "private"}
    return found


def _listed(found: Any, refused: Refused) -> Any:
    """A message without its unreadable tools: because of one such tool the SDK would refuse the
    list."""
    tools = _result(found).get("tools")
    if not isinstance(tools, list):
        return found
    for one in tools:
        if isinstance(one, dict):
            # Protocol versions differ in its form, and it is not used here.
            one.pop("outputSchema", None)
    try:
        validate_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": tools})
    except ValidationError as error:
        wrong: dict[int, str] = {}
        for each in error.errors(include_input=False, include_url=False):
            _, place, *where = each["loc"]
            wrong.setdefault(int(place), f"{'.'.join(map(str, where))}: {each['msg']}")
        for place in sorted(wrong, reverse=True):
            refused(tools.pop(place), wrong[place])
    return found
