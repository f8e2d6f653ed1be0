"""Requests to an identity provider; they block, so they run on threads."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

TIMEOUT = 10.0
LARGEST = 2**20
"""The largest size of an answer in bytes."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _NoRedirects(HTTPRedirectHandler):
    """The configuration names the address, and no answer may redirect to another one."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = build_opener(_NoRedirects)


def is_safe(url: str) -> bool:
    """Whether nobody between here and the address can read or change what it answers."""
    parts = urlsplit(url)
    near = parts.scheme == "http" and parts.hostname in LOOPBACK
    return near or (parts.scheme == "https" and bool(parts.hostname))


def fetched(url: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> bytes:
    """The body that the address answers with. Raises OSError, and ValueError for a long one; an
    answer above 299 is an HTTPError, which is an OSError."""
    request = Request(url, body, dict(headers))
    with _opener.open(request, timeout=TIMEOUT) as answer:
        content: bytes = answer.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return content
