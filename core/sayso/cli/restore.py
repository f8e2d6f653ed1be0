"""`sayso restore`: fill an empty approvals store from a backup."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from sayso.cli.group import config_option, configuration
from sayso.cli.sources import person
from sayso.cli.stores import kept
from sayso.errors import ConfigError, SaysoError, counted
from sayso.ledger.keeping import restore

_WHAT = {
    "PENDING": "rejected: it was undecided in the backup",
    "APPROVED": "outcome unknown: it was approved in the backup",
    "EXECUTING": "outcome unknown: it was executing in the backup",
    "INDETERMINATE": "it could be run again in the backup, and is not any more",
}


@click.command(short_help="Fill an empty approvals store from a backup.")
@config_option
@click.argument("file", type=click.Path(path_type=Path))
def command(config_file: Path | None, file: Path) -> None:
    """Fill the configured approvals store, which must be empty, from the backup FILE.

    Stop the services before. The backup does not know what happened after it, so no call in it ever
    starts: undecided ones are rejected, approved and executing ones have an unknown outcome, and
    standing grants are revoked. People ask again for what they still want.

    \b
    Example:
      sayso restore approvals-2026-05-01.db
    """
    if configuration(config_file).approvals.accept_unissued:
        raise ConfigError(
            "with 'approvals.accept_unissued' a call that ran after the backup would run again; "
            "set it to false, for at least approvals.ttl after the restore, too"
        )
    made = asyncio.run(restore(kept(config_file), file, person()))
    shown = f"{counted(made.kept.proposals, 'proposal')} and {counted(made.kept.rows, 'row')}"
    click.echo(f"restored {shown} of the log from {file}")
    for state, count in made.ended.items():
        click.echo(f"{counted(count, 'call')} {state}: {_WHAT[state]}")
    if made.grants:
        click.echo(f"{counted(made.grants, 'standing grant')} revoked")
    if made.kept.problem is not None:
        raise SaysoError(f"the log of the backup is not whole: {made.kept.problem}")
