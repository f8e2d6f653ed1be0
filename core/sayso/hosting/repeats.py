"""Requests with a key that their callers may send again; a plugin keeps their answers.

The chat endpoints ask `host.repeats` about each request with the header, and nothing without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from starlette.types import Receive, Send

from sayso.context import Caller

KEY = b"idempotency-key"
"""The header with the key."""

Serve = Callable[[Caller, Receive, Send], Awaitable[int]]
"""Answers a request; returns the status of its turn, also where a stream began with 200."""


class Attempt(Protocol):
    """An attempt to answer a request, or its recorded answer."""

    async def answered(self, serve: Serve, caller: Caller, send: Send) -> None:
        """Send the answer: by `serve`, or the recorded one."""
        ...


class Repeats(Protocol):
    """Knows the requests that came with a key."""

    async def attempt(
        self, values: Sequence[bytes], request: Sequence[bytes], caller: Caller
    ) -> Attempt:
        """The attempt to answer this request, by the values of its header; `request` is its path
        and its body.

        Raises RequestError for an invalid key, one that came with another request, or one whose
        request is being answered.
        """
        ...
