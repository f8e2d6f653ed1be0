"""A layer around the SDK's endpoints: limits, and corrections where it deviates from the standard.

- The SDK answers a wrong content type as unparsable JSON; A2A has an error of its own (-32005).
- It labels REST replies `application/a2a+json`, which plain JSON clients refuse. Here, only
  clients that ask for this type get it.
- To callers of 0.3 it marks the last event of a stream as final only if the task has ended, not
  if it waits for them.
- Bodies that make it fail are refused before it reads them.
- It logs a trace for each call that it cannot read, beside a line with the reason; only the line
  is kept.
- It breaks off a stream of 0.3 over REST that fails after its beginning. Here, the stream ends with
  the error.
- It compares only the first number of versions.
"""

from __future__ import annotations

import logging
from typing import Any

from a2a.extensions.common import get_requested_extensions
from a2a.server.request_handlers import build_error_response
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidRequestError,
    VersionNotSupportedError,
)
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso import turn_to_read, unbroken
from sayso_a2a.official.bodies import Problem, problem_of_call, problem_of_rest
from sayso_a2a.official.card import EXTENSION
from sayso_a2a.official.files import as_old_sdk_writes

_ACCEPTED = ("application/json", "application/a2a+json")
_MINOR = {"0": "3", "1": "0"}  # by major version, the minor version that is spoken
_NAMES = {404: "NOT_FOUND", 405: "UNIMPLEMENTED"}
_WAITING = ("input-required", "auth-required", "INPUT_REQUIRED", "AUTH_REQUIRED")
_TRACED = ("Failed to validate base JSON-RPC request", "Failed to parse request params")

logging.getLogger("a2a.server.routes.jsonrpc_dispatcher").addFilter(
    lambda record: record.msg not in _TRACED
)
# The reader of a stream gets the error that ends it; the handler has already logged the others.
logging.getLogger("a2a.server.routes.rest_dispatcher").addFilter(
    lambda record: record.msg != "Error during REST SSE stream"
)


class Mended:
    """An ASGI application around the SDK's; `rest` says which of its two bindings it is."""

    def __init__(self, app: ASGIApp, *, limit: int, nesting: int, rest: bool) -> None:
        self._app = app
        self._limit = limit
        self._nesting = nesting
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = _with_version(scope)
        headers = Headers(scope=scope)
        body = b""
        if scope["method"] in ("POST", "PUT", "PATCH"):
            try:
                body = await self._body(scope, receive)
            except ClientDisconnect:
                # Drop it: the part that arrived may form a whole request, with a decision in it.
                return
            if len(body) > self._limit:
                error = InvalidRequestError(message=f"the body is larger than {self._limit} bytes")
                await self._refuse(error, send, status=413)
                return
            # Cancel and subscribe need no body, and hence no content type.
            if _kind(headers) not in (_ACCEPTED if body else (*_ACCEPTED, "")):
                message = "the body must be sent as 'application/json'"
                await self._refuse(ContentTypeNotSupportedError(message=message), send)
                return
        await turn_to_read(body)
        id, problem = self._problem(scope, body)
        problem = problem or _other_minor(headers.get("a2a-version", ""))
        if problem is not None:
            await self._refuse(problem, send, id=id)
            return
        if self._rest:
            body = as_old_sdk_writes(body)
        plain = self._rest and _ACCEPTED[1] not in headers.get("accept", "").lower()
        asked = get_requested_extensions(headers.getlist("a2a-extensions"))
        beginning = _Sending(
            send,
            plain=plain,
            says_final=self._is_old_stream(scope, body),
            speaks=EXTENSION in asked,
        )
        # The SDK parses it once more.
        await turn_to_read(body)
        try:
            await self._app(scope, _again(body, receive), beginning)
        except A2AError as error:
            # The SDK starts a 0.3 stream before it knows whether there is one, and breaks it off.
            if beginning.has_started:
                await beginning.end(error)
            else:
                await self._refuse(error, send)
        except HTTPException as error:
            # The path does not exist, or not with this method.
            await self._answer(error.status_code, _error(error), send, dict(error.headers or {}))

    def _problem(self, scope: Scope, body: bytes) -> tuple[Any, Problem | None]:
        if self._rest:
            return None, problem_of_rest(body, scope.get("query_string", b""), self._nesting)
        version = Headers(scope=scope).get("a2a-version", "").strip()
        return problem_of_call(body, version, self._nesting)

    def _is_old_stream(self, scope: Scope, body: bytes) -> bool:
        """Whether this is a 0.3 message whose answer is a stream."""
        if self._rest:
            is_old = Headers(scope=scope).get("a2a-version", "0.3").strip()[:2] in ("", "0.")
            return is_old and str(scope["path"]).endswith("/v1/message:stream")
        return b'/stream"' in body and from_json(body).get("method") == "message/stream"

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The body; only the beginning of one that is too large. Raises ClientDisconnect if it
        breaks off."""
        body = bytearray()
        async for piece in Request(scope, receive).stream():
            body += piece
            if len(body) > self._limit:
                break
        return bytes(body)

    async def _refuse(
        self, problem: Problem, send: Send, *, id: Any = None, status: int | None = None
    ) -> None:
        if self._rest and isinstance(problem, A2AError):
            content = build_rest_error_payload(problem)
            content["error"]["code"] = status = status or content["error"]["code"]
            await self._answer(status, content, send)
        else:
            await self._answer(200, build_error_response(id, problem), send)

    async def _answer(
        self, status: int, content: Any, send: Send, more: dict[str, str] | None = None
    ) -> None:
        body = to_json(content)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode()) for name, value in (more or {}).items()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class _Sending:
    """Sends the head of an answer together with its first chunk.

    With `plain` it says `application/json` where the SDK says `application/a2a+json`. Line
    separators inside an event are escaped: the SDK's own client would take them for its end. With
    `says_final` the last event of a 0.3 stream is marked as final. With `speaks` the answer
    confirms our extension, for which the caller asked.
    """

    def __init__(self, send: Send, *, plain: bool, says_final: bool, speaks: bool) -> None:
        self._send = send
        self._speaks = speaks
        self._plain = plain
        self._says_final = says_final
        self._head: Message | None = None
        self._streams = False
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
            headers = MutableHeaders(scope=message)
            self._streams = _kind(headers) == "text/event-stream"
            if self._speaks:
                headers["a2a-extensions"] = EXTENSION
            if self._plain and _kind(headers) == _ACCEPTED[1]:
                headers["content-type"] = _ACCEPTED[0]
            return
        if self._head is not None:
            await self._send(self._head)
            self._head, self.has_started = None, True
        if self._streams:
            body = message.get("body", b"")
            message = {**message, "body": unbroken(_final(body) if self._says_final else body)}
        await self._send(message)

    async def end(self, error: A2AError) -> None:
        """End a stream with an error, as the SDK ends one of 1.0."""
        frame = b"event: error\r\ndata: " + to_json(build_rest_error_payload(error)) + b"\r\n\r\n"
        await self._send({"type": "http.response.body", "body": frame})


def _final(event: bytes) -> bytes:
    """The event of a 0.3 stream, marked as final if the task waits for its caller."""
    if not any(state.encode() in event for state in _WAITING):
        return event
    begin, data, rest = event.partition(b"data: ")
    try:
        content = from_json(rest)
    except ValueError:
        return event
    # JSON-RPC has the event as its result, REST under its name.
    result = content.get("result", content)
    update = result.get("statusUpdate", result)
    state = update.get("status", {}).get("state", "")
    if update.get("kind") == "task" or not state.endswith(_WAITING):
        return event
    update["final"] = True
    return begin + data + to_json(content) + rest[len(rest.rstrip()) :]


def _kind(headers: Headers) -> str:
    """The content type without its parameters; empty when there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _with_version(scope: Scope) -> Scope:
    """The scope with the version as a header if the query has it (A2A 1.0, section 3.6.1)."""
    request = Request(scope)
    given = request.query_params.get("A2A-Version")
    if given is None or "a2a-version" in request.headers:
        return scope
    version = (b"a2a-version", given.encode("latin-1", "replace"))
    return {**scope, "headers": [*scope["headers"], version]}


def _other_minor(version: str) -> A2AError | None:
    """The refusal of another minor version; the SDK would treat it as the supported one (A2A 1.0,
    section 3.6.2)."""
    major, _, rest = version.strip().partition(".")
    minor = rest.partition(".")[0]
    if not minor or _MINOR.get(major, minor) == minor:
        return None
    return VersionNotSupportedError(message="this agent speaks A2A 1.0 and 0.3")


def _error(error: HTTPException) -> dict[str, Any]:
    status = _NAMES.get(error.status_code, "UNKNOWN")
    return {"error": {"code": error.status_code, "status": status, "message": error.detail}}


def _again(body: bytes, receive: Receive) -> Receive:
    """A receive function that returns the body just read, as one message, then whatever follows."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
