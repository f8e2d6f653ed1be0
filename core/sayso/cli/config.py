"""`sayso config` and `sayso config schema`."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
from pydantic import BaseModel, PydanticUserError, SecretStr

from sayso.cli.group import config_option, configuration
from sayso.config import Config
from sayso.config.files import PIPE, no_file
from sayso.config.layers import key_of
from sayso.config.settings import meanings
from sayso.config.tokens import Token, bearer_tokens
from sayso.errors import ConfigError
from sayso.plugins.discovery import discover
from sayso.plugins.plugin import settings_model

log = logging.getLogger("sayso.plugins")
_SECRET = re.compile(
    r"token|secret|passw|passphrase|pwd|key|credential|signature|authori[sz]ation", re.IGNORECASE
)
# A password may contain a slash that should have been quoted, but a host and port are no password.
# There may also be too few slashes before it, or too many.
_CREDENTIALS = re.compile(
    r"(://|^\s*//)(?:[^/]*|/*[^/:@]*:(?!\d+/).*)(?=@)"
    r"|^(\s*[a-z][\w+.-]*:/?)(?!\s)[^/:@]*:.*(?=@)",
    re.IGNORECASE,
)
_QUERY = re.compile(r"([^?&;=]+?)(=|%3D)([^&]*)", re.IGNORECASE)
# The form in which libpq reads "host=db password='a b'".
_WORDS = re.compile(r"([^\s=]+)(\s*=\s*)('(?:[^'\\]|\\.)*'?\S*|(?:\\.|\S)*)")
_PAIR = re.compile(rf"(?:{_SECRET.pattern})[^\s&;=]*\s*=", re.IGNORECASE)
_HIDDEN = "********"


@click.group(invoke_without_command=True, short_help="Show each value and where it came from.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for scripts.")
@click.pass_context
def command(ctx: click.Context, config_file: Path | None, as_json: bool) -> None:
    """Show each value of the configuration and where it came from; secrets are hidden.

    \b
    What wins, from weak to strong:
      sayso.toml, or [tool.sayso] in pyproject.toml    port = 9000 under [server]
      the environment                                    SAYSO_SERVER__PORT=9000
      options of the command line                        sayso serve --port 9000

    \b
    Examples:
      sayso config
      sayso config schema > sayso.schema.json          completion in your editor
    """
    if ctx.invoked_subcommand is not None:
        return
    config = configuration(config_file)
    rows = list(shown(config))
    if as_json:
        values = {key: {"value": value, "origin": origin} for key, value, origin in rows}
        click.echo(json.dumps(values, indent=2))
        return
    click.echo(f"# {config.file or 'no configuration file'}")
    for line in _warnings(config):
        click.echo(f"# {line}")
    # A value may be of any length, so it is the last column.
    keys = max(len(key) for key, _, _ in rows)
    origins = max(len(origin) for _, _, origin in rows)
    for key, value, origin in rows:
        click.echo(f"{key:<{keys}}  {origin:<{origins}}  {json.dumps(value)}")


def _warnings(config: Config) -> Iterator[str]:
    """The warnings about the environment that the start would print."""
    known = set()
    try:
        known = {token.secret.get_secret_value() for token in _tokens(config).values()}
    except ConfigError as error:
        yield str(error)
    for name, line in config.unread.items():
        # The name of a variable with a caller's token is in [auth], or in its file.
        if os.environ.get(name, "").strip() not in known:
            yield line


def _tokens(config: Config) -> Mapping[str, Token]:
    file = config.auth.tokens_file
    # A pipe can be read only once, and the service needs it.
    pipe = file is not None and no_file(config.path("auth.tokens_file", file)) == PIPE
    return {} if pipe or config.auth.scheme != "bearer" else bearer_tokens(config)


def shown(config: Config) -> Iterator[tuple[str, Any, str]]:
    """Each key with its value as JSON, credentials hidden, and its origin."""
    for key, value in _leaves(config):
        yield key, value, config.origin(key).text


def _leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, Mapping) and value:
            yield from _entries(value, f"{prefix}{name}")
        else:
            yield f"{prefix}{name}", plain(value)


def _entries(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}.{key}.")
        elif isinstance(value, Mapping) and value:
            yield from _entries(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", _entry(key, value)


def _entry(key: str, value: Any) -> Any:
    # Only the plugin knows the meaning of its keys; hide those whose name suggests a secret.
    return _HIDDEN if value and _SECRET.search(key) else plain(value)


def without_secrets(text: str) -> str:
    """`text` without the secrets of a URL or connection string.

    Those are user and password, and the values of `password=…`, `key=…` and similar names.
    """
    pairs = _QUERY if "://" in text else _WORDS
    return pairs.sub(_pair, _CREDENTIALS.sub(rf"\1\2{_HIDDEN}", text))


def _pair(found: re.Match[str]) -> str:
    name, equals, value = found.groups()
    # A value may contain pairs itself, as libpq's "options" does.
    secret = _SECRET.search(unquote(name)) or _PAIR.search(unquote(value))
    return name + equals + (_HIDDEN if secret and value else value)


def plain(value: Any) -> Any:
    """`value` as JSON, its credentials hidden."""
    match value:
        case SecretStr():
            return _HIDDEN
        case BaseModel():
            return value.model_dump(mode="json")
        case str():
            return without_secrets(value)
        case list() | tuple():
            return [plain(item) for item in value]
        case Mapping():
            return {key: _entry(str(key), item) for key, item in value.items()}
        case bool() | int() | float() | None:
            return value
    return str(value)


@command.command()
def schema() -> None:
    """Write the JSON schema of sayso.toml.

    The settings of the installed plugins are in it.
    """
    click.echo(json.dumps(config_schema(), indent=2))


def config_schema() -> dict[str, Any]:
    """The JSON schema of the configuration file, each key with its meaning."""
    document = described(Config)
    known: dict[str, Any] = {}
    for name, settings in plugin_settings().items():
        try:
            # Each model keeps its own "$defs": two plugins may have models of one name.
            known[name] = described(settings, f"#/properties/plugin/properties/{name}/$defs/")
        except PydanticUserError as error:
            log.warning("the settings of plugin %r have no JSON schema: %s", name, error.message)
    table = document["properties"]["plugin"]
    table["properties"] = known
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}


def plugin_settings() -> dict[str, type[BaseModel]]:
    """The settings model of each installed plugin that has one and can be imported."""
    found = {}
    for name, installed in discover().items():
        settings = settings_model(installed)
        if settings is not None:
            found[name] = settings
    return found


def described(model: type[BaseModel], definitions: str = "#/$defs/") -> dict[str, Any]:
    """The JSON schema of `model`, each property with its meaning from the source.

    `definitions` is the later place of its "$defs".
    """
    document = model.model_json_schema(ref_template=definitions + "{model}")
    sections: dict[str, type[BaseModel]] = {model.__name__: model}
    _collect(model, sections)
    for name, schema in [(model.__name__, document), *document.get("$defs", {}).items()]:
        if name in sections:
            for field, meaning in meanings(sections[name]).items():
                key = key_of(sections[name], field)
                schema.get("properties", {}).get(key, {}).setdefault("description", meaning)
    return document


def _collect(model: type[BaseModel], into: dict[str, type[BaseModel]]) -> None:
    for field in model.model_fields.values():
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__name__ not in into:
                into[kind.__name__] = kind
                _collect(kind, into)
