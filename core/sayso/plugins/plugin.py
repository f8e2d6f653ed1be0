"""The base class of plugins, and making one from its entry point, or from an object given in
code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ValidationError

from sayso.config import Config
from sayso.config.layers import Origin, check_keys, explain, parsed_table
from sayso.config.settings import Section
from sayso.errors import ConfigError, PluginError, counted, named
from sayso.plugins.deadlines import Overdue, interrupted
from sayso.plugins.discovery import BUILT_IN, Choice, Installed, way_out
from sayso.plugins.implementations import MEND
from sayso.trees import copied
from sayso.wire.masking import raised_at

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from sayso.hosting import Host
    from sayso.wire.failures import Failure

log = logging.getLogger("sayso.plugins")


class Plugin:
    """The base class of plugins: name a subclass in the entry-point group `sayso`.

    - `Settings`: the keys that `[plugin.NAME]` may have; the values are `self.settings`.
    - `active_by_default`: if false, the plugin is active only if the configuration names it.
    - `own_process`: if true, its `lifespan` is entered once a service, not once a process.
    - `decides_by_id`: if true, its routes list pending calls and take decisions by id alone. They
      check each request by `check_access`, and the start prints their token without `[auth]`.
    - `public_paths`: paths of static files that are public: GET and HEAD of them are answered
      without authentication.
    - `signed_paths`: paths of the plugin's routes that are reached without authentication, since
      the plugin itself checks a signature or a secret of each request.
    - `page`: the one of `public_paths` that a person should see first. `/` leads there, unless
      something else is served at `/`.
    """

    name: str = ""
    active_by_default: ClassVar[bool] = True
    own_process: ClassVar[bool] = False
    decides_by_id: ClassVar[bool] = False
    public_paths: tuple[str, ...] = ()
    signed_paths: tuple[str, ...] = ()
    page: str | None = None

    class Settings(Section):
        """The keys of `[plugin.NAME]`; a subclass in each plugin adds its own."""

    settings: Any

    def __init__(self, settings: BaseModel | None = None) -> None:
        self.settings = self.Settings() if settings is None else settings
        self.name = self.name or type(self).__name__.lower()

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes for `/openapi.json`, by path and by method in
        small letters, as `paths` of OpenAPI has them.

        It is called when somebody requests the document. Ids, path parameters and refusals of
        every route are added.
        """
        return {}

    def refusal(self, error: Exception, failure: Failure) -> ASGIApp | None:
        """The answer to a request for one of this plugin's routes whose caller could not be
        authenticated, as an ASGI application; None for the form of V2's errors.

        For protocols whose clients read errors in a form of their own.
        """
        return None


def made(choice: Choice, config: Config, given: object, seconds: float) -> object | None:
    """The plugin of `choice`, or of the object `given`; None for one that is not to be active.

    Raises PluginError or ConfigError. Its user code gets at most `seconds`.
    """
    source = _loaded(choice, seconds) if given is None else given
    if isinstance(given, Plugin):
        _refuse_settings(choice, config, "is given as an object, with its settings")
        return given
    if isinstance(source, type) and issubclass(source, Plugin):
        if not source.active_by_default and not choice.named:
            return None
        settings = _settings(choice, source, config)
        plugin: Plugin = _run(choice, "cannot be made", partial(source, settings), seconds)
        plugin.name = choice.name
        return plugin
    if given is None and not isinstance(source, ModuleType):
        raise PluginError(
            f"{described(choice)} names neither a subclass of sayso.Plugin nor a module, "
            f"but an object of {type(source).__name__}; correct its entry point"
        )
    _refuse_settings(choice, config, "takes no settings")
    return source


def _loaded(choice: Choice, seconds: float) -> object:
    assert choice.installed is not None, "a choice is installed or given"
    if choice.installed.problem is not None:
        raise PluginError(unusable(choice))
    return _run(choice, "cannot be imported", choice.installed.entry_point.load, seconds)


def _run(choice: Choice, failure: str, function: Callable[[], Any], seconds: float) -> Any:
    """The result of `function`; any exception but an interrupt becomes a PluginError."""
    try:
        with interrupted(seconds):
            return function()
    except KeyboardInterrupt:
        raise
    except Overdue as error:
        cause = f"{failure}: it did not come back within {counted(seconds, 'second')}"
        raise PluginError(f"{described(choice)} {cause}; {_repair(choice)}") from error
    except BaseException as error:
        raise broken(choice, failure, error) from error


def described(choice: Choice) -> str:
    """The description of a plugin in errors: its name and its distribution."""
    plugin, installed = f"plugin {choice.name!r}", choice.installed
    if installed is None:
        return plugin
    return f"{plugin} (distribution '{installed.distribution} {installed.version}')"


def unusable(choice: Choice) -> str:
    """The error for a plugin with a `problem`."""
    problem = choice.installed and choice.installed.problem
    return f"{described(choice)} cannot be used: {problem}"


def _repair(choice: Choice) -> str:
    if choice.name in BUILT_IN:
        return f"{way_out(choice.name)}, or mend the plugin"
    return MEND


def broken(choice: Choice, failure: str, error: BaseException) -> PluginError:
    """The error for a plugin whose code raised `error`."""
    cause = f"{named(error)}{raised_at(error)}"
    return PluginError(f"{described(choice)} {failure}: {cause}; {_repair(choice)}")


def _settings(choice: Choice, plugin: type[Plugin], config: Config) -> BaseModel:
    """The settings of `plugin` from its table; raises ConfigError for wrong values in the table.

    Without a table, wrong values are the plugin's own fault: PluginError. A plain pydantic model
    ignores unknown keys, so `check_keys` refuses them.
    """
    key, values = config.plugin_settings(choice.name)
    path = tuple(key.split("."))
    if not issubclass(plugin.Settings, BaseModel):
        raise PluginError(
            f"{described(choice)} has Settings that are no pydantic model; "
            "write class Settings(Plugin.Settings)"
        )
    try:
        table = parsed_table(plugin.Settings, values)
        # Validators may change their input.
        stated = copied(table)
        settings = plugin.Settings.model_validate(table)
        check_keys(settings, stated)
        return settings
    except ValidationError as error:
        problem = explain(error, plugin.Settings, _origin_in(config), path)
        message = f"{described(choice)} has wrong settings: {problem}"
        raise (ConfigError(message) if values else PluginError(message)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise broken(choice, "cannot read its settings", error) from error


def _origin_in(config: Config) -> Callable[[tuple[str, ...]], Origin | None]:
    def origin(path: tuple[str, ...]) -> Origin | None:
        found = config.origin(".".join(path))
        return None if found.kind == "default" else found

    return origin


def _refuse_settings(choice: Choice, config: Config, cause: str) -> None:
    key, values = config.plugin_settings(choice.name)
    if values:
        raise ConfigError(
            f"{described(choice)} {cause}; take {key}.{next(iter(values))} "
            f"({config.origin(f'{key}.{next(iter(values))}').text}) out of the configuration"
        )


def settings_model(installed: Installed) -> type[BaseModel] | None:
    """The `Settings` of an installed plugin; None if it has none or cannot be imported."""
    try:
        with interrupted(30.0):
            source = installed.entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        log.warning("plugin %r cannot be imported: %s", installed.name, named(error))
        return None
    if not (isinstance(source, type) and issubclass(source, Plugin)):
        return None
    return source.Settings if issubclass(source.Settings, BaseModel) else None
