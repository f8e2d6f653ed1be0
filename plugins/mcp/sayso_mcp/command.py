"""`sayso mcp`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from sayso import Config, ConfigError, ServiceHost, StandardError, load_agent
from sayso.cli import config_option, configuration

_LAST = 0.2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command("mcp")
@click.argument("target", required=False)
@config_option
@click.option("--model", metavar="NAME", help='The model: "provider:id", or "offline".')
@click.option(
    "--transport",
    type=click.Choice(["sse", "stdio", "streamable-http"]),
    help="How clients connect.  [default: sse]",
)
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port.  [default: 8001]")
@click.option("--host", help="Address to listen on.  [default: that of the configuration]")
@click.option(
    "--approvals",
    type=click.Choice(["client", "inbox", "console", "deny"]),
    help="Who approves gated tools.  [default: client]",
)
def command(
    target: str | None, config_file: Path | None, model: str | None, **options: Any
) -> None:
    """Serve an agent's tools and chat over MCP alone.

    TARGET is "module:object" or "path/to/file.py:object", as for `sayso serve`.

    \b
    Examples:
      sayso mcp ops_agent.py --transport stdio
      sayso mcp ops:agent --transport streamable-http --port 8001
    """
    config = _config(target, config_file, model, options)
    _log(config.server.log_level.upper(), config.server.log_format == "json")
    asyncio.run(_serve(config))


def _log(level: str, as_json: bool) -> None:
    handler = StandardError(named=True, as_json=as_json)
    for name, least in (("sayso", level), ("uvicorn", "WARNING"), ("mcp", "WARNING")):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(least)
    # Python's handler of last resort prints the warnings of all other libraries.
    logging.lastResort = StandardError(logging.WARNING, as_json=as_json)


def _config(
    target: str | None, file: Path | None, model: str | None, options: dict[str, Any]
) -> Config:
    given = {"agent": target, "model.name": model}
    given |= {f"plugin.mcp.{name}": value for name, value in options.items()}
    overrides = {key: value for key, value in given.items() if value is not None}
    return configuration(file, overrides=overrides | {"server.mcp": True})


def _agent(config: Config) -> object:
    if config.agent is None:
        raise ConfigError(
            "there is no agent; name one as 'path/to/file.py:object' or 'module:object', or set "
            "agent in sayso.toml"
        )
    return load_agent(config.agent, config.path("agent", "."))


def _asked_to_stop() -> asyncio.Event:
    """Set by SIGTERM or SIGINT; a SIGINT after that ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def asked() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    for number in _SIGNALS:
        loop.add_signal_handler(number, asked)
    os.register_at_fork(after_in_child=_answer_none)
    return stop


def _answer_none() -> None:
    # A forked child shares the pipe that wakes its parent's loop: a signal that ends the child
    # would also stop the server.
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


async def _serve(config: Config) -> None:
    stop = _asked_to_stop()
    if config.plugin_settings("mcp")[1].get("transport", "sse") == "stdio":
        await _serve_stdio(config, stop)
        return
    from sayso_mcp.running import beside

    host = ServiceHost.create(_agent(config), config)
    async with host.life(only=()), beside(host, _settings(host)) as where:
        # stderr may have no reader.
        with suppress(OSError):
            for line in (f"MCP on {where}", *host.describe()):
                click.echo(f"sayso: {line}", err=True)
        await stop.wait()
        await host.drain(host.config.server.drain_timeout)


async def _serve_stdio(config: Config, stop: asyncio.Event) -> None:
    from sayso_mcp.service import Service
    from sayso_mcp.stdio import StdioWire, serve_stdio

    # Claim the descriptors before importing the agent: its module may print.
    wire = StdioWire.claim()
    host = ServiceHost.create(_agent(config), config)
    async with host.life(only=()):
        service = Service(host, _settings(host))
        serving = asyncio.create_task(serve_stdio(service, wire))
        stopping = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        # A client that closed stdin and then signals the process waits for no reply.
        if serving not in done and not wire.ended:
            await service.drain(host.config.server.drain_timeout)
            # Give the last result time to be written.
            await asyncio.sleep(_LAST)
        serving.cancel()
        stopping.cancel()
        await asyncio.wait({serving, stopping})
        if serving in done:
            serving.result()


def _settings(host: ServiceHost) -> Any:
    plugin: Any = host.plugins.get("mcp")
    return plugin.settings
