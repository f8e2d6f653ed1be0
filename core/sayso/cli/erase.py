"""`sayso erase`."""

from __future__ import annotations

from pathlib import Path

import click

from sayso.cli.group import config_option
from sayso.cli.stores import in_each
from sayso.errors import counted
from sayso.ledger.erasing import Erased, erase
from sayso.ledger.record import Ledger


@click.command(short_help="Erase what a principal or a tenant has left.")
@config_option
@click.option("--principal", metavar="NAME", help="Whose calls: a principal, or a person.")
@click.option("--tenant", metavar="NAME", help="The tenant whose calls they are.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(config_file: Path | None, principal: str | None, tenant: str | None, yes: bool) -> None:
    """Erase the inputs, outputs, comments and transcripts of a principal's or a tenant's calls.

    Open calls are rejected first; a call that runs is left. The log stays whole: it has digests of
    contents, and names until approvals.log_retention removes them.
    """
    if (principal is None) == (tenant is None):
        raise click.UsageError("name either --principal or --tenant")
    if not yes:
        whose = f"principal {principal!r}" if principal is not None else f"tenant {tenant!r}"
        click.confirm(f"Erase everything of the {whose}?", abort=True)

    async def work(ledger: Ledger) -> Erased:
        return await erase(ledger.store, principal=principal, tenant=tenant)

    for url, done in in_each(config_file, work):
        click.echo(
            f"{counted(done.calls, 'call')} in {url} erased, {done.rejected} of them were open"
        )
        if done.running:
            click.echo(f"{counted(done.running, 'call')} left, still running; erase again later")
