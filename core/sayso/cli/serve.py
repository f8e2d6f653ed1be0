"""`sayso serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sayso.cli.group import config_option, configuration
from sayso.cli.options import overrides, server_options


@click.command()
@click.argument("target", required=False)
@config_option
@server_options
def command(target: str | None, config_file: Path | None, **options: Any) -> None:
    """Serve an agent over HTTP, NDJSON streams and WebSocket.

    TARGET is "module:object" or "path/to/file.py:object"; the object is an Agent, or a callable
    (messages, context) -> result. Without ":object" it is the one called "agent", without TARGET
    the one that the configuration names.

    \b
    Examples:
      sayso serve ops_agent.py
      sayso serve ops:agent --port 9000 --workers 4
      sayso serve --a2a --mcp --mcp-port 8001
      sayso serve --plugins v1            only /health and the two V1 endpoints

    Each option can also stand in sayso.toml (port under [server]) or in the environment
    (SAYSO_SERVER__PORT); an option wins over both. `sayso config` shows what came from where.
    """
    from sayso.server import serve

    if click.get_current_context().find_root().params.get("debug") and options["debug"] is None:
        options["debug"] = True
    given = overrides(options) | ({"agent": target} if target else {})
    serve(config=configuration(config_file, overrides=given))
