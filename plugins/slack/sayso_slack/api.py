"""Calls of Slack's Web API, off the loop: the SDK's client blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from typing import Any

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

_THREADS = 8
_TIMEOUT = 10
_LONGEST = 60.0
_LIMITED = 429
_PASSING = ("fatal_error", "internal_error", "service_unavailable", "request_timeout")
"""Errors of Slack itself: the same call may succeed later."""


class Limited(Exception):
    """Slack takes no further calls for `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"Slack asks to wait {retry_after:g} s")
        self.retry_after = retry_after


class Api:
    """The Web API with the bot's token."""

    def __init__(self, token: str, address: str) -> None:
        self.client = WebClient(token=token, base_url=address, timeout=_TIMEOUT)
        self._threads: ThreadPoolExecutor | None = None
        self.user = ""
        """The id of the bot's own user."""

    async def call(self, method: str, **arguments: Any) -> Any:
        """The answer of a method, named as in the SDK's client; raises Limited, SlackApiError."""
        return await self.run(partial(getattr(self.client, method), **arguments))

    async def patient(self, method: str, **arguments: Any) -> Any:
        """The answer of a method, which is called again after a failure of Slack's own, and after
        the pauses that Slack asks for."""
        waited, pause = 0.0, 1.0
        while True:
            try:
                return await self.call(method, **arguments)
            except (Limited, SlackApiError, OSError, HTTPException) as error:
                if isinstance(error, SlackApiError) and not _is_passing(error):
                    raise
                wait = error.retry_after if isinstance(error, Limited) else pause
                if (waited := waited + wait) > _LONGEST:
                    raise
            await asyncio.sleep(wait)
            pause *= 2

    async def run(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, run in a thread of the client's own."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sayso-slack")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except SlackApiError as error:
            if getattr(error.response, "status_code", 0) == _LIMITED:
                after = str(error.response.headers.get("Retry-After", "1"))
                raise Limited(float(after) if after.isdecimal() else 1.0) from None
            raise

    async def begin(self, *, patient: bool = False) -> None:
        """Learn who the bot is; raises SlackApiError for a wrong token."""
        if not self.user:
            call = self.patient if patient else self.call
            self.user = str((await call("auth_test"))["user_id"])

    def close(self) -> None:
        """End the threads; a further call makes new ones."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def cause_of(error: Exception) -> str:
    """The error that Slack named, or else the kind of the error: its text may have a token in
    it."""
    named = error.response.get("error") if isinstance(error, SlackApiError) else None
    return named if isinstance(named, str) and named.isidentifier() else type(error).__name__


def _is_passing(error: SlackApiError) -> bool:
    """Whether Slack failed, and did not refuse the call."""
    status = getattr(error.response, "status_code", 0)
    return status >= 500 or error.response.get("error") in _PASSING
