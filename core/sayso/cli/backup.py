"""`sayso backup`: save the approvals store into a file while services use it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from sayso.cli.group import config_option
from sayso.cli.stores import kept
from sayso.errors import SaysoError, counted
from sayso.ledger.keeping import backup


@click.command(short_help="Save the approvals store into a file while it is in use.")
@config_option
@click.argument("file", type=click.Path(path_type=Path))
def command(config_file: Path | None, file: Path) -> None:
    """Save the approvals store, as it is at one moment, into the new file FILE; services go on.

    The file is an SQLite database, whatever the store: `sayso restore` fills an SQLite or a
    PostgreSQL store from it. It has inputs, outputs and names of people; keep it as you keep the
    store. The log's hash chains are checked; exit code 1 if they are not whole.

    \b
    Examples:
      sayso backup approvals-$(date +%F).db
      SAYSO_APPROVALS__LEDGER=sqlite:////srv/ops/approvals.db sayso backup /backups/today.db
    """
    made = asyncio.run(backup(kept(config_file), file))
    shown = f"{counted(made.proposals, 'proposal')} and {counted(made.rows, 'row')} of the log"
    if made.problem is not None:
        raise SaysoError(f"{file} was written, but its log is not whole: {made.problem}")
    click.echo(f"{file}: {shown}, which is whole")
