"""The two places from which `sayso approvals` reads calls, and where it decides: the inbox of a
running service, or the store itself. Both give calls in the shape of the inbox."""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from sayso.cli.group import configuration
from sayso.cli.services import Service
from sayso.cli.stores import in_each, in_that_of
from sayso.decisions.shapes import CallFilter, View, iso, shown_call, shown_grant, shown_item
from sayso.errors import ConfigError, InvalidRequest, NotGranted, SaysoError
from sayso.ledger import LogRow, Proposal, Reading, State, Transaction
from sayso.ledger.choices import Choice, Conversation, Requester
from sayso.ledger.grants import StandingGrant, place_of
from sayso.ledger.log import chain_of, pages
from sayso.ledger.record import Ledger

Json = dict[str, Any]
_PAGE = 1_000
_UNSETTLED: tuple[State, ...] = ("PENDING", "APPROVED", "EXECUTING")
"""States that end by time or by an owner's death; the row is updated when somebody reads it."""
_READER = View()
_AS_APPROVER = "; an approver decides with --url, and a token in SAYSO_TOKEN"


class Where(NamedTuple):
    """The place that the command line means: a service by its `url`, or else the stores of the
    configuration."""

    config_file: Path | None
    url: str | None
    token: str | None

    @property
    def service(self) -> Service | None:
        """The service, if one is named."""
        if self.url is None:
            return None
        service = Service(self.url, self.token)
        _say_what_is_read(service.name)
        return service


class Wanted(NamedTuple):
    """A standing grant like a recorded call: `patterns` are the arguments that may differ."""

    call: str
    uses: int
    seconds: float
    reason: str
    patterns: Mapping[str, str]


def listed(where: Where, wanted: CallFilter, limit: int) -> list[tuple[str, list[Json]]]:
    """The newest calls that fit, the newest last, by the name of the place that has them."""
    if (service := where.service) is not None:
        given = {"tool": wanted.tool, "requester": wanted.requester, "q": wanted.text}
        filters = {name: value for name, value in given.items() if value is not None}
        return [(service.name, service.calls(wanted.state, limit, filters)[::-1])]

    async def work(ledger: Ledger) -> list[Json]:
        _say_what_is_read(ledger.store.url)
        return [{**shown_item(r, _READER)} for r in await _newest(ledger, wanted, limit)]

    return in_each(where.config_file, work)


def one(where: Where, id: str) -> Json:
    """One call, whole; from the store with `log`, its rows of the log."""
    if (service := where.service) is not None:
        found: Json = service.call(id)
        return found

    async def work(ledger: Ledger) -> Json:
        _say_what_is_read(ledger.store.url)
        row = await _settled(ledger, id)
        # A store made before the log had several chains has its older rows in chain 0.
        history = [
            {"seq": each.seq, "at": iso(each.at), **each.entry}
            for chain in sorted({0, chain_of(id)})
            async for each in rows_of(ledger, chain)
            if each.entry.get("id") == id
        ]
        return {**shown_call(row, _READER), "log": history}

    return in_that_of(where.config_file, id, work)


def decided(
    where: Where,
    id: str,
    *,
    approved: bool,
    reason: str | None,
    seen: str | None = None,
) -> Json:
    """The call after the decision."""
    if (service := where.service) is not None:
        body: Json = {"approve": approved, "reason": reason}
        if approved:
            body["seen"] = seen or _only_revision(service.call(id))
        decided: Json = service.decide(id, body)
        return decided

    async def work(ledger: Ledger) -> Json:
        _say_what_is_read(ledger.store.url)
        return {**shown_call(await _decide(ledger, id, approved, reason, seen), _READER)}

    return in_that_of(where.config_file, id, work)


def _only_revision(call: Json) -> str:
    """The digest that an approver of a call has seen whose input nobody has edited."""
    if call["revision"] > 1:
        raise SaysoError(
            f"{call['id']}: somebody has changed its input; look at it with sayso approvals show, "
            "and name what you saw with --seen"
        )
    seen: str = call["seen"]
    return seen


def grants(where: Where) -> list[tuple[str, list[Json]]]:
    """The standing grants, the newest first, by the name of the place that has them."""
    if (service := where.service) is not None:
        return [(service.name, service.grants())]

    async def work(ledger: Ledger) -> list[Json]:
        _say_what_is_read(ledger.store.url)
        found, now = await ledger.grants.listed()
        return [{**shown_grant(each, now)} for each in found]

    return in_each(where.config_file, work)


def granted(where: Where, wanted: Wanted) -> Json:
    """The new standing grant."""
    if (service := where.service) is not None:
        body: Json = {"call": wanted.call, "uses": wanted.uses, "seconds": int(wanted.seconds)}
        body["reason"] = wanted.reason
        if wanted.patterns:
            call = service.call(wanted.call)
            body |= {"match": "pattern", "arguments": _pattern(call["input"], wanted.patterns)}
        made: Json = service.grant(body)
        return made
    if not configuration(where.config_file).approvals.grants:
        raise SaysoError(str(NotGranted("GRANTS_OFF")))

    async def work(ledger: Ledger) -> Json:
        _say_what_is_read(ledger.store.url)
        row = await _settled(ledger, wanted.call)
        grant = _grant_like(row, wanted)
        if why := ledger.grants.why_not(grant, row):
            raise SaysoError(f"{row.id}: {NotGranted(why)}")
        made = await ledger.grants.give(grant, wanted.seconds)
        return {**shown_grant(made, made.created)}

    return in_that_of(where.config_file, wanted.call, work)


def _grant_like(row: Proposal, wanted: Wanted) -> StandingGrant:
    if row.kind != "tool_call" or row.principal is None or not row.tool or row.purged:
        raise SaysoError(
            f"{row.id}: only a tool call of a known principal, whose input is kept, can be granted"
        )
    pattern = bool(wanted.patterns)
    return StandingGrant(
        id=secrets.token_hex(16),
        agent=row.agent,
        tool=row.name,
        deed=row.tool,
        arguments=_pattern(row.input, wanted.patterns) if pattern else row.input,
        pattern=pattern,
        holder=row.principal,
        context=place_of(row.context),
        uses=wanted.uses,
        ends=0.0,
        reason=wanted.reason,
        who=person(),
        claimed=True,
    )


def _pattern(input: Mapping[str, Any], patterns: Mapping[str, str]) -> Json:
    """The input with these patterns; its other texts stand for themselves."""
    if unknown := [name for name in patterns if name not in input]:
        raise SaysoError(f"the call has no argument {unknown[0]!r}; it has {', '.join(input)}")
    from glob import escape

    literal = {n: escape(value) if isinstance(value, str) else value for n, value in input.items()}
    return {**literal, **patterns}


def revoked(where: Where, id: str) -> Json:
    """The standing grant that has ended now."""
    if (service := where.service) is not None:
        ended: Json = service.revoke(id)
        return ended

    async def work(ledger: Ledger) -> Json | None:
        found = await ledger.grants.revoke(id, person())
        return None if found is None else {**shown_grant(found, found.created)}

    for _, found in in_each(where.config_file, work):
        if found is not None:
            return found
    raise ConfigError(f"there is no standing grant {id!r}; see: sayso approvals grants")


def frozen(where: Where, reason: str) -> None:
    """Stop all starts."""
    if (service := where.service) is not None:
        service.freeze({"frozen": True, "reason": reason})
        return

    async def work(ledger: Ledger) -> None:
        await ledger.store.run(partial(ledger.freezing.freeze, who=person(), reason=reason))

    in_each(where.config_file, work)


def thawed(where: Where) -> bool:
    """Let calls start again; returns whether they were stopped."""
    if (service := where.service) is not None:
        was = service.frozen()
        service.freeze({"frozen": False})
        return was

    async def work(ledger: Ledger) -> bool:
        stopped = await ledger.store.run(partial(ledger.freezing.thaw, who=person()))
        await ledger.wake()
        return stopped

    return any(each for _, each in in_each(where.config_file, work))


def person() -> str:
    """The name of the user of the command line; nothing proves it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # The user of a container often has no name.
        return f"uid {os.getuid()}"


def _say_what_is_read(name: str) -> None:
    click.echo(f"reading {name}", err=True)


async def rows_of(ledger: Ledger, chain: int) -> AsyncIterator[LogRow]:
    """The rows of one chain of the log."""
    async for rows, _ in pages(ledger.store, chain):
        for row in rows:
            yield row


async def _newest(ledger: Ledger, wanted: CallFilter, limit: int) -> Sequence[Proposal]:
    """The newest rows that fit, the newest last."""
    state: Any = wanted.state
    if state in ("EXPIRED", "INDETERMINATE"):
        for unsettled in _UNSETTLED:
            async for _ in _pages(ledger, unsettled, _PAGE):
                pass
    newest: list[Proposal] = []
    async for rows in _pages(ledger, state, min(limit, _PAGE)):
        newest += [row for row in rows if wanted.fits(row)]
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


async def _settled(ledger: Ledger, id: str) -> Proposal:
    rows = await ledger.settle([id])
    if id not in rows:
        raise ConfigError(f"there is no proposal {id!r}; see: sayso approvals list")
    return rows[id]


async def _decide(
    ledger: Ledger, id: str, approved: bool, reason: str | None, seen: str | None
) -> Proposal:
    row = await _settled(ledger, id)
    who = Requester(row.principal, row.tenant, None, "cli", None)
    why, rejection = (reason, None) if approved else (None, reason)
    choice = Choice(id, row.kind, approved, ("id",), True, rejection, why=why, seen=seen)
    try:
        decided = await ledger.decide(
            [choice], [], who, Conversation(), claim=False, decided_by=person()
        )
    except InvalidRequest as error:
        (refused, *_) = error.items
        named = refused["type"] == "approval_not_allowed"
        raise SaysoError(f"{id}: {refused['msg']}{_AS_APPROVER if named else ''}") from None
    await ledger.wake()
    return decided.rows[id]
