"""The shared parts of all paths: the form of errors, the caller, and waiting for a client that may
leave."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso import (
    Caller,
    ErrorEvent,
    Failure,
    Host,
    InvalidRequest,
    RequestError,
    caller_of,
    sse_reply,
)

PROTOCOL = "openai_api"
Json = dict[str, Any]
T = TypeVar("T")
Answer = Callable[[Request], Awaitable[ASGIApp]]

_FINAL = {409, 500, 502, 504}
"""Statuses after which the SDKs would try again in vain, or run the agent twice."""


class NotFound(RequestError):
    """404: there is no such model, response or path."""

    status = 404

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Endpoint:
    """An ASGI application around `answer`; refusals have the form of OpenAI's."""

    def __init__(self, host: Host, answer: Answer) -> None:
        self._host = host
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await self._answer(Request(scope, receive, send))
        except asyncio.CancelledError:
            return
        except Failed as failed:
            app = refusal(failed, failed.failure)
        except Exception as error:
            app = refusal(error, self._host.failure(error))
        await app(scope, receive, send)


class Streamed:
    """The ASGI application that sends these frames as Server-Sent Events."""

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await sse_reply(self._frames, receive, send, [request_id(None)])


def answered(body: Json, status: int = 200, incident: str | None = None) -> Response:
    """The reply with `body` as JSON."""
    response = Response(to_json(body), status, media_type="application/json")
    response.raw_headers.append(request_id(incident))
    return response


def request_id(incident: str | None) -> tuple[bytes, bytes]:
    """The header that the SDKs show with an error; an incident's id finds the log record."""
    return (b"x-request-id", (incident or f"req_{secrets.token_hex(12)}").encode())


class Failed(Exception):
    """The turn failed, or was refused; `failure` says how."""

    def __init__(self, event: ErrorEvent, failure: Failure | None) -> None:
        super().__init__(event.words)
        # Without one, the agent's own code has sent the event.
        known = failure or Failure(500, event.code or "AGENT_ERROR", event.error, event.incident)
        self.failure = replace(known, message=event.words)


def refusal(error: Exception, failure: Failure) -> Response:
    """The reply to a request that is refused or has failed."""
    items = error.items if isinstance(error, InvalidRequest) else ()
    param = ".".join(map(str, items[0]["loc"][1:])) if items else ""
    status = 400 if failure.status == 422 else failure.status
    body = {"error": error_of(failure, param or None)}
    response = answered(body, status, failure.incident)
    response.raw_headers += failure.headers
    if status in _FINAL:
        response.raw_headers.append((b"x-should-retry", b"false"))
    return response


def error_of(failure: Failure, param: str | None = None) -> Json:
    """A failure in the form of these clients; `code` is V2's, in lower case where V2 has that."""
    code = failure.code.lower() if failure.status in (404, 422) else failure.code
    said = failure.message
    if failure.incident:
        said = f"{said} (incident {failure.incident})"
    return {"message": said, "type": _kind(failure.status), "param": param, "code": code}


def _kind(status: int) -> str:
    if status in (401, 403):
        return "authentication_error"
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


async def nothing_here(request: Request) -> ASGIApp:
    """Refuse every other path."""
    raise NotFound(f"there is no {request.method} {request.url.path} here", "unknown_url")


def caller_with(request: Request, instructions: str, *, tools: bool = True) -> Caller:
    """The caller; `instructions` reach the agent's context."""
    known = caller_of(request.scope, PROTOCOL)
    fields = {"instructions": instructions} if instructions else None
    return known._replace(request_fields=fields, tools=tools)


def check_model(host: Host, model: object) -> str:
    """The requested name; raises NotFound unless it is the agent's."""
    if model != host.agent.name:
        raise NotFound(
            f"there is no model {str(model)[:100]!r}; the agent is {host.agent.name!r}",
            "model_not_found",
        )
    return host.agent.name


async def while_there(work: Awaitable[T], receive: Receive) -> T:
    """The result of `work`, which is cancelled when the client leaves before that."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        return await task
    finally:
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
