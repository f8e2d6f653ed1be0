"""The `sayso` command.

Each sub-command is a module of this package, named like the sub-command, whose `command` is a
`click.Command`; it is imported only when it runs or when help is asked for. Plugins add further
ones through the hook `register_commands`. They give theirs the `config_option`, and read the
configuration that it names by `configuration`.
"""

from __future__ import annotations

from sayso.cli.group import cli, config_option, configuration, main, run

__all__ = ["cli", "config_option", "configuration", "main", "run"]
