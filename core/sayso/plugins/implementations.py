"""Implementations of hooks: checking and calling them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from sayso import hookspecs
from sayso.errors import PluginError, StartupError, counted, named, nearest
from sayso.hookspecs import HOOKS, PROJECT
from sayso.plugins.deadlines import Overdue, interrupted
from sayso.wire.masking import raised_at

MEND = "mend the plugin, take it out of the configuration, or uninstall it"
"""The way out if an implementation failed at the start."""
ONE_TOO_MANY = "uninstall one of them, or name only the other in plugins"
"""The way out if two plugins claim the same thing."""

Marks = Callable[[object, str], Mapping[str, Any] | None]


class Impl(NamedTuple):
    """One implementation of a hook, with the arguments that it names.

    `described` is the description of its plugin in errors at the start: the name, and the
    distribution.
    """

    plugin: str
    described: str
    hook: str
    function: Callable[..., Any]
    names: tuple[str, ...]

    def bound(self, **available: Any) -> Callable[[], Any]:
        """The call of the implementation, with only the arguments that it names."""
        return partial(self.function, **{name: available[name] for name in self.names})

    async def __call__(self, **available: Any) -> Any:
        """The result of the implementation, called like `bound`, on this loop."""
        result = self.bound(**available)()
        return await result if inspect.isawaitable(result) else result

    def at_start(self, seconds: float, **available: Any) -> Any:
        """The result of the implementation. Raises PluginError if it fails, or takes longer than
        `seconds`."""
        try:
            with interrupted(seconds):
                return self._now(**available)
        except Overdue:
            raise PluginError(
                f"{self.described}: {self.hook} did not return within {counted(seconds, 'second')} "
                f"(server.start_timeout); {MEND}"
            ) from None
        except StartupError as error:
            raise PluginError(f"{self.described}: {error}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginError(
                f"{self.described}: {self.hook} raised {named(error)}{raised_at(error)}; {MEND}"
            ) from error

    def _now(self, **available: Any) -> Any:
        """The result of the implementation; an async one runs on a loop of its own."""
        result = self.bound(**available)()
        if not inspect.isawaitable(result):
            return result

        async def finished() -> Any:
            return await result

        # The caller's thread may have a running loop.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, finished()).result()


def checked_hooks(plugin: object, marks: Marks, described: str) -> tuple[str, ...]:
    """The hooks that `plugin` implements; raises PluginError for an invalid one.

    `marks` returns the options of `@hookimpl` on an attribute, or None.
    """
    hooks = []
    for name in dir(plugin):
        options = marks(plugin, name)
        if options is None:
            _check_unseen(plugin, name, described)
            continue
        hook = options.get("specname") or name
        if hook not in HOOKS:
            raise PluginError(f"{described} implements {hook!r}, which is no hook{_meant(hook)}")
        if any(options.get(key) for key in ("wrapper", "hookwrapper", "tryfirst", "trylast")):
            raise PluginError(
                f"{described} marks {name!r} as a wrapper, tryfirst or trylast; implementations "
                "run one after another in the order of the `plugins` setting: use plain @hookimpl"
            )
        _check_kind(getattr(plugin, name), hook, described)
        _check_arguments(getattr(plugin, name), hook, described)
        hooks.append(hook)
    return tuple(dict.fromkeys(hooks))


def check_paths(paths: Any, described: str, name: str) -> None:
    """Refuse paths that are not a collection of paths: of a single text, each letter would
    be one."""
    several = isinstance(paths, list | tuple | set | frozenset)
    if not several or not all(isinstance(path, str) and path.startswith("/") for path in paths):
        raise PluginError(
            f"{described} has {name} that are no list of paths; write ('/page.html',)"
        )


def _check_unseen(plugin: object, name: str, described: str) -> None:
    """Refuse attributes that pluggy ignores although they have a mark, or the name of a hook."""
    found = inspect.getattr_static(plugin, name, None)
    # Statically: some objects have every attribute that they are asked for.
    if isinstance(inspect.getattr_static(found, f"{PROJECT}_impl", None), dict):
        raise PluginError(
            f"{described} marks {name!r}, which is no function, so it would never be called; "
            "put @hookimpl above a function that calls it"
        )
    if name not in HOOKS or isinstance(found, property):
        return
    value = getattr(plugin, name, None)
    # A module of hooks may use `sayso.authenticate`.
    if callable(value) and getattr(value, "__module__", None) != "sayso.http.authentication":
        raise PluginError(
            f"{described} has {name!r} without a mark, so it would never be called; "
            "put @hookimpl above it, or rename it"
        )


def _check_kind(function: Callable[..., Any], hook: str, described: str) -> None:
    if inspect.ismethod(function):
        first = next(iter(inspect.signature(function.__func__).parameters), None)
        if first is None:
            raise PluginError(f"{described}: {hook!r} has no `self`; write it between the brackets")
        if first in _arguments_of(hook):
            raise PluginError(
                f"{described}: {hook!r} has {first!r} in the place of `self`; put `self` before it"
            )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        manager = hook in ("lifespan", "resources")
        way_out = "put @asynccontextmanager above the function" if manager else "return the result"
        raise PluginError(f"{described}: {hook!r} has a `yield`; {way_out}")


def _check_arguments(function: Callable[..., Any], hook: str, described: str) -> None:
    known = _arguments_of(hook)
    for parameter in inspect.signature(function).parameters.values():
        fixed = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if fixed and (parameter.name in known or parameter.default is not parameter.empty):
            continue
        raise PluginError(
            f"{described}: {hook!r} has the argument {parameter.name!r}; "
            f"the hook is {hook}({', '.join(known)}), and takes any of these by name"
        )


def _arguments_of(hook: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(hookspecs, hook)).parameters)


def _meant(name: str) -> str:
    close = nearest(name, HOOKS)
    if close is None:
        return f"; the hooks are {', '.join(HOOKS)}"
    return f"; did you mean {close}({', '.join(_arguments_of(close))})?"


def made_impl(hook: str, plugin: str, described: str, function: Callable[..., Any]) -> Impl:
    """The implementation of `hook` by `plugin`, after `checked_hooks`."""
    known = _arguments_of(hook)
    names = tuple(name for name in inspect.signature(function).parameters if name in known)
    return Impl(plugin, described, hook, function, names)
