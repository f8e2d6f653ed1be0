"""`sayso erase`: forget a person or a tenant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from sayso.cli.group import config_option, configuration
from sayso.cli.sources import person
from sayso.cli.stores import folders_of, headed, in_each
from sayso.config import Config
from sayso.decisions.recorded import PluginNotes
from sayso.errors import ConfigError, SaysoError, counted, named
from sayso.hosting.erasing import Removed
from sayso.hosting.record import Notes
from sayso.ledger import Reading
from sayso.ledger.erasing import Erased, Subject, erase
from sayso.ledger.record import Ledger
from sayso.plugins import Plugins
from sayso.plugins.discovery import SWITCHES, discover

T = TypeVar("T")


@click.command(short_help="Forget a person or a tenant; the log stays verifiable.")
@config_option
@click.option("--principal", help="The name of a principal, person or user in the record.")
@click.option("--tenant", help="The name of a tenant.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(config_file: Path | None, principal: str | None, tenant: str | None, yes: bool) -> None:
    """Remove the ended calls of a principal or a tenant, with inputs, outputs and turns.

    The active plugins remove what they keep of them: sessions, tasks, and answers to requests with
    an Idempotency-Key.

    A principal's name also leaves the calls of other people that it decided, and its standing
    grants end. Rows of the log lose their entries and keep their hashes, so sayso approvals verify
    holds. Calls that may still run, and what a running service uses, stay; exit code 1 if there
    are any.

    \b
    Examples:
      sayso erase --principal ann
      sayso erase --tenant acme
    """
    if (principal is None) == (tenant is None):
        raise click.UsageError("give either --principal or --tenant")
    if configuration(config_file).approvals.accept_unissued:
        raise ConfigError(
            "with 'approvals.accept_unissued' a call of which nothing is known any more would "
            "run again; set it to false"
        )
    if not yes:
        whose = f"principal {principal!r}" if principal is not None else f"tenant {tenant!r}"
        click.confirm(f"Erase everything of the {whose}?", abort=True)
    config = configuration(config_file, activate=[n for n in discover() if n in SWITCHES])
    # A plugin that cannot be loaded stops it before anything is removed.
    plugins = Plugins.load(config)
    subject, left, in_use = Subject(principal, tenant), 0, 0

    async def work(ledger: Ledger) -> tuple[Erased, list[Removed]]:
        done = await erase(ledger, subject, person())
        kept = _Kept(config, folders_of(ledger, config_file), ledger)
        return done, await _of_plugins(plugins, subject, kept)

    for done, removed in headed(in_each(config_file, work)):
        calls, others = counted(done.calls, "call"), counted(done.others, "call")
        grants, rows = counted(done.grants, "grant"), counted(done.rows, "row")
        click.echo(f"erased {calls}, a part in {others} of others, {grants}, and {rows} of the log")
        for one in removed:
            stays = f"; {one.left} in use stayed" if one.left else ""
            click.echo(f"erased {counted(one.number, one.noun)}{stays}")
        left += done.left
        in_use += sum(one.left for one in removed)
    if left:
        raise SaysoError(
            f"{counted(left, 'call')} may still run and stayed; reject what is pending, "
            "and run this again when the others have ended"
        )
    if in_use:
        raise SaysoError("a running service still uses what stayed; run this again later")


@dataclass(frozen=True, slots=True)
class _Kept:
    """One store, and what is kept beside it (`KeptBeside`)."""

    config: Config
    folders: Sequence[Path]
    ledger: Ledger

    async def notes(self, work: Callable[[Notes], T]) -> T:
        return await self.ledger.store.run(Reading(lambda tx: work(PluginNotes(tx))))


async def _of_plugins(plugins: Plugins, subject: Subject, kept: _Kept) -> list[Removed]:
    """The numbers of each plugin; raises SaysoError for one that fails."""
    removed = []
    for impl in plugins.implementations("erase_subject"):
        try:
            one = await impl(subject=subject, kept=kept)
        except SaysoError:
            raise
        except Exception as error:
            raise SaysoError(
                f"{impl.described}: what it keeps could not be erased: {named(error)}; mend that, "
                "and run this again"
            ) from error
        removed += [one] if one is not None else []
    return removed
