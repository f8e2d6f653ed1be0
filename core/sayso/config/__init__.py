"""The configuration: one file, the environment and flags become a `Config` that knows its origins.

    sayso.toml (or [tool.sayso] in pyproject.toml) < SAYSO_...__... environment < flags

Unknown keys and wrong values raise ConfigError with the key, where it came from and the way out;
no message shows a value (design, section 8, "Configuration").
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr, ValidationError

from sayso.config.agents import folder_of
from sayso.config.approvals import ApprovalSettings
from sayso.config.auth import AuthSettings
from sayso.config.files import no_file, refuse_open
from sayso.config.layers import (
    NAMED_FILE,
    Layers,
    Origin,
    canonical,
    explain,
    origin_in,
    paths,
    read_environment,
    unread_variables,
)
from sayso.config.settings import (
    LimitSettings,
    ModelSettings,
    Section,
    ServerSettings,
)
from sayso.errors import ConfigError

FILE = "sayso.toml"


class Config(Section):
    """The whole configuration. Made by `load_config`, or in code: `Config(plugins=["v2"])`."""

    agent: str | None = None
    """The agent, "module:object" or "path/to/file.py:object"; paths are relative to the file."""
    plugins: list[str] | None = None
    """The active plugins; their hooks run in this order. Absent: each installed plugin that is
    active by default, and each that the file has a table for or that is switched on, in the order
    of their names."""
    model: ModelSettings = ModelSettings()
    """The model and its model-config keys."""
    server: ServerSettings = ServerSettings()
    """The contract's start-up options and a few more."""
    limits: LimitSettings = LimitSettings()
    """Limits for callers, tools and turns."""
    auth: AuthSettings = AuthSettings()
    """The callers that are admitted."""
    approvals: ApprovalSettings = ApprovalSettings()
    """The ledger and its rules."""
    plugin: dict[str, dict[str, Any]] = {}
    """The settings of each plugin, by its name."""

    _file: Path | None = PrivateAttr(default=None)
    _directory: Path = PrivateAttr(default_factory=Path.cwd)
    _working: Path = PrivateAttr(default_factory=Path.cwd)
    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)
    _tables: frozenset[str] = PrivateAttr(default=frozenset())
    _activated: tuple[str, ...] = PrivateAttr(default=())
    _unread: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def file(self) -> Path | None:
        """The configuration file, if there is one."""
        return self._file

    @property
    def directory(self) -> Path:
        """The base of relative paths: the file's folder, or else the working directory."""
        return self._directory

    @property
    def tables(self) -> frozenset[str]:
        """The plugins for which the configuration file has a table."""
        return self._tables

    @property
    def activated(self) -> tuple[str, ...]:
        """The plugins that a keyword or flag switches on beside `plugins`."""
        return self._activated

    @property
    def unread(self) -> dict[str, str]:
        """The variables that look like settings and are none, each with an explanation."""
        return self._unread

    @property
    def origins(self) -> dict[str, str]:
        """The origin of each value, by dotted key: "sayso.toml", "flag --port", "default"."""
        origins = dict.fromkeys(map(".".join, paths(type(self))), "default")
        return origins | {key: origin.text for key, origin in self._origins.items()}

    def origin(self, key: str) -> Origin:
        """The origin of the value at the dotted `key`, or of the table or list that it is part of.

        For a table it is the origin of its first value.
        """
        return origin_in(self._origins, key.split(".")) or Origin("default", "default")

    def path(self, key: str, value: str | Path) -> Path:
        """`value` of `key` as an absolute path; only values from the file are relative to the
        file."""
        in_file = self.origin(key).kind in ("file", "default")
        return (self.directory if in_file else self._working) / Path(value).expanduser()

    def model_connection(self, *, own: bool) -> dict[str, Any]:
        """The settings of a model's factory; `own` says that its provider is the configured one."""
        found = self.model.connection(own=own)
        return {**found, "reply": self.limits.reply, "folder": str(self.directory)}

    def plugin_settings(self, name: str) -> tuple[str, dict[str, Any]]:
        """The key and values of the plugin's table; `-`, `_` and case make no difference."""
        for key, values in self.plugin.items():
            if canonical(key) == canonical(name):
                return f"plugin.{key}", values
        return f"plugin.{name}", {}


def load_config(
    file: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
    directory: Path | None = None,
    source: Literal["flag", "keyword"] = "flag",
    activate: Collection[str] = (),
) -> Config:
    """The configuration from `file`, `environ` and `overrides`, the later ones winning.

    Without `file` the variable `SAYSO_CONFIG` names it; without that, `sayso.toml` in `directory`
    (default: the working directory) is taken if it is there, else `[tool.sayso]` of
    `pyproject.toml`. Keys of `overrides` are dotted (`server.port`); `source` says how messages
    name them. `activate` names plugins that are switched on beside the configured ones. Raises
    ConfigError.
    """
    folder = (directory or Path.cwd()).resolve()
    found, values = _read_file(file, environ.get(NAMED_FILE), folder)
    layers = Layers()
    if found is not None:
        layers.add_table(values, Origin("file", found.name))
    for key, text, origin in read_environment(environ, Config):
        layers.set(key, text, origin)
    for option, value in (overrides or {}).items():
        layers.set(tuple(option.split(".")), value, origin_of_option(option, source))
    try:
        config = Config.model_validate(layers.values)
    except ValidationError as error:
        raise ConfigError(explain(error, Config, layers.origin)) from None
    config._file = found
    config._directory = found.parent if found else folder
    config._working = folder
    config._origins = layers.origins
    config._tables = frozenset(values.get("plugin", {}))
    config._activated = tuple(activate)
    config._unread = unread_variables(environ, Config)
    _check_list(config)
    return config


def _read_file(
    given: str | os.PathLike[str] | None, variable: str | None, folder: Path
) -> tuple[Path | None, dict[str, Any]]:
    if file := given or variable:
        path = folder / Path(file).expanduser()
        if not path.exists():
            where = "" if given else f" (environment {NAMED_FILE})"
            raise ConfigError(f"there is no configuration file {str(file)!r}{where}")
        return path.resolve(), _table(path, _parse(path))
    # Also a folder or a dead link: it was meant to say who may call.
    if os.path.lexists(path := folder / FILE):
        return path, _parse(path)
    if (path := folder / "pyproject.toml").is_file():
        table = _tool_table(_parse(path))
        if table is not None:
            return path, table
    return None, {}


def _parse(path: Path) -> dict[str, Any]:
    import tomllib  # needed only for a file

    if (kind := no_file(path)) is not None:
        raise ConfigError(
            f"{path} cannot be read: it is {kind}, no file; write the configuration into a file"
        )
    try:
        # Some editors begin a file with a byte order mark.
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}") from error


def _table(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    if path.name != "pyproject.toml":
        return content
    table = _tool_table(content)
    if table is None:
        raise ConfigError("pyproject.toml has no [tool.sayso] table")
    return table


def _tool_table(content: dict[str, Any]) -> dict[str, Any] | None:
    tools = content.get("tool")
    table = tools.get("sayso") if isinstance(tools, dict) else None
    if table is None or isinstance(table, dict):
        return table
    raise ConfigError("tool.sayso (pyproject.toml): expected a table, [tool.sayso]")


def origin_of_option(dotted: str, source: Literal["flag", "keyword"]) -> Origin:
    """The name of the flag or keyword that sets the key, as messages use it."""
    section, _, rest = dotted.partition(".")
    name = rest.replace(".", "_") if section in ("server", "plugin") else dotted
    return Origin(
        source, f"flag --{name.replace('_', '-')}" if source == "flag" else f"keyword {name}"
    )


def _check_list(config: Config) -> None:
    seen: set[str] = set()
    for name in config.plugins or ():
        if canonical(name) in seen:
            origin = config.origin("plugins").text
            raise ConfigError(f"plugins ({origin}) names {name!r} twice; leave one of them out")
        seen.add(canonical(name))


def state_dir(
    config: Config, environ: Mapping[str, str] = os.environ, *, agent: str | None = None
) -> Path:
    """The folder for the service's state; it may not exist yet, and is to be created with mode
    0700.

    `server.state_dir`, or else the folder of the agent with the id `agent` in the platform's state
    folder of the user; without an agent, the folder of all agents. Raises ConfigError if other
    users may write to it.
    """
    folder = _state_dir(config, environ)
    _refuse_open_state(folder)
    if agent is None or config.server.state_dir is not None:
        return folder
    own = folder / folder_of(agent)
    _refuse_open_state(own)
    return own


def _refuse_open_state(folder: Path) -> None:
    refuse_open(folder, "the state folder", "set server.state_dir to another")


def _state_dir(config: Config, environ: Mapping[str, str]) -> Path:
    if config.server.state_dir is not None:
        return config.path("server.state_dir", config.server.state_dir)
    if sys.platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = _home() / "Library" / "Application Support"
    else:
        # Their specification says to ignore a relative one.
        given = environ.get("XDG_STATE_HOME", "")
        base = Path(given) if given.startswith("/") else _home() / ".local" / "state"
    return base / "sayso"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError(
            "there is no home folder to keep state in; set server.state_dir"
        ) from None
