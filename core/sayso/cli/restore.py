"""`sayso restore`."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path

import click

from sayso.cli.group import config_option, configuration
from sayso.errors import ConfigError, SaysoError, counted
from sayso.ledger.backup import Restored, restored
from sayso.ledger.log import Problem, verified
from sayso.ledger.stores import ledger_of


@click.command(short_help="Put a backup into a new approvals store.")
@config_option
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def command(config_file: Path | None, file: Path) -> None:
    """Put the backup FILE into the approvals store of the configuration, which has to be empty.

    Stop the service first. Calls that were open in the backup have expired afterwards, and those
    that ran have an unknown outcome: nobody knows what happened to them after the backup, and no
    call may run twice. The store may be of another kind than the one that was saved.
    """

    async def work() -> tuple[Restored, tuple[Problem | None, int]]:
        ledger = ledger_of(configuration(config_file))
        if not ledger.store.shared:
            raise ConfigError(f"the ledger {ledger.store.url!r} ends with its process")
        await ledger.open()
        try:
            return await restored(ledger.store, _lines(file)), await verified(ledger.store)
        finally:
            await ledger.close()

    done, (problem, rows) = asyncio.run(work())
    click.echo(
        f"{counted(done.rows, 'row')} restored; expired: {counted(done.expired, 'open call')}; "
        f"with unknown outcome: {counted(done.unknown, 'call')}"
    )
    if problem is not None:
        raise SaysoError(str(problem))
    click.echo(f"the log is whole: {rows} rows")


def _lines(file: Path) -> Iterator[str]:
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
            yield from lines
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"the backup {str(file)!r} cannot be read: {error}") from None
