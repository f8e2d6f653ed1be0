"""A path of the inbox as an ASGI application: it checks access, answers, and refuses."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sayso import Caller, Host, caller_of, check_access, standard_error
from sayso_approvals.replies import reply

PROTOCOL = "inbox"
Handler = Callable[[Request, Caller], Awaitable[Response]]


class Endpoint:
    """Answers the methods of one path."""

    def __init__(self, host: Host, handlers: Mapping[str, Handler]) -> None:
        self.host = host
        self.handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            check_access(self.host, scope)
            # HEAD is answered as GET is.
            handler = self.handlers.get(request.method) or self.handlers["GET"]
            answer = await handler(request, caller_of(scope, PROTOCOL))
        except Exception as error:
            failure = self.host.failure(error)
            status, body = standard_error(error, failure)
            answer = reply(body, status=status)
            answer.raw_headers += failure.headers
        await answer(scope, receive, send)
