"""The answers to a line or body that is no message, or to a line that is too long to read.

JSON-RPC 2.0, section 5: an error with the request's id if it can be determined, else with null.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

import mcp_types as types
from mcp.shared.message import SessionMessage

from sayso_mcp.content import clean

PART = 1024
"""Bytes at the beginning and end of a long line that are searched for its id."""

_ID = rb'"id"\s*:\s*(-?\d{1,15}|"[^"\\]{1,200}")'
_WORD = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"'
# Clients write the id either before the parameters or as one of the last keys.
_FIRST = re.compile(rb"\s*\{\s*(?:" + _WORD + rb"\s*,\s*)*" + _ID + rb"\s*,")
_LAST = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _WORD + rb"\s*)*\}\s*\Z")
_ANSWER = re.compile(
    rb"\s*\{\s*(?:(?:" + _WORD + rb"|" + _ID + rb')\s*,\s*)*"(?:result|error)"\s*:'
)


def message_of(line: bytes) -> types.JSONRPCMessage:
    """The message of a line; ValueError for what is none."""
    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    if isinstance(message, types.JSONRPCNotification):
        # Some clients write a notification's id as null; that is accepted. With any other id the
        # sender expects an answer, and an invalid id would turn its request into a notification.
        if not message.method.startswith("notifications/") and "id" in json.loads(line):
            raise ValueError("the id is neither a string nor an integer")
    return message


def refusal(line: bytes) -> SessionMessage | None:
    """The error for a line or body that is no message; None for a client's invalid response, since
    a response is not answered."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, types.PARSE_ERROR, "this is no JSON that can be read")
    is_object = isinstance(given, dict)
    if is_object and "method" not in given and ("result" in given or "error" in given):
        return None
    id_ = given.get("id") if is_object and "method" in given else None
    if isinstance(id_, bool) or not isinstance(id_, int | str) or clean(str(id_)) != str(id_):
        id_ = None
    what = "this is no JSON-RPC request, or holds what is no Unicode text"
    return _error(id_, types.INVALID_REQUEST, what)


def no_response() -> SessionMessage:
    """The error for an invalid response that came in a body, whose sender waits for a status."""
    return _error(None, types.INVALID_REQUEST, "this is no JSON-RPC response")


def mismatch(message: types.JSONRPCMessage, header: str | None) -> SessionMessage | None:
    """The error for a streamable-http request whose body names another version than `header`.

    The SDK goes by the header alone, and takes a request of 2026-07-28 without one for an older
    one.
    """
    if not isinstance(message, types.JSONRPCRequest):
        return None
    meta = (message.params or {}).get("_meta")
    if not isinstance(meta, dict) or meta.get(types.PROTOCOL_VERSION_META_KEY, header) == header:
        return None
    what = "the MCP-Protocol-Version header is not the protocol version of the request's _meta"
    return _error(message.id, types.HEADER_MISMATCH, what)


def repeated(id_: types.RequestId) -> SessionMessage:
    """The error for a request whose id already belongs to an unanswered one. It carries no id: the
    client would take it for the answer to the first request."""
    what = f"the id {id_!r} is that of a request that has no answer yet"
    return _error(None, types.INVALID_REQUEST, what)


def too_long(begin: bytes, end: bytes, limit: int) -> SessionMessage | None:
    """The error for a line of more than `limit` bytes, made from its beginning and end."""
    if _ANSWER.match(begin):
        return None
    id_ = _id(_FIRST.match(begin) or _LAST.search(end))
    what = f"the line has more than {limit} bytes; see limits.body"
    return _error(id_, types.INVALID_REQUEST, what)


def answered(begin: bytes) -> types.RequestId | None:
    """The id of the request that a line with this beginning answers; None if it cannot be
    determined, or the line is no answer."""
    return _id(_FIRST.match(begin)) if _ANSWER.match(begin) else None


def _id(found: re.Match[bytes] | None) -> types.RequestId | None:
    id_: types.RequestId | None = None
    if found is not None:
        with suppress(ValueError):
            id_ = json.loads(found[1])
    return id_


def _error(id_: types.RequestId | None, code: int, message: str) -> SessionMessage:
    error = types.ErrorData(code=code, message=message)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=id_, error=error))
