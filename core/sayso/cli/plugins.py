"""`sayso plugins` and `sayso plugins check`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sayso.cli.config import plain
from sayso.cli.group import config_option, configuration, reserved
from sayso.config import Config
from sayso.config.approvals import ApprovalSettings
from sayso.config.layers import canonical
from sayso.config.settings import ModelSettings
from sayso.config.targets import load_agent
from sayso.errors import SaysoError
from sayso.installing import install_line
from sayso.plugins import PluginInfo
from sayso.plugins.discovery import BUILT_IN, Installed, discover, way_out
from sayso.plugins.versions import names

if TYPE_CHECKING:
    from sayso.host import ServiceHost


@click.group(invoke_without_command=True, short_help="Show the plugins and what they add.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for scripts.")
@click.pass_context
def command(ctx: click.Context, config_file: Path | None, as_json: bool) -> None:
    """Show the plugins: which are active and why, their hooks, routes and settings.

    A plugin is a package with an entry point in the group "sayso". An installed plugin is active
    unless it says otherwise: most of Sayso's own are active once `plugins` in sayso.toml names
    them. If there is such a list, only the plugins in it are active.

    \b
    Examples:
      sayso plugins
      sayso plugins check redact           is this plugin sound?
      sayso plugins check redact.py:Redact  also before it is installed
    """
    if ctx.invoked_subcommand is not None:
        return
    host = _host(configuration(config_file))
    infos = [_without_secrets(info) for info in host.plugins.info(host)]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(info) for info in infos], indent=2))
        return
    names = max((len(info.name) for info in infos), default=0)
    sources = max((len(_source(info)) for info in infos), default=0)
    for info in infos:
        state = "active" if info.active else "not active"
        click.echo(f"{info.name:<{names}} {_source(info):<{sources}} {state}: {info.why}")
        for line in _details(info):
            click.echo(f"  {line}")
    if not any(info.active for info in infos):
        way = install_line("sayso[v1,v2]")
        click.echo(f"no plugin is active; name one in plugins, or try: {way}")


def _host(config: Config, given: Sequence[object] = ()) -> ServiceHost:
    """A host with a silent agent: enough to ask the plugins for their routes."""
    from sayso.host import ServiceHost

    quiet = {
        "model": ModelSettings(),
        "approvals": ApprovalSettings(ledger="memory://"),
        # This kind of ledger is for one process, and this host is never more.
        "server": config.server.model_copy(update={"workers": 1}),
    }
    return ServiceHost.create(lambda messages, context: "", config.model_copy(update=quiet), given)


def _without_secrets(info: PluginInfo) -> PluginInfo:
    return dataclasses.replace(info, settings=plain(info.settings))


def _source(info: PluginInfo) -> str:
    return f"{info.distribution} {info.version}".strip() or "given in code"


def _details(info: PluginInfo) -> Iterator[str]:
    for title, values in (("hooks", info.hooks), ("routes", info.routes)):
        if values:
            yield f"{title:<9}{', '.join(values)}"
    if info.settings:
        shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in info.settings.items())
        yield f"settings {shown}"


@command.command()
@click.argument("plugin", nargs=-1)
@config_option
def check(plugin: tuple[str, ...], config_file: Path | None) -> None:
    """Check plugins for mistakes that would stop a start.

    The exit code is 1 if there are any.

    PLUGIN is the name of an installed plugin, or "module:object" or "path/to/file.py:object". Each
    is checked alone. Without PLUGIN all installed plugins are checked, and then the active ones
    together.

    It finds misspelt hooks, hooks without a mark, wrong arguments, wrong settings, a requirement
    that does not admit this version of sayso, errors of the import, sub-commands that are taken,
    and routes that two plugins claim.
    """
    config = configuration(config_file)
    installed = discover()
    failed = False
    for name in plugin or tuple(installed):
        problems = list(_problems(name, config, installed))
        failed = failed or bool(problems)
        for problem in problems or ["ok"]:
            click.echo(f"{name}: {problem}")
    if not plugin and not failed:
        try:
            _made(_host(config))
        except SaysoError as error:
            click.echo(f"together: {error}")
            failed = True
    if failed:
        raise click.exceptions.Exit(1)


def _problems(name: str, config: Config, installed: dict[str, Installed]) -> Iterator[str]:
    if not _is_target(name) and canonical(name) not in map(canonical, installed):
        yield _unknown(name, installed)
        return
    try:
        infos = _made(_alone(name, config))
    except SaysoError as error:
        yield str(error)
        return
    if not any(info.active and info.hooks for info in infos):
        yield "it implements no hook; mark its functions with @hookimpl"
    if (plugin := installed.get(name)) is not None and plugin.entry_point.dist is not None:
        requirements = plugin.entry_point.dist.requires or []
        if not any(names(requirement, "sayso") for requirement in requirements):
            yield f"{plugin.distribution} declares no requirement on sayso; add 'sayso>=0.1,<0.2'"


def _made(host: ServiceHost) -> tuple[PluginInfo, ...]:
    """The host's plugins, with their routes and sub-commands; raises SaysoError for a conflict."""
    infos = host.plugins.info(host)
    host.plugins.register_commands(click.Group(), reserved(host.plugins.names))
    return infos


def _unknown(name: str, installed: dict[str, Installed]) -> str:
    if name in BUILT_IN:
        return f"it is not installed; {way_out(name)}"
    return (
        f"no plugin of this name is installed (there are: {', '.join(installed) or 'none'}); "
        "name one that is not installed as 'path/to/file.py:object'"
    )


def _is_target(name: str) -> bool:
    return ":" in name or name.endswith(".py")


def _alone(name: str, config: Config) -> ServiceHost:
    server = config.server.model_copy(update={"a2a": None, "mcp": None})
    if _is_target(name):
        given = load_agent(name, Path.cwd(), "plugin")
        return _host(Config(plugins=[], plugin=config.plugin, server=server), [given])
    _, settings = config.plugin_settings(name)
    tables = {name: settings} if settings else {}
    return _host(Config(plugins=[name], plugin=tables, server=server))
