"""`sayso backup`."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import click

from sayso.cli.group import config_option
from sayso.cli.stores import in_each
from sayso.errors import ConfigError
from sayso.ledger.backup import backed_up
from sayso.ledger.record import Ledger


@click.command(short_help="Save the approvals store.")
@config_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def command(config_file: Path | None, file: Path) -> None:
    """Save the approvals store into FILE, compressed if its name ends with .gz.

    The service may run meanwhile. FILE holds what was proposed, decided and run, with inputs and
    outputs: keep it as you keep the store. `sayso restore` takes it, into SQLite and PostgreSQL.

    \b
    Example:
      sayso backup approvals-$(date +%F).jsonl.gz
    """

    if file.exists():
        raise ConfigError(f"{str(file)!r} exists already; choose another name")

    async def work(ledger: Ledger) -> int:
        part = file.with_name(f"{file.name}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        count = 0
        with os.fdopen(descriptor, "wb") as raw:
            out = gzip.GzipFile(fileobj=raw, mode="wb") if file.suffix == ".gz" else raw
            async for line in backed_up(ledger.store):
                out.write(line.encode() + b"\n")
                count += 1
            if out is not raw:
                out.close()
            raw.flush()
            os.fsync(raw.fileno())
        part.rename(file)
        return count - 2

    for url, count in in_each(config_file, work):
        click.echo(f"{count} rows of {url} are in {file}")
