"""`sayso approvals`: read the ledger, and decide from the command line."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import get_args

import click

from sayso.cli.group import config_option, configuration
from sayso.cli.lines import clock, line, what
from sayso.cli.options import duration
from sayso.cli.rule_cases import rule_cases
from sayso.cli.stores import headed, in_each, in_that_of
from sayso.cli.watch import watch
from sayso.errors import ConfigError, InvalidRequest, SaysoError, counted
from sayso.ledger import LogRow, Proposal, Reading, State, Transaction
from sayso.ledger.choices import Choice, Conversation, Requester
from sayso.ledger.log import SUMMARY, chain_of, pages, verified
from sayso.ledger.record import Ledger
from sayso.wire.characters import escaped, pretty

_PAGE = 1_000
_UNSETTLED: tuple[State, ...] = ("PENDING", "APPROVED", "EXECUTING")
"""States that end by time or by an owner's death; the row is updated when somebody reads it."""


@click.group(short_help="List, decide, verify and purge what was proposed.")
def command() -> None:
    """Read the ledger: what was proposed, who decided, when, over which protocol, how it ended.

    \b
    Examples:
      sayso approvals list --state PENDING
      sayso approvals show ID
      sayso approvals watch
      sayso approvals approve ID
      sayso approvals reject ID --reason "not today"
      sayso approvals verify
      sayso approvals export --jsonl > log.jsonl
    """


@command.command("list", short_help="List proposals, the newest last.")
@config_option
@click.option(
    "--state",
    type=click.Choice(get_args(State), case_sensitive=False),
    metavar=f"[{'|'.join(get_args(State))}]",
    help="Only those in this state.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="At most so many, the newest.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for scripts.")
def list_(config_file: Path | None, state: State | None, limit: int, as_json: bool) -> None:
    """List proposals with their state, id, name and input, who asked and who decided.

    \b
    Examples:
      sayso approvals list --state PENDING
      sayso approvals list --limit 500 --json
    """
    found = in_each(config_file, lambda ledger: _newest(ledger, state, limit))
    if as_json:
        click.echo(json.dumps([asdict(row) for _, rows in found for row in rows], indent=2))
        return
    for rows in headed(found):
        for row in rows:
            click.echo(_listed(row))
        if not rows:
            click.echo("nothing was proposed" if state is None else f"nothing is {state}")


def _listed(row: Proposal) -> str:
    text = f"{clock(row.created)}  {row.state:<13}  {row.id}  {what(row)}"
    for name in ("tenant_name", "k8s_namespace", "platform_base_url"):
        if value := (row.context or {}).get(name):
            text += f"  {name} {line(str(value))}"
    if row.principal:
        text += f"  asked by {line(row.principal)}"
    if row.votes:
        text += f"  approved by {', '.join(line(vote.who or 'somebody') for vote in row.votes)}"
    if row.decision:
        text += f"  decided by {line(row.decision.who or 'somebody')}"
    return text


async def _newest(ledger: Ledger, state: State | None, limit: int) -> list[Proposal]:
    """The newest rows in this state, the newest last."""
    if state in ("EXPIRED", "INDETERMINATE"):
        for unsettled in _UNSETTLED:
            async for _ in _pages(ledger, unsettled, _PAGE):
                pass
    newest: list[Proposal] = []
    async for rows in _pages(ledger, state, min(limit, _PAGE)):
        newest += [row for row in rows if state in (None, row.state)]
        if len(newest) >= limit:
            break
    return newest[:limit][::-1]


async def _pages(ledger: Ledger, state: State | None, size: int) -> AsyncIterator[list[Proposal]]:
    """The rows that have this state at present, the newest first, in pages; the first page is of at
    most `size`."""
    after: str | None = None
    while True:
        page = partial(_page, state=state, after=after, limit=size)
        rows = await ledger.store.run(Reading(page, only=True))
        settled = await ledger.settle([row.id for row in rows if row.state in _UNSETTLED])
        yield [settled.get(row.id, row) for row in rows]
        if len(rows) < size:
            return
        after, size = rows[-1].id, _PAGE


def _page(tx: Transaction, state: State | None, after: str | None, limit: int) -> list[Proposal]:
    return tx.find(state=state, after=after, limit=limit, newest=True)


@command.command(short_help="Show one proposal with its history.")
@config_option
@click.argument("id")
def show(config_file: Path | None, id: str) -> None:
    """Show the proposal ID as JSON: input, decision, outcome, and its rows of the log."""

    async def work(ledger: Ledger) -> tuple[Proposal, list[LogRow]]:
        row = await _settled(ledger, id)
        # A store made before the log had several chains has its older rows in chain 0.
        history = [
            each
            for chain in sorted({0, chain_of(id)})
            async for each in _log(ledger, chain)
            if each.entry.get("id") == id
        ]
        return row, history

    row, history = in_that_of(config_file, id, work)
    shown = asdict(row) | {"log": [{"seq": r.seq, "at": clock(r.at), **r.entry} for r in history]}
    click.echo(pretty(shown))


@command.command(short_help="Approve a pending call; it runs when its caller sends it back.")
@config_option
@click.argument("id")
@click.option(
    "--seen", type=click.IntRange(1), help="The revision that you saw, once it was edited."
)
def approve(config_file: Path | None, id: str, seen: int | None) -> None:
    """Approve the call ID.

    It is recorded as APPROVED and runs, once, in the service: at once where the call needs nothing
    of its caller's, else when its caller sends it back.
    In sayso chat and in the console: approve it there too. Over MCP, where the plugin's
    approvals are "console": call the tool again. Over HTTP, its id is enough:

    \b
      {"messages": [{"role": "user", "content": "",
        "data": {"approvals": [{"id": "ID", "execute": true}]}}]}
    """
    row = in_that_of(config_file, id, lambda ledger: _decide(ledger, id, True, None, seen))
    click.echo(f"{row.id}  {row.state}  {what(row)}")
    if row.state == "APPROVED" and row.unattended:
        click.echo("the service starts it, unless approvals.run says that its caller does")
    elif row.state == "APPROVED":
        click.echo(
            "it has not run yet; it does when its caller sends it back with execute=true: "
            "see sayso approvals approve --help"
        )


@command.command(short_help="Reject a pending call with a reason.")
@config_option
@click.argument("id")
@click.option("--reason", default="rejected on the command line", show_default=True)
def reject(config_file: Path | None, id: str, reason: str) -> None:
    """Reject the call ID; the model is told the reason.

    \b
    Example:
      sayso approvals reject ID --reason "not today"
    """
    row = in_that_of(config_file, id, lambda ledger: _decide(ledger, id, False, reason))
    click.echo(f"{row.id}  {row.state}  {what(row)}")


@command.command(short_help="Stop every start of approved calls, on all machines.")
@config_option
@click.option("--reason", default="", help="Why; callers are told.")
def freeze(config_file: Path | None, reason: str) -> None:
    """Stop every start of approved calls, in all processes on the store, within two seconds.

    Running calls continue. Decisions are recorded, and their calls start after sayso approvals
    thaw.
    """

    async def work(ledger: Ledger) -> None:
        stop = partial(ledger.freezing.freeze, who=_person(), reason=reason)
        await ledger.store.run(stop)

    in_each(config_file, work)
    click.echo("no approved call starts any more; see: sayso approvals thaw")


@command.command(short_help="Let approved calls start again.")
@config_option
def thaw(config_file: Path | None) -> None:
    """Let approved calls start again, beginning with those that were approved meanwhile."""

    async def work(ledger: Ledger) -> bool:
        stopped = await ledger.store.run(partial(ledger.freezing.thaw, who=_person()))
        await ledger.wake()
        return stopped

    stopped = [each for _, each in in_each(config_file, work)]
    click.echo("approved calls start again" if any(stopped) else "nothing was stopped")


async def _settled(ledger: Ledger, id: str) -> Proposal:
    rows = await ledger.settle([id])
    if id not in rows:
        raise ConfigError(f"there is no proposal {id!r}; see: sayso approvals list")
    return rows[id]


async def _decide(
    ledger: Ledger, id: str, approved: bool, reason: str | None, seen: int | None = None
) -> Proposal:
    row = await _settled(ledger, id)
    who = Requester(row.principal, row.tenant, None, "cli", None)
    choice = Choice(id, row.kind, approved, ("id",), True, reason, seen=seen)
    try:
        decided = await ledger.decide(
            [choice], [], who, Conversation(), claim=False, decided_by=_person()
        )
    except InvalidRequest as error:
        raise SaysoError(f"{id}: {error.items[0]['msg']}") from None
    await ledger.wake()
    return decided.rows[id]


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # The user of a container often has no name.
        return f"uid {os.getuid()}"


@command.command(short_help="Check the hash chains of the log.")
@config_option
def verify(config_file: Path | None) -> None:
    """Check that no row of the log was changed, removed or inserted; exit code 1 if one was."""
    found = in_each(config_file, lambda ledger: verified(ledger.store))
    for problem, count in headed(found):
        if problem is None:
            click.echo(f"the log is whole: {counted(count, 'row')}")
        elif len(found) > 1:
            click.echo(str(problem), err=True)
    for _, (problem, _) in found:
        if problem is not None:
            raise SaysoError(str(problem))


async def _log(ledger: Ledger, chain: int) -> AsyncIterator[LogRow]:
    async for rows, _ in pages(ledger.store, chain):
        for row in rows:
            yield row


@command.command(short_help="Write the log as JSON lines.")
@config_option
@click.option(
    "--jsonl", is_flag=True, expose_value=False, help="One JSON object a line (the default)."
)
def export(config_file: Path | None) -> None:
    """Write the whole log, a row a line, chain by chain; keep it elsewhere to prove the rest.

    \b
    Example:
      sayso approvals export --jsonl > log.jsonl
    """

    async def work(ledger: Ledger) -> None:
        for chain in range(SUMMARY + 1):
            async for row in _log(ledger, chain):
                click.echo(escaped(json.dumps(asdict(row), ensure_ascii=False)))

    in_each(config_file, work)


@command.command(short_help="Forget old inputs and outputs, and old rows of the log.")
@config_option
@click.option("--older-than", type=duration, help="Default: approvals.retention.")
@click.option("--log-older-than", type=duration, help="Default: approvals.log_retention.")
def purge(config_file: Path | None, older_than: float | None, log_older_than: float | None) -> None:
    """Forget contents of ended calls. The decisions and the log stay, except for entries older than
    approvals.log_retention or --log-older-than: export those before.

    \b
    Examples:
      sayso approvals purge --older-than 7d
      sayso approvals purge --log-older-than 365d
    """
    for name, given in (("--older-than", older_than), ("--log-older-than", log_older_than)):
        if given is not None and given < 0:
            raise click.BadParameter("must be at least 0", param_hint=f"'{name}'")
    settings = configuration(config_file).approvals
    retention = settings.retention if older_than is None else older_than
    kept = settings.log_retention if log_older_than is None else log_older_than
    if kept is not None and settings.accept_unissued:
        raise ConfigError(
            "with 'approvals.accept_unissued' a call of which nothing is known any more would "
            "run again; leave out --log-older-than"
        )
    for counts in headed(in_each(config_file, lambda ledger: ledger.purge(retention, kept))):
        calls, turns = counted(counts[0], "call"), counted(counts[1], "suspended turn")
        rows = f", and {counted(counts[2], 'row')} of the record and its log"
        rows = "" if kept is None else rows
        click.echo(f"forgot the contents of {calls} and {turns}{rows}")


@command.command(short_help="Try the rules of [[approvals.rules]] on a table of cases.")
@config_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--agent", "target", help="The agent whose tools are meant; default: the configured.")
def test(config_file: Path | None, file: Path, target: str | None) -> None:
    """Run the cases of the TOML file FILE against the configured rules; exit code 1 if one fails.

    \b
      [[case]]
      tool = "delete_pod"
      arguments = { namespace = "prod" }
      platform = { tenant_name = "acme" }
      expect = "deny"                         # allow, require or deny
      approvers = ["group:sre"]               # and quorum, not_requester, reason, decide_within
    """
    failed = 0
    for number, (text, expected, verdict) in enumerate(
        rule_cases(config_file, file, target), start=1
    ):
        ok = verdict == expected
        failed += not ok
        mark = "ok  " if ok else "FAIL"
        click.echo(f"{mark} {number}: {text}: {verdict}" + ("" if ok else f", not {expected}"))
    if failed:
        raise SaysoError(f"{failed} of {counted(number, 'case')} failed")


command.add_command(watch)
