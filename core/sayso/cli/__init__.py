"""The `sayso` command.

Each sub-command is a module of this package, named as the sub-command, whose `command` is a
`click.Command`; it is imported only when it runs or when help is asked for. Plugins add further
ones through the hook `register_commands`.
"""

from __future__ import annotations

from sayso.cli.group import cli, main, run

__all__ = ["cli", "main", "run"]
