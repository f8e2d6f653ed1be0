"""`sayso dev`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from sayso.cli.group import config_option, configuration
from sayso.cli.options import overrides, server_options

DEFAULTS = {
    "server.host": "127.0.0.1",
    "server.workers": 1,
    "server.reload": True,
    "server.docs": True,
    "server.ready": True,
}


@click.command(short_help="Serve an agent while you write it.")
@click.argument("target", required=False)
@config_option
@partial(server_options, defaults=DEFAULTS)
def command(target: str | None, config_file: Path | None, **options: Any) -> None:
    """Serve an agent while you write it: on 127.0.0.1, started again after each change.

    Like `sayso serve`, with --host 127.0.0.1 --reload --docs --ready, and with the console page,
    whose address it prints, where the plugin is installed. While the code cannot be loaded,
    each request gets 503 with the error.

    \b
    Example:
      sayso dev ops_agent.py
    """
    from sayso.plugins.discovery import discover
    from sayso.server import serve

    given = DEFAULTS | overrides(options) | ({"agent": target} if target else {})
    console = ("console",) if "console" in discover() else ()
    config = configuration(config_file, overrides=given, activate=console)
    serve(config=config)
