"""The app's lifespan under the listener: a failed start is one clear error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from sayso.errors import StartupError

logger = logging.getLogger("sayso.server")


class GivenUp(Exception):
    """The service was stopped before it had started."""


class Life:
    """The ASGI lifespan of an app, in place of uvicorn's, which logs a trace for every error.

    `startup` raises the StartupError that the app raised; for any other error, one that names the
    cause. A failing shutdown is logged.
    """

    should_exit = False

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._answered = {"startup": asyncio.Event(), "shutdown": asyncio.Event()}
        self._error: BaseException | None = None
        self._given_up = False
        self.state: dict[str, Any] = {}

    async def startup(self) -> None:
        """Start the app. Raises StartupError, and GivenUp after `give_up`."""
        self._task = asyncio.get_running_loop().create_task(self._live())
        await self._ask("startup")
        if self._given_up:
            raise GivenUp
        if self._error is not None:
            raise _startup_error(self._error)

    def give_up(self) -> None:
        """Cancel a running start: the parts that have started already are left again."""
        if not self._answered["startup"].is_set():
            self._given_up = True
            self._task.cancel()

    def on_end(self, call: Callable[[], object]) -> None:
        """Have `call` run when the app has ended, at its shutdown or before."""
        self._task.add_done_callback(lambda _: call())

    async def shutdown(self) -> None:
        """Let the app end; returns when it has."""
        if not self._task.done():
            await self._ask("shutdown")
            await asyncio.wait([self._task])
        if self._error is not None:
            logger.error("the service did not end in order", exc_info=self._error)

    async def _ask(self, phase: str) -> None:
        self._messages.put_nowait({"type": f"lifespan.{phase}"})
        await self._answered[phase].wait()

    async def _live(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self._app(scope, self._messages.get, self._on_message)
        except BaseException as error:
            # Plugins and routers may raise anything; without its app nothing could be served.
            self._error = error
        finally:
            for answered in self._answered.values():
                answered.set()

    async def _on_message(self, message: dict[str, Any]) -> None:
        _, phase, outcome = message["type"].split(".")
        # Any other message is a failure; Starlette sends its trace just before it raises the cause.
        if outcome == "complete":
            self._answered[phase].set()


def _startup_error(error: BaseException) -> StartupError:
    if isinstance(error, StartupError):
        return error
    logger.error("the start failed", exc_info=error)
    return StartupError(f"the start failed: {type(error).__name__}: {error}")
