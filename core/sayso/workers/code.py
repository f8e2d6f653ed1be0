"""Calling user code: never on the loop of the caller (design, section 9)."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from contextvars import Context, copy_context
from threading import Event
from types import AsyncGeneratorType, FunctionType, MethodType
from typing import Any, TypeVar

from sayso.workers import Channel, Workers
from sayso.workers.abandoned import Watched, watched_function
from sayso.workers.loop import may_block_here
from sayso.workers.running import LoopPlace, Place, contained, leave_fork
from sayso.workers.threads import ThreadPlace

A = TypeVar("A")
T = TypeVar("T")

_AHEAD = 256 * 1024
"""How far an iterator may be ahead of its consumer, by `_size`."""


def is_coroutine_function(fn: Any) -> bool:
    """Whether calling `fn` returns a coroutine: also for partials and objects with `__call__`."""
    return _gives(fn, inspect.CO_COROUTINE, inspect.iscoroutinefunction)


def is_async_generator_function(fn: Any) -> bool:
    """Whether calling `fn` returns an async generator: also for partials and such objects."""
    return _gives(fn, inspect.CO_ASYNC_GENERATOR, inspect.isasyncgenfunction)


def _gives(fn: Any, flag: int, says_so: Callable[[Any], bool]) -> bool:
    plain = fn
    if type(fn) is not FunctionType:
        while isinstance(fn, functools.partial):
            fn = fn.func
        plain = fn.__func__ if type(fn) is MethodType else fn
    if type(plain) is FunctionType and plain.__code__.co_flags & flag:
        # Most async code is an `async def`; `inspect` takes two microseconds to find out.
        return True
    return says_so(fn) or (not inspect.isroutine(fn) and says_so(type(fn).__call__))


class UserCode:
    """Calls plain functions on threads and async ones on worker loops.

    A plain function whose caller was cancelled, and that goes on, is one of the `abandoned` calls.
    """

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.abandoned = workers.abandoned

    async def call(self, fn: Callable[..., Any], *args: Any, watched: Watched | None = None) -> Any:
        """The result of `fn(*args)`, awaited if it is awaitable; its exception is passed on.
        `watched` as for `in_thread`.

        A CancelledError without a cancellation of the task is raised as RuntimeError.
        """
        try:
            if not is_coroutine_function(fn):
                return await self.in_thread(fn, *args, watched=watched)
            if not may_block_here():
                return await self.workers.spawn(lambda: fn(*args))
            value = await fn(*args)
            leave_fork()
            return value
        except BaseException as error:
            passing = passed_on(error)
            if passing is error:
                raise
            raise passing from error

    async def begin(
        self, fn: Callable[..., Any], *args: Any, place: Place | None = None
    ) -> tuple[Any, Context]:
        """The result of `call`, or of `in_place`, and the context variables as the code left them,
        for `items`."""

        async def awaited() -> tuple[Any, Context]:
            return await _with_context(fn(*args))

        if is_coroutine_function(fn):
            call = self.call(awaited) if place is None else self.in_place(place, awaited)
        elif place is None:
            watched = watched_function(self.abandoned, fn)
            bound = functools.partial(watched.run, _with_context_in_thread, fn, *args)
            call = self.call(bound, watched=watched)
        else:
            call = self.in_place(place, functools.partial(_with_context_in_thread, fn, *args))
        started: tuple[Any, Context] = await call
        return started

    async def keep_set(self, fn: Callable[..., Any], *args: Any) -> Any:
        """The result of `call`; context variables set by the code are set for the caller, too."""
        value, left = await self.begin(fn, *args)
        for variable, setting in left.items():
            if variable.get(None) is not setting:
                variable.set(setting)
        return value

    async def in_thread(
        self, fn: Callable[..., Any], *args: Any, watched: Watched | None = None
    ) -> Any:
        """The result of the plain function `fn`, awaited on a worker loop if it is awaitable; its
        exception is passed on. `watched` is given if `fn` itself says when it begins and ends."""
        result = await self._on_thread(fn, *args, watched=watched)
        if inspect.isawaitable(result):
            awaitable = result
            return await self.workers.spawn(lambda: _await(awaitable))
        return result

    def place(self, *, is_async: bool) -> Place:
        """A place for one call of user code, which has yet to come. Raises RuntimeError if none can
        be had."""
        return LoopPlace(self.workers) if is_async else ThreadPlace(self.workers.threads)

    async def in_place(self, place: Place, fn: Callable[..., Any]) -> Any:
        """The result of `fn()`, started in its place, as from `call`."""
        try:
            result = await place.run(fn)
            if inspect.isawaitable(result):
                awaitable = result
                return await self.workers.spawn(lambda: _await(awaitable))
            return result
        except BaseException as error:
            passing = passed_on(error)
            if passing is error:
                raise
            raise passing from error

    async def check(self, fn: Callable[..., T], *args: Any) -> T:
        """The result of a plain function that is usually quick, such as a validator."""
        if may_block_here():
            return fn(*args)
        checked: T = await self._on_thread(fn, *args)
        return checked

    async def _on_thread(
        self, fn: Callable[..., Any], *args: Any, watched: Watched | None = None
    ) -> Any:
        if watched is None:
            watched = watched_function(self.abandoned, fn)
            fn = functools.partial(watched.run, fn)
        try:
            return await self.workers.threads.run(fn, *args)
        except asyncio.CancelledError:
            watched.abandon()
            raise

    def items(
        self,
        iterator: AsyncIterator[T] | Iterator[T],
        context: Context | None = None,
        place: Place | None = None,
    ) -> AsyncIterator[T]:
        """The items of a user's iterator, plain or async, read away from this loop.

        It runs in `context`, or else in a copy of the caller's context variables, and in `place` if
        given. Close the result with `aclose` if it has one.
        """
        # Most are generators, and the abstract class is slow to tell about others.
        if type(iterator) is not AsyncGeneratorType and not isinstance(iterator, AsyncIterator):
            return self._threaded(iterator, context, place)
        return iterator if may_block_here() else self._spawned(iterator, context, place)

    def streaming(self, fn: Callable[[A], AsyncIterator[T]]) -> Callable[[A], AsyncIterator[T]]:
        """The async generator function `fn`, with its items as `items` gives them."""
        return lambda argument: self.items(fn(argument))

    async def _threaded(
        self, iterator: Iterator[T], context: Context | None, place: Place | None
    ) -> AsyncIterator[T]:
        channel: Channel[T] = Channel(_AHEAD, size=_size)
        wanted = Event()
        channel.on_space = wanted.set
        watched = watched_function(self.abandoned, iterator)

        def pump() -> None:
            error: BaseException | None = None
            watched.begin()
            try:
                for item in iterator:
                    if channel.cancelled:
                        break
                    wanted.clear()
                    channel.put_nowait(item)
                    while channel.full and not channel.cancelled:
                        wanted.wait()
                if close := getattr(iterator, "close", None):
                    close()
            except BaseException as caught:
                leave_fork(caught)
                error = caught if isinstance(caught, Exception) else contained(caught)
            finally:
                watched.end()
                channel.close(error)

        own = context or copy_context()
        threads = place if isinstance(place, ThreadPlace) else self.workers.threads
        threads.submit(lambda: own.run(pump))
        try:
            while items := await channel.ready():
                for item in items:
                    yield item
        finally:
            channel.cancel()
            watched.abandon()

    async def _spawned(
        self, iterator: AsyncIterator[T], context: Context | None, place: Place | None
    ) -> AsyncIterator[T]:
        channel: Channel[T] = Channel(_AHEAD, size=_size)

        async def pump() -> None:
            error: BaseException | None = None
            try:
                async for item in iterator:
                    if channel.cancelled:
                        break
                    await channel.put(item)
            except BaseException as caught:
                error = passed_on(caught)
                if not isinstance(error, Exception):
                    raise
            finally:
                channel.close(error)
                if close := getattr(iterator, "aclose", None):
                    await close()

        loops = place if isinstance(place, LoopPlace) else self.workers
        running = (context or copy_context()).run(loops.spawn, pump)
        try:
            while items := await channel.ready():
                for item in items:
                    yield item
        finally:
            channel.cancel()
            if not running.done():
                running.cancel()


def beginning(fn: Callable[..., Any], begin: Callable[[], None]) -> Callable[..., Any]:
    """`fn` with `begin` as its first step; of the same kind, so that it is called in the same
    way."""
    if is_async_generator_function(fn):

        async def generate(*args: Any) -> AsyncIterator[Any]:
            begin()
            async with aclosing(fn(*args)) as items:
                async for item in items:
                    yield item

        return generate
    if _gives(fn, inspect.CO_GENERATOR, inspect.isgeneratorfunction):

        def generate_here(*args: Any) -> Iterator[Any]:
            begin()
            yield from fn(*args)

        return generate_here
    if is_coroutine_function(fn):

        async def call(*args: Any) -> Any:
            begin()
            return await fn(*args)

        return call

    def call_here(*args: Any) -> Any:
        begin()
        return fn(*args)

    return call_here


def _size(item: object) -> int:
    """The approximate memory of an item while it waits: chunks of text may be long."""
    return 1024 + len(item) if isinstance(item, str) else 1024


def passed_on(error: BaseException) -> BaseException:
    """The exception that the caller of user code gets for `error`.

    An Exception is passed on, and so is a cancellation of the calling task. Anything else would end
    a task or a loop, so it is wrapped in an exception.
    """
    leave_fork(error)
    if isinstance(error, Exception):
        return error
    task = asyncio.current_task()
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)) and task and task.cancelling():
        return error
    return contained(error)


async def _await(awaitable: Any) -> Any:
    return await awaitable


async def _with_context(awaitable: Any) -> tuple[Any, Context]:
    return await awaitable, copy_context()


def _with_context_in_thread(fn: Callable[..., Any], *args: Any) -> Any:
    result = fn(*args)
    return _with_context(result) if inspect.isawaitable(result) else (result, copy_context())
