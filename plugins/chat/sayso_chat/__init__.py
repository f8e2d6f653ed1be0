"""`sayso chat`: talk to an agent, and approve or reject what it wants to do."""

from __future__ import annotations

import click

from sayso import Plugin, hookimpl

__all__ = ["Chat"]


class Chat(Plugin):
    """The sub-command; a service has no use for it."""

    name = "chat"
    active_by_default = False

    @hookimpl
    def register_commands(self, cli: click.Group) -> None:
        """Add `sayso chat`."""
        from sayso_chat.command import command

        cli.add_command(command)
