"""Options shared by several sub-commands, and their keys in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from sayso.config.layers import PLUGIN_KEYS
from sayso.config.settings import ServerSettings, meanings, seconds

Command = TypeVar("Command", bound=Callable[..., Any])

OTHERS = {"plugins": "plugins", "model": "model.name", **PLUGIN_KEYS}
"""Parameters that are no key of `[server]`, and the keys that they set."""

PORT = click.IntRange(0, 65535)


def duration(text: str) -> float:
    """The type of an option that takes a duration."""
    try:
        return seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class SettingOption(click.Option):
    """An option that sets a key of `[server]`; its help is that key's meaning."""

    def __init__(self, *declarations: Any, stands: object = None, **options: Any) -> None:
        super().__init__(*declarations, **options)
        self._stands = stands

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        value = self._stands
        if value is None:
            value = ServerSettings.model_fields[str(self.name)].default
        shown = "on" if value is True else value
        if self.type.name == "duration":
            shown = f"{value:g}s"
        default = "" if value in (None, [], False) else f"  [default: {shown}]"
        self.help = meanings(ServerSettings)[str(self.name)] + default
        return super().get_help_record(ctx)


def server_options(command: Command, defaults: Mapping[str, object] = {}) -> Command:
    """Add to `command` one option for each key of `[server]`, and those of `OTHERS`.

    `defaults` are those of the command itself, by their dotted keys, as shown in its help.
    """
    for name in reversed(ServerSettings.model_fields):
        command = _setting(name, defaults.get(f"server.{name}"))(command)
    others = [
        click.option(
            "--plugins",
            metavar="NAMES",
            help="The active plugins, separated by commas; their hooks run in this order.",
        ),
        click.option("--model", metavar="NAME", help='The model: "provider:id", or "offline".'),
        click.option("--mcp-port", type=PORT, help="Port of the MCP server.  [default: 8001]"),
        click.option(
            "--mcp-transport", metavar="NAME", help="sse, stdio or streamable-http.  [default: sse]"
        ),
        click.option(
            "--a2a-adapter", metavar="NAME", help="simple, a2a or both.  [default: simple]"
        ),
    ]
    for option in reversed(others):
        command = option(command)
    return command


def _setting(name: str, stands: object) -> Callable[[Command], Command]:
    flag = f"--{name.replace('_', '-')}"
    option = partial(click.option, cls=SettingOption, stands=stands)
    annotation = ServerSettings.model_fields[name].annotation
    kinds = {annotation, *get_args(annotation)} - {type(None)}
    if bool in kinds:
        return option(f"{flag}/--no-{flag[2:]}", default=None)
    if get_origin(annotation) is Literal:
        return option(flag, type=click.Choice(get_args(annotation)))
    if get_origin(annotation) is list:
        return option(flag, multiple=True, metavar="NAMES")
    return option(flag, type=_type(name, kinds))


def _type(name: str, kinds: Set[Any]) -> Any:
    """The click type of a key's option; values out of its bounds are refused as wrong usage."""
    metadata = ServerSettings.model_fields[name].metadata
    if any(getattr(one, "func", None) is seconds for one in metadata):
        return duration
    bounds = {
        end: getattr(one, end) for one in metadata for end in ("ge", "le") if hasattr(one, end)
    }
    if int in kinds:
        return click.IntRange(bounds.get("ge"), bounds.get("le"))
    return click.FloatRange(bounds.get("ge")) if float in kinds else click.STRING


def overrides(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those values of `server_options` that were given, by the dotted key that each sets."""
    given: dict[str, Any] = {}
    for name, value in options.items():
        if value is None or value == ():
            continue
        if name == "plugins":
            value = _parts(value)
        elif isinstance(value, tuple):
            value = [part for text in value for part in _parts(text)]
        given[OTHERS.get(name, f"server.{name}")] = value
    return given


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
