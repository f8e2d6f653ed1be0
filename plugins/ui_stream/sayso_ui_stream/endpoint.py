"""The path that pages post to, and the two by which they read a stream again or stop it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso import Caller, Failure, Host, InvalidRequest, asked, caller_of, read_body, sse_reply
from sayso_ui_stream.chunks import Chunks
from sayso_ui_stream.messages import Read, bodies, read

PROTOCOL = "ui_stream"
_HEADERS = [(b"x-vercel-ai-ui-message-stream", b"v1")]
_WAITS = (
    "Calls wait for your decision. Approve or reject them first; your message was not answered."
)
Key = tuple[str | None, str]
Answer = Callable[[Request], Awaitable[ASGIApp]]


class Streamed:
    """The ASGI application that sends these frames."""

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await sse_reply(self._frames, receive, send, _HEADERS)


class Chat:
    """The endpoints. A chat's latest turn can be read again where the plugin `resumes`."""

    def __init__(self, host: Host, *, resumes: bool) -> None:
        self._host = host
        self._resumes = resumes
        self._running: dict[Key, asyncio.Task[None]] = {}
        self.post = _Endpoint(host, self._post)
        self.again = _Endpoint(host, self._again)
        self.stop = _Endpoint(host, self._stop)

    async def close(self) -> None:
        """End all running turns."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _post(self, request: Request) -> ASGIApp:
        limits = self._host.config.limits
        raw = await read_body(request.scope, request.receive, limits.body)
        body = bodies.read(raw, limits.nesting, limits.values)
        if len(body.messages) > limits.messages:
            text = f"there are more than {limits.messages} messages"
            raise InvalidRequest.at(["body", "messages"], "too_long", text)
        caller = caller_of(request.scope, PROTOCOL)._replace(request_fields=body.fields)
        resumes = self._resumes and bool(body.id)
        frames = _frames(self._host, caller, read(body), resumes=resumes)
        if not resumes:
            return Streamed(_joined(frames))
        return Streamed(_joined(self._kept((caller.principal, body.id), frames)))

    def _kept(
        self, key: Key, frames: AsyncGenerator[list[bytes], None]
    ) -> AsyncGenerator[list[bytes], None]:
        """The frames of a turn that continues when its reader leaves."""
        buffer = self._host.buffers.open(key[0], f"{PROTOCOL} {key[1]}", replace=True)

        async def work() -> None:
            try:
                async with aclosing(frames) as pieces:
                    async for some in pieces:
                        buffer.put(*some)
            except asyncio.CancelledError:
                buffer.put(*Chunks(Read()).failed("the turn was stopped"))
                raise
            finally:
                buffer.end()

        task = self._running[key] = asyncio.ensure_future(work())
        task.add_done_callback(partial(self._forget, key))
        return buffer.read()

    def _forget(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._running.get(key) is task:
            del self._running[key]

    async def _again(self, request: Request) -> ASGIApp:
        """The stream of the chat's latest turn from its beginning; 204 if none runs."""
        key = _key(request)
        buffer = await self._host.buffers.find(key[0], f"{PROTOCOL} {key[1]}")
        if buffer is None or not buffer.running:
            return Response(status_code=204)
        return Streamed(_joined(buffer.read()))

    async def _stop(self, request: Request) -> ASGIApp:
        """End the chat's turn; a started call still ends."""
        task = self._running.get(_key(request))
        if task is not None:
            task.cancel()
        return Response(status_code=204)


def refusal(failure: Failure) -> Response:
    """The answer to a refused request: pages show its body as it is."""
    response = PlainTextResponse(failure.message, failure.status)
    response.raw_headers += failure.headers
    return response


class _Endpoint:
    """An ASGI application around `answer`."""

    def __init__(self, host: Host, answer: Answer) -> None:
        self._host = host
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await self._answer(Request(scope, receive, send))
        except Exception as error:
            app = refusal(self._host.failure(error))
        await app(scope, receive, send)


async def _frames(
    host: Host, caller: Caller, given: Read, *, resumes: bool
) -> AsyncGenerator[list[bytes], None]:
    """The frames of one reply, in pieces as they come."""
    chunks = Chunks(given)
    try:
        wanted = await asked(
            host.calls,
            caller,
            given.shown,
            given.decisions,
            reported=given.reported,
            session=given.session,
            supersede=host.config.approvals.on_new_message == "supersede",
        )
        if wanted.request is None:
            yield [*chunks.restated(wanted.pending, _WAITS)]
            return
        stream = host.stream(wanted.request, caller)
        try:
            while events := await stream.ready():
                yield [chunk for event in events for chunk in chunks.of(event)]
        except asyncio.CancelledError:
            if resumes:
                # The page did not leave: the turn itself was stopped.
                stream.stop()
            raise
        finally:
            await stream.aclose()
    except Exception as error:
        yield [*chunks.failed(host.failure(error).message)]


async def _joined(frames: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(frames) as pieces:
        async for some in pieces:
            yield b"".join(some)


def _key(request: Request) -> Key:
    return caller_of(request.scope, PROTOCOL).principal, request.path_params["chat"]
