"""The plugin host: the manager of the active plugins.

The only module that uses pluggy. pluggy calls the last registered plugin first, is synchronous and
allows wrappers. Sayso promises (design, section 4) that implementations run one after another in
the configured order, plain or async. Therefore `Plugins` takes the implementations out of pluggy
once and gives them to the host, which calls them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pluggy
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from sayso import hookspecs
from sayso.config import Config
from sayso.config.layers import canonical
from sayso.errors import ConfigError, PluginError
from sayso.hookspecs import HOOKS, PROJECT
from sayso.plugins.discovery import (
    AGENT,
    Choice,
    Installed,
    Selection,
    discover,
    select,
)
from sayso.plugins.implementations import (
    MEND,
    ONE_TOO_MANY,
    Impl,
    check_paths,
    checked_hooks,
    made_impl,
)
from sayso.plugins.lifespans import Stuck, around
from sayso.plugins.plugin import Plugin, broken, described, made, unusable
from sayso.plugins.routes import claims, collect_routes

if TYPE_CHECKING:
    import click
    from starlette.routing import Router
    from starlette.types import ASGIApp

    from sayso.hosting import Host
    from sayso.wire.failures import Failure

__all__ = ["Plugin", "PluginInfo", "Plugins"]

log = logging.getLogger("sayso.plugins")


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """The entry of one plugin in `sayso plugins`; `why` says why it is active, or why not."""

    name: str
    distribution: str
    version: str
    active: bool
    why: str
    hooks: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Active:
    """An active plugin as the host keeps it."""

    choice: Choice
    plugin: object
    hooks: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.choice.name


class Plugins:
    """The active plugins of one host, in the configured order. Made by `Plugins.load`."""

    def __init__(self, start_timeout: float = 30.0) -> None:
        self.start_timeout = start_timeout
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._active: list[_Active] = []
        self._left_out: dict[str, str] = {}
        self._installed: Mapping[str, Installed] = {}
        self._impls: dict[str, tuple[Impl, ...]] = dict.fromkeys(HOOKS, ())

    @classmethod
    def load(cls, config: Config, extra: Sequence[object] = ()) -> Plugins:
        """The plugins that `config` chooses, imported, checked and in order.

        `extra` are plugins given as objects: modules, instances, or subclasses of Plugin. One that
        `config.plugins` names gets its place there, the others come last, in their order. Raises
        PluginError or ConfigError. A plugin that fails is left out with a warning if nobody named
        it.
        """
        plugins = cls(config.server.start_timeout)
        given = {_name_of(plugin): plugin for plugin in extra}
        if len(given) < len(extra):
            raise PluginError(f"two plugins given in code have one name: {', '.join(given)}")
        plugins._installed = discover()
        selection = select(config, plugins._installed, given)
        plugins._left_out = selection.left_out
        for name in selection.left_out if config.plugins is None else ():
            if canonical(name) == AGENT:
                # Never chosen: the agent's own plugin always comes last.
                choice = Choice(name, plugins._installed[name], False, "installed")
                log.warning("%s; it is left out", unusable(choice))
        for choice in _ordered(selection, given):
            plugins._add(choice, config, given)
        plugins._finish()
        return plugins

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the active plugins, in order."""
        return tuple(active.name for active in self._active)

    @property
    def own_process(self) -> tuple[str, ...]:
        """The active plugins whose `lifespan` is entered only once in a service."""
        return tuple(a.name for a in self._active if getattr(a.plugin, "own_process", False))

    @property
    def public_paths(self) -> frozenset[str]:
        """The paths of static files that the active plugins make public."""
        return self._paths("public_paths")

    @property
    def signed_paths(self) -> frozenset[str]:
        """The paths whose requests the active plugins authenticate by a signature."""
        return self._paths("signed_paths")

    def _paths(self, name: str) -> frozenset[str]:
        named = [getattr(active.plugin, name, ()) for active in self._active]
        return frozenset(path for paths in named for path in paths)

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations that the active plugins describe, by path and method."""
        found: dict[str, dict[str, Any]] = {}
        for active in self._active:
            if (describe := getattr(active.plugin, "openapi_paths", None)) is not None:
                for path, operations in describe(host).items():
                    found.setdefault(path, {}).update(operations)
        return found

    def refusal(self, name: str, error: Exception, failure: Failure) -> ASGIApp | None:
        """The form in which the active plugin of this name refuses unknown callers, if it has
        one."""
        plugin = next((a.plugin for a in self._active if a.name == name), None)
        shown = getattr(plugin, "refusal", None)
        answer: ASGIApp | None = shown(error, failure) if shown is not None else None
        return answer

    @property
    def page(self) -> str | None:
        """The page of the first active plugin that has one."""
        pages = (getattr(a.plugin, "page", None) for a in self._active)
        return next((page for page in pages if page in self.public_paths), None)

    @property
    def decide_by_id(self) -> bool:
        """Whether routes of an active plugin list pending calls and accept decisions by ids
        alone."""
        return any(getattr(active.plugin, "decides_by_id", False) for active in self._active)

    def get(self, name: str) -> object | None:
        """The active plugin `name`, or None."""
        return next((a.plugin for a in self._active if a.name == name), None)

    def implementations(self, hook: str) -> tuple[Impl, ...]:
        """The implementations of `hook` in the configured order; empty costs a lookup."""
        return self._impls[hook]

    def routes(self, host: Host) -> tuple[tuple[str, Router], ...]:
        """Each plugin's router, with its name. Raises PluginError if two claim one route."""
        return collect_routes(self.implementations("register_routes"), host, self.start_timeout)

    def lifespans(
        self, host: Host, *, only: Collection[str] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """The `lifespan` of each plugin, entered in order and left in reverse; see `around`.

        `only` names the plugins whose lifespan runs in this process; None: all.
        """
        found = self.implementations("lifespan")
        wanted = [impl for impl in found if only is None or impl.plugin in only]
        return around(wanted, host, self.start_timeout)

    def resources(self, host: Host, stuck: Stuck) -> AbstractAsyncContextManager[None]:
        """The `resources` of each plugin, entered in order and left in reverse.

        `stuck` is called, from any thread, for one that blocks the loop it is entered or left on.
        """
        return around(self.implementations("resources"), host, self.start_timeout, stuck)

    def register_commands(self, cli: click.Group, reserved: Collection[str] = ()) -> None:
        """Add each plugin's sub-commands to `cli`; PluginError for a name that is taken."""
        import click

        owners = dict.fromkeys(reserved, "sayso itself")
        for impl in self.implementations("register_commands"):
            own = click.Group()
            impl.at_start(self.start_timeout, cli=own)
            for name, command in own.commands.items():
                if not isinstance(command, click.Command):
                    raise PluginError(f"{impl.described}: {name!r} is no click.Command; {MEND}")
                if (owner := owners.setdefault(name, impl.plugin)) != impl.plugin:
                    raise PluginError(
                        f"the sub-command {name!r} is claimed by {owner!r} and by plugin "
                        f"{impl.plugin!r}; {ONE_TOO_MANY}"
                    )
                cli.add_command(command, name)

    def info(self, host: Host | None = None) -> tuple[PluginInfo, ...]:
        """Each plugin, the active ones in order first; with `host` their routes too."""
        routes = _route_names(self, host) if host is not None else {}
        active = [_info(a, routes.get(a.name, ())) for a in self._active]
        left_out = [
            PluginInfo(name, *_source(self._installed.get(name)), active=False, why=why)
            for name, why in self._left_out.items()
        ]
        return (*active, *left_out)

    def _add(self, choice: Choice, config: Config, given: Mapping[str, object]) -> None:
        try:
            plugin = made(choice, config, given.get(choice.name), self.start_timeout)
            if plugin is None:
                self._left_out[choice.name] = "not active by default; name it in plugins"
                return
            self._register(choice, plugin)
        except (PluginError, ConfigError) as error:
            if choice.named or isinstance(error, ConfigError):
                raise
            self._left_out[choice.name] = f"failed: {error}"
            log.warning("%s; it is left out", error)

    def _register(self, choice: Choice, plugin: object) -> None:
        try:
            hooks = self._hooks_of(choice, plugin)
            self._manager.register(plugin, choice.name)
        except (PluginError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise broken(choice, "cannot be registered", error) from error
        self._active.append(_Active(choice, plugin, hooks))

    def _hooks_of(self, choice: Choice, plugin: object) -> tuple[str, ...]:
        text = described(choice)
        hooks = checked_hooks(plugin, self._manager.parse_hookimpl_opts, text)
        if not hooks and not isinstance(plugin, Plugin):
            raise PluginError(
                f"{text} has no hooks; mark its functions with @hookimpl, or name a subclass "
                "of Plugin"
            )
        for name in ("public_paths", "signed_paths"):
            check_paths(getattr(plugin, name, ()), text, name)
        return hooks

    def _finish(self) -> None:
        self._manager.check_pending()
        order = {active.name: place for place, active in enumerate(self._active)}
        texts = {active.name: described(active.choice) for active in self._active}
        for hook in HOOKS:
            found = getattr(self._manager.hook, hook).get_hookimpls()
            self._impls[hook] = tuple(
                made_impl(hook, one.plugin_name, texts[one.plugin_name], one.function)
                for one in sorted(found, key=lambda i: order[i.plugin_name])
            )


def _name_of(plugin: object) -> str:
    name = getattr(plugin, "name", None) or getattr(plugin, "__name__", type(plugin).__name__)
    return str(name).rpartition(".")[2].lower()


def _ordered(selection: Selection, given: Mapping[str, object]) -> list[Choice]:
    chosen = {choice.name for choice in selection.chosen}
    last = [Choice(n, None, True, "given in code") for n in given if n not in chosen]
    return [*selection.chosen, *last]


def _source(installed: Installed | None) -> tuple[str, str]:
    return (installed.distribution, installed.version) if installed else ("", "")


def _info(active: _Active, routes: tuple[str, ...]) -> PluginInfo:
    settings = getattr(active.plugin, "settings", None)
    shown: Mapping[str, Any] = {}
    if isinstance(settings, BaseModel):
        # Values may be of any type, also functions. Each is written by its field's JSON serializer,
        # which may hide it; bytes that are not UTF-8 cannot be shown.
        with suppress(UnicodeDecodeError):
            shown = to_jsonable_python(settings, by_alias=True, fallback=str)
    return PluginInfo(
        active.name,
        *_source(active.choice.installed),
        active=True,
        why=active.choice.why,
        hooks=active.hooks,
        routes=routes,
        settings=shown,
    )


def _route_names(plugins: Plugins, host: Host) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(f"{method} {path}" for method, path in claims(router))
        for name, router in plugins.routes(host)
    }
