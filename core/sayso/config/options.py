"""The keywords of `serve()` and `create_app()`, and how they become a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from pydantic import ValidationError

from sayso.config import Config, load_config, origin_of_option
from sayso.config.layers import PLUGIN_KEYS, Layers, explain
from sayso.config.settings import ServerSettings
from sayso.errors import ConfigError, nearest


class Options(TypedDict, total=False):
    """The contract's start-up options (interface.md, "Limits") and those of `[server]`.

    An option that is left out gets its value from the configuration file or the environment, or
    else the default in `sayso.config.settings.ServerSettings`.
    """

    port: int
    host: str
    reload: bool
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]
    workers: int
    timeout_keep_alive: int
    ws_ping_interval: float | None
    ws_ping_timeout: float | None
    additional_routers: Sequence[Any] | None
    channel_router: Any
    a2a: bool
    a2a_adapter: str
    a2a_agent_card: Any
    mcp: bool
    mcp_port: int
    mcp_transport: Literal["sse", "stdio", "streamable-http"]
    state_dir: str | Path | None
    cors_origins: Sequence[str]
    hosts: Sequence[str]
    on_disconnect: Literal["cancel", "continue"]
    lame_duck: float | str
    drain_timeout: float | str
    docs: bool
    ready: bool
    debug: bool
    worker_loops: int | None
    threads: int
    start_timeout: float | str


class Extras(TypedDict, total=False):
    """Options that are objects, which no configuration file can hold."""

    additional_routers: Sequence[Any]
    channel_router: Any
    a2a_agent_card: Any


_OBJECTS = tuple(Extras.__annotations__)


def configured(options: Mapping[str, Any], config: Config | None = None) -> tuple[Config, Extras]:
    """The configuration with `options` over it, and the options that are objects.

    Without `config` the file in the working directory and the environment are read. Raises
    TypeError for an unknown keyword and ConfigError, a ValueError, for a wrong value. Among these
    is `reload` with `workers` above 1 (interface.md, "Errors").
    """
    if config is not None and not isinstance(config, Config):
        raise TypeError(
            f"config takes a Config, as load_config() gives it, not {type(config).__name__}"
        )
    overrides: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for name, value in options.items():
        if name in _OBJECTS:
            if value is not None:
                extras[name] = value
        else:
            overrides[_key(name)] = value
    activate = ("router",) if "channel_router" in extras else ()
    if config is None:
        config = load_config(overrides=overrides, source="keyword", activate=activate)
    elif overrides or activate:
        config = _over(config, overrides, activate)
    return config, Extras(**extras)  # type: ignore[typeddict-item]


def _key(name: str) -> str:
    if name in ServerSettings.model_fields:
        return f"server.{name}"
    if name in PLUGIN_KEYS:
        return PLUGIN_KEYS[name]
    close = nearest(name, Options.__annotations__)
    hint = f"did you mean {close!r}?" if close else "all other settings belong in sayso.toml"
    raise TypeError(f"there is no option {name!r}; {hint}")


def _over(config: Config, overrides: Mapping[str, Any], activate: tuple[str, ...]) -> Config:
    layers = Layers()
    layers.origins |= config._origins
    layers.values["server"] = config.server.model_dump(exclude_unset=True)
    layers.values["plugin"] = {name: dict(values) for name, values in config.plugin.items()}
    for key, value in overrides.items():
        layers.set(tuple(key.split(".")), value, origin_of_option(key, "keyword"))
    try:
        server = ServerSettings.model_validate(layers.values["server"])
    except ValidationError as error:
        raise ConfigError(explain(error, ServerSettings, layers.origin, ("server",))) from None
    changed = config.model_copy(update={"server": server, "plugin": layers.values["plugin"]})
    changed._activated = (*config.activated, *activate)
    changed._origins = layers.origins
    return changed
