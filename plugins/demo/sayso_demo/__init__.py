"""`sayso demo`: an agent with real tools; and the offline model, which answers without a key."""

from __future__ import annotations

import click

from sayso import Plugin, hookimpl

__all__ = ["Demo"]


class Demo(Plugin):
    """The sub-command; a service has no use for it."""

    name = "demo"
    active_by_default = False

    @hookimpl
    def register_commands(self, cli: click.Group) -> None:
        """Add `sayso demo`."""
        from sayso_demo.command import command

        cli.add_command(command)
