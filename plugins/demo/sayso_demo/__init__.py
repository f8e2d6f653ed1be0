"""`sayso demo`: an agent with real tools; and the offline model, which answers without a key.

The plugin is this module: a service does not use it, and the command line loads it alone.
"""

from __future__ import annotations

import click

from sayso import hookimpl


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `sayso demo`."""
    from sayso_demo.command import command

    cli.add_command(command)
