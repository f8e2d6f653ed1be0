"""Streams that a client continues reading after it lost its connection.

    POST /api/chat-stream      {"messages": [...], "resumable": "ID"}     N lines, then it breaks
    GET  /api/chat-stream/ID?after=N                                       the rest

The client chooses the ID, at random, before anything can break; over `/api/chat-ws` it sends the
frame `{"resume": "ID", "after": N}`. Reading starts nothing: no turn, no model call, no decision.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from sayso import (
    Host,
    InvalidRequest,
    Plugin,
    StreamUnknown,
    caller_of,
    hookimpl,
    openapi_operation,
    openapi_query,
    standard_error,
)
from sayso_resume.machines import Machines
from sayso_resume.neighbours import Neighbours

__all__ = ["Resume"]

_HOST_AND_PORT = r"^(?:[^\s:\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$"
_COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 0, "default": 0}
HEADERS: Mapping[str, str] = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def _has_a_port(address: str) -> str:
    if not 0 < int(address.rpartition(":")[2]) < 2**16:
        raise ValueError("a port is a number from 1 to 65535")
    return address


Address = Annotated[str, Field(pattern=_HOST_AND_PORT), AfterValidator(_has_a_port)]


class Resume(Plugin):
    """The path for continuing a stream; active when named in `plugins`, or by a table."""

    name = "resume"
    active_by_default = False

    class Settings(Plugin.Settings):
        """`[plugin.resume]`, where other machines serve the same agent."""

        listen: Address | None = None
        """`HOST:PORT`, on a private network, on which this machine answers the others. Streams
        are not encrypted there."""
        peers: list[Address] = []
        """`HOST:PORT` of each machine; a name stands for all of its addresses."""
        key: SecretStr | None = None
        """Secret of at least 32 characters, the same on all machines; without it a machine gets
        no stream of another."""

        @model_validator(mode="after")
        def _belong_together(self) -> Self:
            if not bool(self.listen) == bool(self.peers) == bool(self.key):
                raise ValueError("'listen', 'peers' and 'key' are needed together")
            if self.key and len(self.key.get_secret_value()) < 32:
                raise ValueError("'key' must have at least 32 characters")
            return self

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The path; from now on requests may ask for their streams to be kept."""
        host.buffers.offered = True
        router = Router()
        router.routes.append(Route("/api/chat-stream/{id}", _Rest(host), methods=["GET"]))
        return router

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operation of the path."""
        rest = openapi_operation(
            "Continue reading a stream",
            "The lines of a stream after the first `after` ones. Reading starts nothing: no turn, "
            "no model call, no decision.",
            answers={"type": "object", "description": "One event a line, as in the stream."},
            media="application/x-ndjson",
            parameters=[openapi_query("after", "The number of lines that you have.", **_COUNT)],
            refusals={
                "404": "There is no such stream for this caller.",
                "410": "Lines that you lack are no longer kept.",
                "422": "`after` is no number.",
            },
        )
        return {"/api/chat-stream/{id}": {"get": rest}}

    @hookimpl
    def lifespan(self, host: Host) -> AbstractAsyncContextManager[None]:
        """Find the streams of other processes and machines, and answer them."""
        given, machines = self.settings, None
        if given.listen and given.key:
            machines = Machines(given.listen, given.peers, given.key.get_secret_value())
        return Neighbours(host, machines).answering()


class _Rest:
    """The ASGI application that sends the lines of a stream after the first `after`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            response: Response = await self._answer(request)
        except Exception as error:
            status, body = standard_error(error, self._host.failure(error))
            response = Response(to_json(body), status, media_type="application/json")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        owner = caller_of(request.scope, "v2").principal
        buffer = await self._host.buffers.find(owner, request.path_params["id"])
        if buffer is None:
            raise StreamUnknown
        after = request.query_params.get("after", "0")
        if not after.isdecimal() or len(after) > 15:
            loc: list[str | int] = ["query", "after"]
            raise InvalidRequest.at(loc, "int_parsing", "a number of lines, 0 or more")
        rest = buffer.read(int(after))
        # Missing frames are detected with the first piece, before the head is sent.
        first: list[bytes] = []
        with suppress(StopAsyncIteration):
            first = await anext(rest)
        return StreamingResponse(
            _lines(first, rest), media_type="application/x-ndjson", headers=HEADERS
        )


async def _lines(
    first: list[bytes], rest: AsyncGenerator[list[bytes], None]
) -> AsyncGenerator[bytes, None]:
    yield b"".join(first)
    async with aclosing(rest):
        async for lines in rest:
            yield b"".join(lines)
