"""A provider's address and key, checked at the start.

Found later, a mistake in them would look like a lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from ssl import SSLContext
from typing import Any

import httpx2

from sayso.errors import ConfigError, ReplyTooLarge

REPLY = 64 * 2**20
"""Most bytes of a reply if no limit is configured."""
PLAIN = {"accept-encoding": "identity"}
"""Asks for uncompressed replies: the size of a compressed one does not bound its content."""
LARGEST_EVENT = 16 * 2**20
"""Most bytes of one server-sent event of a reply."""


class _Bounded(httpx2.AsyncByteStream):
    """The body of a reply; reading fails once it, or one event of it, exceeds its limit.

    Sayso and the providers' SDKs keep everything that they have read of an event and of a reply.
    """

    def __init__(
        self,
        response: httpx2.Response,
        body: httpx2.AsyncByteStream,
        limit: int,
        between: float | None,
    ) -> None:
        self._body = body
        self._limit = limit
        self._between = between
        self._request = response.request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = event = 0
        async for piece in self._pieces():
            size += len(piece)
            end = max(piece.rfind(b"\n\n"), piece.rfind(b"\r\n\r\n"), piece.rfind(b"\r\r"))
            event = event + len(piece) if end < 0 else len(piece) - end
            if size > self._limit:
                raise ReplyTooLarge(self._limit)
            if event > LARGEST_EVENT:
                raise ReplyTooLarge(LARGEST_EVENT, "bytes in one event")
            yield piece

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The pieces of the body; the wait for the first one is limited by the client alone."""
        pieces = aiter(self._body)
        first = True
        while True:
            try:
                async with asyncio.timeout(None if first else self._between):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise httpx2.ReadTimeout("no more came", request=self._request) from error
            first = first and not piece
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def bounded(limit: int, between: float | None = None) -> dict[str, list[Callable[..., Any]]]:
    """The hooks of an HTTP client that break a response off after `limit` bytes, or where nothing
    comes for `between` seconds after its first piece."""

    async def bound(response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response, response.stream, limit, between)
        # A provider that compresses in spite of PLAIN fails here: its bytes are no event stream.
        response.headers.pop("content-encoding", None)

    return {"response": [bound]}


def checked_address(address: str, provider: str, example: str) -> httpx2.URL:
    """`address` as a URL. Raises ConfigError for any but an http(s) one."""
    try:
        url = httpx2.URL(address)
    except (httpx2.InvalidURL, ValueError):
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise ConfigError(
            f"the base URL of model {provider!r} is no http(s) address; try one such as {example!r}"
        )
    return url


def check_key(key: str, model: str) -> None:
    """Raise ConfigError, which does not show it, for a key that no header can carry."""
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ConfigError(
            f"the key for model {model!r} has a line end, a space around it or a character that "
            "no request can carry; set it without"
        )


def certificates() -> SSLContext:
    """The certificates that a provider's is checked against; reading them takes tens of
    milliseconds.

    Raises ConfigError if the environment names certificates that cannot be read, or an unusable
    proxy.
    """
    try:
        found = httpx2.create_ssl_context()
    except OSError as error:
        why = f"{type(error).__name__}: {error.strerror or error}"
        raise ConfigError(
            f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read ({why})"
        ) from None
    try:
        httpx2.AsyncClient(verify=found)
    except ImportError:
        raise ConfigError(
            "ALL_PROXY, HTTPS_PROXY or HTTP_PROXY names a SOCKS proxy, which needs another "
            "package; try: pip install 'httpx2[socks]'"
        ) from None
    except (ValueError, httpx2.InvalidURL):
        # The original message contains the address, and that may contain a password.
        raise ConfigError(
            "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or NO_PROXY has a value that is no proxy address; "
            "try one such as 'http://proxy.example:3128', or unset it"
        ) from None
    return found
