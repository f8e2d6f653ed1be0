"""`sayso erase`: forget a person or a tenant."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from sayso.cli.group import config_option, configuration
from sayso.cli.sources import person
from sayso.cli.stores import headed, in_each
from sayso.errors import ConfigError, SaysoError, counted
from sayso.ledger.erasing import Subject, erase


@click.command(short_help="Forget a person or a tenant; the log stays verifiable.")
@config_option
@click.option("--principal", help="The name of a principal, person or user in the record.")
@click.option("--tenant", help="The name of a tenant.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(config_file: Path | None, principal: str | None, tenant: str | None, yes: bool) -> None:
    """Remove the ended calls of a principal or a tenant, with inputs, outputs and turns.

    A principal's name also leaves the calls of other people that it decided, and its standing
    grants end. Rows of the log lose their entries and keep their hashes, so sayso approvals verify
    holds. Calls that may still run stay; exit code 1 if there are any.

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
    subject, left = Subject(principal, tenant), 0
    for done in headed(in_each(config_file, partial(erase, subject=subject, who=person()))):
        calls, others = counted(done.calls, "call"), counted(done.others, "call")
        grants, rows = counted(done.grants, "grant"), counted(done.rows, "row")
        click.echo(f"erased {calls}, a part in {others} of others, {grants}, and {rows} of the log")
        left += done.left
    if left:
        raise SaysoError(
            f"{counted(left, 'call')} may still run and stayed; reject what is pending, "
            "and run this again when the others have ended"
        )
