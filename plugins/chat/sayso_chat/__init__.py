"""`sayso chat`: talk to an agent, and approve or reject its proposals.

The plugin is this module: a service does not use it, and the command line loads it alone.
"""

from __future__ import annotations

import click

from sayso import hookimpl


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `sayso chat`."""
    from sayso_chat.command import command

    cli.add_command(command)
