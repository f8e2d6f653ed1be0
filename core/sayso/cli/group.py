"""The group of sub-commands; errors become one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Collection, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sayso._version import __version__
from sayso.errors import PluginError, SaysoError, named, nearest
from sayso.installing import install_line

if TYPE_CHECKING:
    from sayso.config import Config

COMMANDS = (
    "serve",
    "dev",
    "approvals",
    "plugins",
    "config",
    "health",
    "new",
    "backup",
    "restore",
    "erase",
)
"""The built-in sub-commands."""

ALONE = ("demo", "chat")
"""The sub-commands of plugins that add nothing else."""

BROUGHT = (*ALONE, "mcp")
"""The sub-commands of plugins with the same name; `sayso[NAME]` installs them."""

_LISTED = ("serve", "dev", "demo", "chat", *COMMANDS[2:])
"""The sub-commands that the help lists first, in this order."""

_ADDED = "sayso.commands of plugins"

EPILOG = """\b
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
Start here:  sayso demo          an agent with real tools, no key needed
             sayso chat          talk to it, approve what it wants to do
             sayso serve ops.py  your own agent
"""


class LazyGroup(click.Group):
    """A group that imports a sub-command when it is needed, and plugins only for theirs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        try:
            added = sorted(self._plugin_commands(ctx))
        except SaysoError as error:
            click.echo(f"sayso: sub-commands of plugins are not listed: {error}", err=True)
            added = [name for name in ALONE if _alone(name) is not None]
        first = [name for name in _LISTED if name in COMMANDS or name in added]
        return [*first, *(name for name in added if name not in first)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = importlib.import_module(f"sayso.cli.{cmd_name}").command
            return command
        if cmd_name in ALONE and (alone := _alone(cmd_name)) is not None:
            return alone
        return self._plugin_commands(ctx).get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0] in BROUGHT:
                way = install_line(f"sayso[{args[0]}]")
                message = f"{error.message.rstrip('.')}; try: {way}"
                raise click.UsageError(message, ctx) from None
            known = [*COMMANDS, *ctx.meta.get(_ADDED, ())]
            close = nearest(args[0], known)
            if close is None:
                raise
            message = f"{error.message.rstrip('.')}; did you mean {close!r}?"
            raise click.UsageError(message, ctx) from None

    def _plugin_commands(self, ctx: click.Context) -> dict[str, click.Command]:
        """The sub-commands of the active plugins, and of `BROUGHT` and A2A if they are
        installed."""
        from sayso.config import load_config
        from sayso.plugins import Plugins
        from sayso.plugins.discovery import SWITCHES, discover

        if _ADDED not in ctx.meta:
            file: Path | None = ctx.params.get("config_file")
            quiet = [name for name in discover() if name in (*SWITCHES, *BROUGHT)]
            added = click.Group()
            plugins = Plugins.load(load_config(file, activate=quiet))
            plugins.register_commands(added, reserved(plugins.names))
            ctx.meta[_ADDED] = added.commands
        found: dict[str, click.Command] = ctx.meta[_ADDED]
        return found


def reserved(plugins: Collection[str]) -> tuple[str, ...]:
    """The sub-commands that no plugin but these may add."""
    return (*COMMANDS, *(name for name in BROUGHT if name not in plugins))


def _alone(name: str) -> click.Command | None:
    """The sub-command of a plugin that is one module, loaded without the plugin host and the
    configuration; None if it is not installed."""
    from importlib_metadata import entry_points

    added = click.Group()
    for entry in entry_points(group="sayso", name=name):
        try:
            entry.load().register_commands(added)
        except Exception as error:
            raise PluginError(
                f"plugin {name!r} cannot be imported: {named(error)}; "
                f"try: {install_line('--force-reinstall', f'sayso[{name}]')}"
            ) from error
    return added.commands.get(name)


config_option = click.option(
    "--config",
    "-c",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file; default: SAYSO_CONFIG, sayso.toml, or pyproject.toml.",
)
"""Gives a command the parameter `config_file`; see `configuration`."""


def configuration(config_file: Path | None, **keywords: Any) -> Config:
    """The configuration from `--config` of the sub-command, or else of `sayso` itself."""
    from sayso.config import load_config

    context = click.get_current_context(silent=True)
    if config_file is None and context is not None:
        config_file = context.find_root().params.get("config_file")
    return load_config(config_file, **keywords)


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sayso")
@config_option
@click.option(
    "--debug",
    is_flag=True,
    help="Show the traceback of an error; `serve` takes it as its own --debug.",
)
def cli(config_file: Path | None, debug: bool) -> None:
    """Serve one tool-calling agent; nothing dangerous runs without your say-so."""


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal's encoding lacks are written as escapes.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):
        # Invalid bytes must not end the conversation that they are piped into.
        sys.stdin.reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code of `sayso` with `arguments`: 0, 1 for a failure, 2 for wrong usage."""
    try:
        code = cli.main(list(arguments), prog_name="sayso", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except SystemExit as error:
        # `serve` has already reported the cause.
        if "--debug" in arguments and error.__context__ is not None:
            traceback.print_exception(error.__context__)
        return error.code if isinstance(error.code, int) else 1
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        see = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        return _failed(error.format_message() + see, error.exit_code)
    except click.ClickException as error:
        return _failed(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo(err=True)
        return 130
    except BrokenPipeError:
        _give_up_output()
        return 1
    except SaysoError as error:
        return _failed(str(error), 1, arguments)
    except OSError as error:
        _give_up_output()
        file = f": {error.filename!r}" if error.filename else ""
        return _failed(f"{error.strerror or error}{file}", 1, arguments)
    except Exception as error:
        return _failed(f"internal error: {type(error).__name__}: {error}", 1, arguments)


def _give_up_output() -> None:
    """stdout is a closed pipe: redirect it to /dev/null so that interpreter shutdown does not raise
    BrokenPipeError."""
    output = sys.__stdout__
    try:
        if output is not None:
            output.flush()
    except OSError:
        assert output is not None
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def _failed(message: str, code: int, arguments: Sequence[str] = ()) -> int:
    from sayso.wire.characters import visible  # needed only for a failure

    if "--debug" in arguments:
        traceback.print_exc()
    for line in message.splitlines():
        # Parts of it may come from a stranger.
        click.echo(f"sayso: {visible(line)}", err=True)
    return code
