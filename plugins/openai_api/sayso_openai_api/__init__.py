"""OpenAI-compatible endpoints: Chat Completions, Responses and the list of models.

    [plugin.openai_api]
    hold = "50s"
    page = "https://agent.example.com/console"

The agent takes the place of a model: its name is the model's. Its gated calls are never sent as
`tool_calls`, which a client would run itself: over Responses they are `mcp_approval_request`s, over
Chat Completions cards that name the page where a person decides.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import Field, field_validator
from starlette.responses import Response
from starlette.routing import Route, Router

from sayso import (
    ChatRequest,
    Duration,
    Failure,
    Host,
    KeptBeside,
    Plugin,
    Removed,
    RequestContext,
    Subject,
    hookimpl,
)
from sayso_openai_api.answers import PROTOCOL, Endpoint, nothing_here, refusal
from sayso_openai_api.chat import Chat
from sayso_openai_api.listing import Models
from sayso_openai_api.responses import Responses
from sayso_openai_api.store import FILE, Store, file_of

__all__ = ["OpenAIAPI"]


class OpenAIAPI(Plugin):
    """The paths below /v1; active when named in `plugins`, or by a table `[plugin.openai_api]`."""

    name = "openai_api"
    active_by_default = False

    class Settings(Plugin.Settings):
        """`[plugin.openai_api]`."""

        hold: Duration = Field(default=50.0, ge=0)
        """How long a Chat Completions stream is held open for a person to decide; 0: not at all."""
        page: str | None = None
        """Address of the page where people decide, as they reach it; absent: that of the
        console, if the service listens on an address of its own."""
        keep: Duration = Field(default=24 * 3600.0, gt=0)
        """How long a response is kept for `previous_response_id` and for reading it again."""

        @field_validator("page")
        @classmethod
        def _as_browsers_open_it(cls, page: str | None) -> str | None:
            if page is not None and not page.startswith(("http://", "https://")):
                raise ValueError("expected an address such as 'https://example.com/console'")
            return page

    _store: Store | None = None

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The paths below /v1; all others there are 404 in the form of these clients."""
        store = self._store = Store(file_of(host), self.settings.keep)
        models = Models(host)
        responses = self._responses = Responses(host, store, self.settings)
        router = Router()
        for path, method, answer in (
            ("/v1/models", "GET", models.listed),
            ("/v1/models/{model:path}", "GET", models.one),
            ("/v1/chat/completions", "POST", Chat(host, store, self.settings).answer),
            ("/v1/responses", "POST", responses.create),
            ("/v1/responses/{id}", "GET", responses.look),
            ("/v1/responses/{id}", "DELETE", responses.delete),
            ("/v1/responses/{id}/cancel", "POST", responses.cancel),
            ("/v1/responses/{id}/input_items", "GET", responses.items),
        ):
            router.routes.append(Route(path, Endpoint(host, answer), methods=[method]))
        every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        rest = Endpoint(host, nothing_here)
        router.routes.append(Route("/v1/{rest:path}", rest, methods=every, include_in_schema=False))
        return router

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_openai_api.described import openapi_paths

        return openapi_paths(host)

    def refusal(self, error: Exception, failure: Failure) -> Response:
        """The form of OpenAI's errors."""
        return refusal(error, failure)

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Keep the store of responses open."""
        assert self._store is not None
        await self._store.open()
        try:
            yield
        finally:
            await self._responses.close()
            await self._store.close()

    @hookimpl
    async def erase_subject(self, subject: Subject, kept: KeptBeside) -> Removed | None:
        """Forget responses and conversations, which have the principal's name and no tenant's."""
        if subject.principal is None:
            return None
        erased = 0
        for folder in kept.folders:
            if (file := folder / FILE).exists():
                store = Store(file, self.settings.keep)
                await store.open()
                try:
                    erased += await store.erase(subject.principal)
                finally:
                    await store.close()
        return Removed("response", erased)

    @hookimpl
    def intercept_request(self, request: ChatRequest, context: RequestContext) -> None:
        """Return None; the client's `system`, `developer` or `instructions` become context."""
        if context.protocol == PROTOCOL and (words := context.request_fields.get("instructions")):
            context.add_system_context(str(words))
