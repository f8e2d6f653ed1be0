"""The UI message stream of the Vercel AI SDK: `useChat`, assistant-ui and others, with approvals.

    [plugin.ui_stream]
    path = "/ai/chat"

    useChat({ transport: new DefaultChatTransport({ api: "https://agent.example.com/ai/chat" }),
              sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses })

The id of a call, and of the question whether to run it, is the ledger's.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import Field
from starlette.responses import Response
from starlette.routing import Route, Router

from sayso import Failure, Host, Plugin, hookimpl
from sayso_ui_stream.endpoint import Chat, refusal

__all__ = ["UIStream"]


class UIStream(Plugin):
    """One path; active when named in `plugins`, or by a table `[plugin.ui_stream]`."""

    name = "ui_stream"
    active_by_default = False

    class Settings(Plugin.Settings):
        """`[plugin.ui_stream]`."""

        path: str = Field(default="/ai/chat", pattern=r"^(/[A-Za-z0-9._~-]+)+$")
        """The path that pages post their messages to."""
        resume: bool = False
        """Whether a turn continues when its page leaves, and the page may read it again: `resume`
        of `useChat`. The button Stop then needs `POST PATH/{chat}/stop`."""

    _chat: Chat | None = None

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The path, and with `resume` those to read a stream again and to stop it."""
        path = self.settings.path
        chat = self._chat = Chat(host, resumes=self.settings.resume)
        router = Router()
        router.routes.append(Route(path, chat.post, methods=["POST"]))
        if self.settings.resume:
            router.routes.append(Route(f"{path}/{{chat}}/stream", chat.again, methods=["GET"]))
            router.routes.append(Route(f"{path}/{{chat}}/stop", chat.stop, methods=["POST"]))
        return router

    def refusal(self, error: Exception, failure: Failure) -> Response:
        """A sentence, which pages show as it is."""
        return refusal(failure)

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_ui_stream.described import openapi_paths

        return openapi_paths(self.settings.path)

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """End the turns whose pages have left."""
        assert self._chat is not None
        try:
            yield
        finally:
            await self._chat.close()
