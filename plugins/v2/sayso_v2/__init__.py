"""The chat endpoints: POST /api/chat, POST /api/chat-stream and the WebSocket /api/chat-ws.

interface.md, "Endpoints".
"""

from starlette.routing import Route, Router, WebSocketRoute

from sayso import ChatEndpoint, Host, Plugin, hookimpl
from sayso_v2.socket import ChatSocket

__all__ = ["V2"]


class V2(Plugin):
    """The three V2 paths; request fields are forwarded and echoed."""

    name = "v2"

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The router with all three paths."""
        chat = ChatEndpoint(host, "v2", forward_fields=True)
        stream = ChatEndpoint(host, "v2", stream=True, forward_fields=True)
        router = Router()
        router.routes.append(Route("/api/chat", chat, methods=["POST"]))
        router.routes.append(Route("/api/chat-stream", stream, methods=["POST"]))
        router.routes.append(WebSocketRoute("/api/chat-ws", ChatSocket(chat)))
        return router
