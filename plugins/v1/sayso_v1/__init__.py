"""The deprecated chat endpoints: POST /api/sendMessage and /api/sendMessageStream.

interface.md, "Endpoints" and "Errors".
"""

from typing import Any

from starlette.routing import Route, Router

from sayso import ChatEndpoint, Failure, Host, Plugin, RequestError, hookimpl

__all__ = ["V1"]


def v1_error(error: BaseException, failure: Failure) -> tuple[int, dict[str, Any]]:
    """V1's error table: `{detail}` alone, and one sentence for any failure of the agent."""
    if isinstance(error, RequestError):
        if error.items:
            return 422, {"detail": error.items}
        return error.status, {"detail": failure.message}
    incident = f" (incident {failure.incident})" if failure.incident else ""
    detail = f"Agent returned an invalid message: {failure.message}{incident}"
    return 500, {"detail": "\n".join([detail, *failure.carried_out()])}


class V1(Plugin):
    """The two V1 paths, without request fields, echo and WebSocket."""

    name = "v1"

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The router with both paths."""
        router = Router()
        for path, stream in (("/api/sendMessage", False), ("/api/sendMessageStream", True)):
            endpoint = ChatEndpoint(host, "v1", stream=stream, errors=v1_error, deprecated=True)
            router.routes.append(Route(path, endpoint, methods=["POST"]))
        return router
