"""Entering and leaving the context managers of plugins: `lifespan` and `resources`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sayso.errors import PluginError, StartupError, counted, named
from sayso.plugins.deadlines import Overdue, interrupted, watched
from sayso.plugins.implementations import MEND
from sayso.wire.masking import raised_at

if TYPE_CHECKING:
    from sayso.hosting import Host
    from sayso.plugins.implementations import Impl

log = logging.getLogger("sayso.plugins")

Stuck = Callable[[PluginError], object]
PATIENCE = 1.0
"""Seconds beyond its timeout after which code is known to block its loop."""
_NOT_ITS_OWN = (KeyboardInterrupt, GeneratorExit)
"""Raised from outside: the user's interrupt, and the end of an abandoned task."""


@asynccontextmanager
async def around(
    implementations: Sequence[Impl],
    host: Host,
    timeout: float,
    stuck: Stuck | None = None,
) -> AsyncIterator[None]:
    """Enter the result of each implementation, in order; leave in reverse order.

    If one raises at its start, or takes longer than `timeout` seconds, those before it are left,
    and PluginError with its name is raised. If one fails at its end, that is logged, and the others
    are still left. If one blocks this loop it is interrupted; if that is impossible, `stuck` is
    called, on another thread.
    """
    async with AsyncExitStack() as stack:
        for impl in implementations:
            await stack.enter_async_context(_Named(impl, host, timeout, stuck))
        yield


class _Named(AbstractAsyncContextManager[None]):
    """One plugin's context manager, bounded in time, whose errors name the plugin."""

    def __init__(self, impl: Impl, host: Host, timeout: float, stuck: Stuck | None) -> None:
        self._impl = impl
        self._host = host
        self._timeout = timeout
        self._stuck = stuck
        self._inner: AbstractAsyncContextManager[Any] | None = None

    async def __aenter__(self) -> None:
        # asyncio.timeout stays in this task, which cancel scopes inside a lifespan need; the alarm
        # a second later is for code that blocks the loop.
        deadline = asyncio.timeout(self._timeout)
        overdue = self._failed(f"did not start within {self._seconds}")
        try:
            with self._alarm(overdue):
                async with deadline:
                    await self._enter()
        except (PluginError, *_NOT_ITS_OWN):
            raise
        except StartupError as error:
            raise PluginError(f"{self._impl.described}: {error}") from error
        except BaseException as error:
            if _cancelled(error):
                raise
            if isinstance(error, Overdue) or deadline.expired():
                raise overdue from error
            raise self._failed(f"raised {named(error)}{raised_at(error)}") from error

    async def _enter(self) -> None:
        inner = await self._impl(host=self._host)
        if inner is not None:
            self._inner = self._checked(inner)
            await self._inner.__aenter__()

    @property
    def _seconds(self) -> str:
        return f"{counted(self._timeout, 'second')} (server.start_timeout)"

    def _alarm(self, overdue: PluginError) -> AbstractContextManager[None]:
        seconds = self._timeout + PATIENCE
        if self._stuck is None:
            return interrupted(seconds)
        return watched(seconds, partial(self._stuck, overdue))

    def _failed(self, cause: str) -> PluginError:
        return PluginError(f"{self._impl.described}: {self._impl.hook} {cause}; {MEND}")

    def _checked(self, inner: Any) -> AbstractAsyncContextManager[Any]:
        if hasattr(inner, "__aenter__") and hasattr(inner, "__aexit__"):
            return inner  # type: ignore[no-any-return]
        raise PluginError(
            f"{self._impl.described}: {self._impl.hook} returned {type(inner).__name__}, "
            "which is no async context manager; put @asynccontextmanager above the function"
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._inner is None:
            return
        overdue = self._failed(f"failed at its end: it took longer than {self._seconds}")
        deadline = asyncio.timeout(self._timeout)
        try:
            with self._alarm(overdue):
                async with deadline:
                    # Leave it like at an ordinary end: the reason why the service ends is no error
                    # of this plugin, and its clean-up may follow a bare `yield`.
                    await self._inner.__aexit__(None, None, None)
        except _NOT_ITS_OWN:
            raise
        except BaseException as failure:
            if _cancelled(failure):
                raise
            if isinstance(failure, Overdue) or deadline.expired():
                log.error("%s", overdue)
            else:
                log.exception("%s: %s failed at its end", self._impl.described, self._impl.hook)


def _cancelled(error: BaseException) -> bool:
    """Whether `error` is the cancellation that the task is to end with, and no failure of the
    plugin."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and bool(task and task.cancelling())
