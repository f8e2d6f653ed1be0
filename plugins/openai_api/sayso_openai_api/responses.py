"""The paths below /v1/responses: create, read again, stream again, cancel, delete."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from sayso import Host, InvalidRequest, caller_of
from sayso_openai_api.answers import (
    PROTOCOL,
    Json,
    NotFound,
    Streamed,
    answered,
    caller_with,
    check_model,
    while_there,
)
from sayso_openai_api.bodies import ResponseBody, check_count, raw_body, response_bodies
from sayso_openai_api.cards import page_of
from sayso_openai_api.run import Run, continued
from sayso_openai_api.store import Store

_LOST = {"code": "server_error", "message": "the service ended before the response was complete"}


class Responses:
    """The endpoints."""

    def __init__(self, host: Host, store: Store, settings: Any) -> None:
        self._host = host
        self._store = store
        self._settings = settings
        self._running: dict[str, asyncio.Task[None]] = {}

    async def create(self, request: Request) -> ASGIApp:
        """A new response: whole, as a stream, or in the background."""
        limits = self._host.config.limits
        raw = await raw_body(self._host, request)
        body = response_bodies.read(raw, limits.nesting, limits.values)
        check_model(self._host, body.model)
        if body.conversation is not None:
            # Answering without the earlier messages would be worse than this.
            text = "conversations are not kept; go on with previous_response_id"
            raise InvalidRequest.at(["body", "conversation"], "unsupported", text)
        run = await self._run(request, body)
        if body.background:
            return await self._in_background(run, body)
        if body.stream:
            return Streamed(_joined(run.frames()))
        await while_there(_whole(run), request.receive)
        if run.failed is not None:
            raise run.failed
        return answered(run.response)

    async def look(self, request: Request) -> ASGIApp:
        """The response as it stands; with `stream=true` its events after `starting_after`."""
        owner, id_ = _owner(request), request.path_params["id"]
        if request.query_params.get("stream") == "true":
            buffer = await self._host.buffers.find(owner, id_)
            if buffer is None:
                raise NotFound("the stream of this response is not kept here", "stream_not_found")
            given = request.query_params.get("starting_after", "-1")
            if not given.removeprefix("-").isdecimal():
                loc = ["query", "starting_after"]
                raise InvalidRequest.at(loc, "int_parsing", "a sequence number is a whole number")
            return Streamed(_joined(buffer.read(max(0, int(given) + 1))))
        return answered((await self._kept(owner, id_))["response"])

    async def items(self, request: Request) -> ASGIApp:
        """The input items of the response."""
        kept = await self._kept(_owner(request), request.path_params["id"])
        data = kept["input"]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        return answered({"object": "list", "data": data, "has_more": False, **ends})

    async def delete(self, request: Request) -> ASGIApp:
        """Forget it."""
        id_ = request.path_params["id"]
        if not await self._store.delete(_owner(request), id_):
            raise _unknown(id_)
        return answered({"id": id_, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> ASGIApp:
        """Stop a response that runs in the background; a started call still ends."""
        owner, id_ = _owner(request), request.path_params["id"]
        kept = await self._kept(owner, id_)
        if (task := self._running.get(id_)) is not None:
            task.cancel()
            await asyncio.wait({task})
            kept = await self._kept(owner, id_)
        return answered(kept["response"])

    async def _run(self, request: Request, body: ResponseBody) -> Run:
        before = None
        if body.previous_response_id is not None:
            before = await self._kept(_owner(request), body.previous_response_id)
        given = continued(before)
        given.read(body.input)
        check_count(self._host, len(given.shown))
        said = [body.instructions or "", *given.instructions]
        instructions = "\n\n".join(text for text in said if text.strip())
        return Run(
            self._host,
            self._store,
            caller_with(request, instructions),
            body,
            given,
            session=before["session"] if before is not None else None,
            page=page_of(self._host, self._settings.page),
        )

    async def _in_background(self, run: Run, body: ResponseBody) -> ASGIApp:
        if not body.store:
            loc = ["body", "store"]
            raise InvalidRequest.at(loc, "unsupported", "a response in the background is stored")
        id_ = run.response["id"]
        buffer = self._host.buffers.open(run.owner, id_)
        await run.keep()

        async def work() -> None:
            try:
                async with aclosing(run.frames()) as pieces:
                    async for frames in pieces:
                        buffer.put(*frames)
            except asyncio.CancelledError:
                buffer.put(*run.last)
                raise
            finally:
                buffer.end()
                self._running.pop(id_, None)

        self._running[id_] = asyncio.ensure_future(work())
        if body.stream:
            return Streamed(_joined(buffer.read()))
        return answered(run.response)

    async def _kept(self, owner: str, id: str) -> Json:
        if (kept := await self._store.get(owner, id)) is None:
            raise _unknown(id)
        response = kept["response"]
        if response["status"] == "in_progress" and time.time() > kept["until"]:
            # Its process has ended without a report.
            response |= {"status": "failed", "error": _LOST}
        return kept

    async def close(self) -> None:
        """End all background work."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _joined(frames: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(frames) as pieces:
        async for some in pieces:
            yield b"".join(some)


async def _whole(run: Run) -> None:
    async with aclosing(run.frames()) as pieces:
        async for _ in pieces:
            pass


def _owner(request: Request) -> str:
    return caller_of(request.scope, PROTOCOL).principal or ""


def _unknown(id: str) -> NotFound:
    return NotFound(f"there is no response {id[:100]!r}", "response_not_found")
