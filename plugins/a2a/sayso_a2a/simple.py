"""The adapter `simple`: the contract's three routes and one to cancel.

    GET  /.well-known/agent.json     the agent card
    POST /a2a/tasks/send             {"message": "...", "id"?: "...", "data"?: Data}
    GET  /a2a/tasks/{id}             the task
    POST /a2a/tasks/{id}/cancel      the task, canceled

interface.md, "Endpoints" and rule 7; design, sections 7 and 10.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import AliasChoices, BaseModel, Field, StrictStr
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from sayso import BodyReader, Data, Host, PluginError, caller_of, read_body, standard_error
from sayso_a2a.card import base_url, custom_card, simple_card
from sayso_a2a.incoming import PROTOCOL
from sayso_a2a.owners import owner_of
from sayso_a2a.settings import Settings, task_store
from sayso_a2a.tasks import Tasks

Answer = Callable[[Request], Awaitable[Response]]

_TRUE = ("1", "true", "yes", "on")


class SendBody(BaseModel):
    """The body of `POST /a2a/tasks/send`; `task_id`, as in answers, is accepted for `id` too."""

    message: StrictStr
    id: Annotated[StrictStr, Field(min_length=1, max_length=200)] | None = Field(
        default=None, validation_alias=AliasChoices("id", "task_id")
    )
    data: Data | None = None


_bodies = BodyReader(SendBody)


class Simple:
    """The contract's agent-to-agent endpoints, on a bounded store of tasks."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self._host = host
        self._settings = settings
        self._custom = custom_card(host, settings.agent_card)
        if settings.database and settings.adapter == "simple":
            raise PluginError(
                "plugin.a2a.database is where the adapter 'a2a' keeps its tasks; the adapter "
                "'simple' keeps them where the ledger is: take it out, and set approvals.ledger "
                "to 'postgresql://...' for several machines"
            )
        self._tasks = Tasks(host, task_store(host, "simple", settings), settings.approvals)

    def router(self) -> Router:
        """The routes."""
        router = Router()
        for path, method, answer in (
            ("/.well-known/agent.json", "GET", self._card),
            ("/a2a/tasks/send", "POST", self._send),
            ("/a2a/tasks/{id}", "GET", self._look),
            ("/a2a/tasks/{id}/cancel", "POST", self._cancel),
        ):
            router.routes.append(Route(path, _Endpoint(self._host, answer), methods=[method]))
        return router

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Open the store; at the end, running tasks are recorded as failed."""
        await self._tasks.open()
        try:
            yield
        finally:
            await self._tasks.close()

    async def _card(self, request: Request) -> Response:
        url = base_url(request.scope, self._settings)
        return _json(simple_card(self._host, url, self._custom))

    async def _look(self, request: Request) -> Response:
        caller = caller_of(request.scope, PROTOCOL)
        task = await self._tasks.look(owner_of(caller.principal), request.path_params["id"])
        return _json(task.json_body())

    async def _cancel(self, request: Request) -> Response:
        caller = caller_of(request.scope, PROTOCOL)
        task = await self._tasks.cancel(caller, request.path_params["id"])
        return _json(task.json_body())

    async def _send(self, request: Request) -> Response:
        limits = self._host.config.limits
        raw = await read_body(request.scope, request.receive, limits.body)
        body = _bodies.read(raw, limits.nesting, limits.values)
        caller = caller_of(request.scope, PROTOCOL)
        at_once = request.query_params.get("async", "").lower() in _TRUE
        task, run = await self._tasks.send(caller, body.id, body.message, body.data, keep=at_once)
        if at_once:
            return _json(task.json_body())
        gone = asyncio.ensure_future(_disconnected(request.receive))
        try:
            await asyncio.wait({run, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not run.done() and self._host.config.server.on_disconnect == "cancel":
                run.cancel()
            await asyncio.wait({run})
        finally:
            gone.cancel()
        if run.cancelled():
            return _json((await self._tasks.look(task.owner, task.id)).json_body())
        return _json(run.result().json_body())


class _Endpoint:
    """An ASGI application around `answer` whose refusals have the form of V2's."""

    def __init__(self, host: Host, answer: Answer) -> None:
        self._host = host
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except Exception as error:
            response = self._refusal(error)
        await response(scope, receive, send)

    def _refusal(self, error: Exception) -> Response:
        failure = self._host.failure(error)
        status, body = standard_error(error, failure)
        response = _json(body, status)
        response.raw_headers += failure.headers
        return response


def _json(body: object, status: int = 200) -> Response:
    return Response(to_json(body), status, media_type="application/json")


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
