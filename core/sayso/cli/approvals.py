"""`sayso approvals`: read the ledger, and decide from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import click

from sayso.cli import shown, sources
from sayso.cli.group import config_option, configuration
from sayso.cli.options import duration
from sayso.cli.rule_cases import rule_cases
from sayso.cli.services import service_options
from sayso.cli.stores import headed, in_each
from sayso.cli.watch import watch
from sayso.decisions.shapes import CallFilter
from sayso.errors import ConfigError, SaysoError, counted
from sayso.ledger import State
from sayso.ledger.grants import LONGEST
from sayso.ledger.log import SUMMARY, verified
from sayso.ledger.record import Ledger
from sayso.wire.characters import escaped


@click.group(short_help="List, decide, verify and purge what was proposed.")
def command() -> None:
    """Read the ledger: what was proposed, who decided, when, over which protocol, how it ended.

    \b
    Examples:
      sayso approvals list --state PENDING
      sayso approvals show ID
      sayso approvals approve ID
      sayso approvals reject ID --reason "not today"
      sayso approvals list --url http://127.0.0.1:8000     a running service, with SAYSO_TOKEN
      sayso approvals verify
      sayso approvals export --jsonl > log.jsonl
    """


@command.command("list", short_help="List proposals, the newest last.")
@config_option
@service_options
@click.option(
    "--state",
    type=click.Choice(get_args(State), case_sensitive=False),
    metavar=f"[{'|'.join(get_args(State))}]",
    help="Only those in this state.",
)
@click.option("--tool", help="Only calls of this tool; commands are calls of 'command'.")
@click.option("--requester", help="Only what this principal, person or user asked for.")
@click.option("--text", help="Only those with this text in name, input, description or intent.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="How many to show at most, the newest.",
)
@click.option("--json", "as_json_", is_flag=True, help="Write JSON, for scripts.")
def list_(
    config_file: Path | None,
    url: str | None,
    token: str | None,
    state: State | None,
    tool: str | None,
    requester: str | None,
    text: str | None,
    limit: int,
    as_json_: bool,
) -> None:
    """List proposals with their state, id, name and input, who asked and who decided.

    \b
    Examples:
      sayso approvals list --state PENDING
      sayso approvals list --tool delete_pod --requester ann
      sayso approvals list --url https://agent.example --state PENDING
      sayso approvals list --limit 500 --json
    """
    wanted = CallFilter(state=state, tool=tool, requester=requester, text=text)
    found = sources.listed(sources.Where(config_file, url, token), wanted, limit)
    if as_json_:
        click.echo(json.dumps([call for _, calls in found for call in calls], indent=2))
        return
    for calls in headed(found):
        for call in calls:
            click.echo(shown.line_of(call))
        if not calls:
            click.echo("nothing was proposed" if wanted == CallFilter() else _nothing(state))


def _nothing(state: State | None) -> str:
    return "no call fits these options" if state is None else f"no call is {state}"


@command.command(short_help="Show one proposal with its history.")
@config_option
@service_options
@click.option("--json", "as_json_", is_flag=True, help="Write JSON, for scripts.")
@click.argument("id")
def show(
    config_file: Path | None, url: str | None, token: str | None, as_json_: bool, id: str
) -> None:
    """Show the proposal ID: who asked, what would run, votes, decision, outcome, times; from the
    store also its rows of the log.
    """
    call = sources.one(sources.Where(config_file, url, token), id)
    if as_json_:
        click.echo(shown.as_json(call))
        return
    for line in shown.lines_of(call):
        click.echo(line)


@command.command(short_help="Approve a pending call.")
@config_option
@service_options
@click.argument("id")
@click.option(
    "--seen",
    help="Digest of what you saw, from sayso approvals show; needed once the input was edited.",
)
@click.option("--reason", help="Why; needed if the rule of the call asks for a reason.")
def approve(
    config_file: Path | None,
    url: str | None,
    token: str | None,
    id: str,
    seen: str | None,
    reason: str | None,
) -> None:
    """Approve the call ID.

    It is recorded as APPROVED. The service starts it at once if it needs nothing from its client;
    else it runs when its client sends it back: in sayso chat and on the console by approving it
    there, too; over MCP, if plugin.mcp.approvals is "inbox", by calling the tool again; over HTTP
    by its id:

    \b
      {"messages": [{"role": "user", "content": "",
        "data": {"approvals": [{"id": "ID", "execute": true}]}}]}
    """
    where = sources.Where(config_file, url, token)
    call = sources.decided(where, id, approved=True, reason=reason, seen=seen)
    click.echo(f"{call['id']}  {call['state']}  {shown.what(call)}")
    if call["state"] == "APPROVED" and call["unattended"]:
        click.echo("the service starts it, unless approvals.run says that its caller does")
    elif call["state"] == "APPROVED":
        click.echo(
            "it has not run yet; it does when its caller sends it back with execute=true: "
            "see sayso approvals approve --help"
        )
    elif call["state"] == "PENDING":
        click.echo(f"it has {call['votes']['given']} of {call['votes']['needed']} approvals")


@command.command(short_help="Reject a pending call with a reason.")
@config_option
@service_options
@click.argument("id")
@click.option("--reason", default="rejected on the command line", show_default=True)
def reject(
    config_file: Path | None, url: str | None, token: str | None, id: str, reason: str
) -> None:
    """Reject the call ID; the model is told the reason.

    \b
    Example:
      sayso approvals reject ID --reason "not today"
    """
    where = sources.Where(config_file, url, token)
    call = sources.decided(where, id, approved=False, reason=reason)
    click.echo(f"{call['id']}  {call['state']}  {shown.what(call)}")


@command.command(short_help="Approve equal calls in advance: a standing grant.")
@config_option
@service_options
@click.argument("id")
@click.option(
    "--uses",
    type=click.IntRange(1, 1_000),
    required=True,
    help="The number of calls that it approves.",
)
@click.option(
    "--for",
    "within",
    type=duration,
    required=True,
    help="The time for which it is valid, such as 8h.",
)
@click.option("--reason", required=True, help="Why; the log has it with each use.")
@click.option(
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME=PATTERN",
    help="Let this argument be any text that fits the pattern; '*' is any value.",
)
def grant(
    config_file: Path | None,
    url: str | None,
    token: str | None,
    id: str,
    uses: int,
    within: float,
    reason: str,
    arguments: tuple[str, ...],
) -> None:
    """Approve further calls like ID: of the same tool, with the same input, in the same place, by
    the same requester. Needs approvals.grants; the requester cannot give it.

    \b
    Examples:
      sayso approvals grant ID --uses 5 --for 8h --reason "night shift"
      sayso approvals grant ID --uses 5 --for 8h --reason "..." --argument "name=web-*"
    """
    if not 1 <= within <= LONGEST:
        raise click.BadParameter("must be from 1 second to 30 days", param_hint="'--for'")
    where = sources.Where(config_file, url, token)
    wanted = sources.Wanted(id, uses, within, reason, _patterns(arguments))
    click.echo(shown.grant_line(sources.granted(where, wanted)))


def _patterns(given: Sequence[str]) -> dict[str, str]:
    if wrong := [one for one in given if not one.partition("=")[0] or "=" not in one]:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=PATTERN", param_hint="'--argument'")
    return dict(one.split("=", 1) for one in given)


@command.command(short_help="List standing grants.")
@config_option
@service_options
@click.option("--json", "as_json_", is_flag=True, help="Write JSON, for scripts.")
def grants(config_file: Path | None, url: str | None, token: str | None, as_json_: bool) -> None:
    """List the standing grants with what each covers, its holder, giver, uses and end."""
    found = sources.grants(sources.Where(config_file, url, token))
    if as_json_:
        click.echo(json.dumps([one for _, several in found for one in several], indent=2))
        return
    for several in headed(found):
        for one in several:
            click.echo(shown.grant_line(one))
        if not several:
            click.echo("there are no standing grants")


@command.command(short_help="End a standing grant at once.")
@config_option
@service_options
@click.argument("id")
def revoke(config_file: Path | None, url: str | None, token: str | None, id: str) -> None:
    """End the standing grant ID at once; calls that it has approved continue."""
    click.echo(shown.grant_line(sources.revoked(sources.Where(config_file, url, token), id)))


@command.command(short_help="Stop every start of approved calls, on all machines.")
@config_option
@service_options
@click.option("--reason", default="", help="Why; callers are told.")
def freeze(config_file: Path | None, url: str | None, token: str | None, reason: str) -> None:
    """Stop every start of approved calls, in all processes on the store, within two seconds.

    Running calls continue. Decisions are recorded, and their calls start after sayso approvals
    thaw.
    """
    sources.frozen(sources.Where(config_file, url, token), reason)
    click.echo("no approved call starts any more; see: sayso approvals thaw")


@command.command(short_help="Let approved calls start again.")
@config_option
@service_options
def thaw(config_file: Path | None, url: str | None, token: str | None) -> None:
    """Let approved calls start again, beginning with those that were approved meanwhile."""
    stopped = sources.thawed(sources.Where(config_file, url, token))
    click.echo("approved calls start again" if stopped else "nothing was stopped")


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


@command.command(short_help="Write the log as JSON lines.")
@config_option
@click.option(
    "--jsonl", is_flag=True, expose_value=False, help="One JSON object a line (the default)."
)
def export(config_file: Path | None) -> None:
    """Write the whole log, one row a line, chain by chain. A copy elsewhere proves what was there.

    \b
    Example:
      sayso approvals export --jsonl > log.jsonl
    """

    async def work(ledger: Ledger) -> None:
        for chain in range(SUMMARY + 1):
            async for row in sources.rows_of(ledger, chain):
                click.echo(escaped(json.dumps(asdict(row), ensure_ascii=False)))

    in_each(config_file, work)


@command.command(short_help="Forget old inputs and outputs, and old rows of the log.")
@config_option
@click.option(
    "--older-than",
    type=duration,
    help="The age of the contents that go; default: approvals.retention.",
)
@click.option(
    "--log-older-than",
    type=duration,
    help="The age of the log entries that go; default: approvals.log_retention.",
)
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
@click.option("--agent", "target", help="The agent with the tools; default: the configured one.")
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
