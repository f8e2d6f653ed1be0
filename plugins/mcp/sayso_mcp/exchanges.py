"""Notes on HTTP requests that the SDK's errors lack: whether a call may have taken effect."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError

from sayso_mcp.lines import LARGEST
from sayso_mcp.source import Headers, check_headers

_REFUSED = {307, 308, 401, 403, 404, 405, 406, 413, 415, 421, 429}
"""Statuses of a server that did not look at the call, or redirects it."""
_NOT_RUN = {
    types.HEADER_MISMATCH,
    types.INVALID_PARAMS,
    types.INVALID_REQUEST,
    types.METHOD_NOT_FOUND,
    types.MISSING_REQUIRED_CLIENT_CAPABILITY,
    types.UNSUPPORTED_PROTOCOL_VERSION,
    types.URL_ELICITATION_REQUIRED,
}
"""Protocol errors that mean that the call was not started."""
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


@dataclass(slots=True)
class Exchange:
    """The POSTs of one call, or of a connection that is being made; none over stdio."""

    posts: int = 0
    refused: int = 0
    """How many of them were not sent, or were refused unseen."""
    status: int | None = None
    """The status of the last answer; None for success."""
    problem: Exception | None = None
    """Why there is no last answer."""

    def note(self, answer: httpx2.Response | Exception) -> None:
        """Note the answer to a POST, or its failure."""
        if isinstance(answer, Exception):
            self.status, self.problem = None, answer
            self.refused += isinstance(answer, _UNSENT)
        else:
            self.status = None if answer.is_success else answer.status_code
            self.problem = None
            self.refused += self.status in _REFUSED

    def may_have_run(self, error: Exception) -> bool:
        """Whether a call that ended with `error` may have taken effect; false only if it was not
        sent or was refused."""
        if self.posts and self.posts == self.refused:
            return False
        if not isinstance(error, MCPError) or error.code not in _NOT_RUN:
            return True
        # The SDK makes up this error itself when an answer is not a message of the protocol.
        made_up = self.posts > 0 and (self.status is None or self.status < 400)
        return error.code == types.INVALID_REQUEST and made_up


exchange: ContextVar[Exchange] = ContextVar("exchange")
"""The exchange that a POST belongs to: the SDK sends each one in the context of its caller."""


class Http(httpx2.AsyncClient):
    """An HTTP client that notes the outcome of each POST.

    With `failed` it reads each answer whole, and calls `failed` in cases after which the SDK would
    send nothing more. `own` returns headers for each request.
    """

    def __init__(
        self, own: Headers | None = None, failed: Callable[[], None] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._own = own
        self._failed = failed

    async def _sent(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if self._own is not None:
            request.headers.update(await _made(self._own))
        return await super().send(request, **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send `request`."""
        if request.method != "POST":
            return await self._sent(request, **options)
        if self._failed is not None:
            options["stream"] = False
        noted = exchange.get(Exchange())
        noted.posts += 1
        try:
            answer = await self._sent(request, **options)
            if self._failed is None and _is_json(answer):
                answer = await _whole(answer)
        except Exception as error:
            noted.note(error)
            if self._failed is not None:
                self._failed()
            raise
        noted.note(answer)
        if self._failed is not None and not (answer.is_success or _is_followed(answer)):
            self._failed()
        return answer


async def _made(own: Headers) -> Mapping[str, str]:
    """The headers from the author's function. Raises ConnectError if it fails, because the request
    is not sent then."""
    try:
        # The function may ask a server for a token, and block.
        made = await asyncio.to_thread(own)
        made = await made if inspect.isawaitable(made) else made
        check_headers(made)
    except Exception as error:
        # The exception's own message may contain a credential.
        what = f"the function for the headers failed with {type(error).__name__}"
        raise httpx2.ConnectError(what) from None
    return made


def _is_json(answer: httpx2.Response) -> bool:
    return answer.headers.get("content-type", "").lower().startswith("application/json")


async def _whole(answer: httpx2.Response) -> httpx2.Response:
    """The answer with its whole body, which the SDK would read, and decompress, without a bound.
    Raises ReadError if it is too long."""
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > LARGEST:
            await answer.aclose()
            message = f"the answer has more than {LARGEST} bytes"
            raise httpx2.ReadError(message, request=answer.request)
    packed = ("content-encoding", "content-length", "transfer-encoding")
    return httpx2.Response(
        answer.status_code,
        headers=[each for each in answer.headers.multi_items() if each[0].lower() not in packed],
        content=bytes(body),
        request=answer.request,
        extensions=answer.extensions,
        history=answer.history,
    )


def _is_followed(answer: httpx2.Response) -> bool:
    """Whether the answer is a redirect that the SDK may follow."""
    following = answer.next_request
    if following is None:
        return False
    return following.method == "POST" and following.url.host == answer.request.url.host
