"""Standing grants: a person approves equal calls of one holder in advance, a few times and for a
while (design, section 6, "People").

Each grant is a note in the store. Its use is counted by a compare-and-set in the transaction that
records the call, so that several processes together use it no more often than it says. A grant
never starts a call: it only approves one, which is then claimed like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from sayso.errors import InvalidRequest
from sayso.ledger import Decision, Proposal, Reading, Store, Transaction
from sayso.ledger.choices import Requester
from sayso.ledger.database import dumps
from sayso.ledger.log import append, digest, log
from sayso.ledger.rules import Freezing, Rules
from sayso.ledger.voting import barred
from sayso.principals import Principal
from sayso.trees import canonical

MOST = 500
"""The largest number of grants that a store keeps."""
LONGEST = 30 * 86_400.0
"""The longest time in seconds for which a grant holds, and for which it is still listed after its
end."""
PROTOCOL = "grant"
"""The protocol of a decision that a grant makes."""
_NOTES = "grant:"


@dataclass(frozen=True, slots=True)
class StandingGrant:
    """The approval of future calls.

    It covers calls of the tool `tool` (with the digest `deed`) of the agent `agent` that the
    principal `holder` causes, with `arguments` as the input, in the place `context`. If `pattern`
    is true, texts in `arguments` may have the wildcards `*`, `?` and `[abc]`, and `"*"` stands for
    any value.

    `who`, `person`, `groups`, `kind` and `tenant` describe its giver; `claimed` says that nobody
    proved them. Times are in seconds of the store's clock.
    """

    id: str
    agent: str
    tool: str
    deed: str
    arguments: dict[str, Any]
    pattern: bool
    holder: str
    context: dict[str, Any]
    uses: int
    ends: float
    reason: str
    who: str
    created: float = 0.0
    used: int = 0
    person: str | None = None
    tenant: str | None = None
    kind: str = "unknown"
    groups: list[str] = field(default_factory=list)
    claimed: bool = False
    revoked: float | None = None
    revoked_by: str | None = None

    @property
    def left(self) -> int:
        """The number of calls that it may still approve, unless it has ended."""
        return self.uses - self.used

    def holds(self, now: float) -> bool:
        """Whether it has neither ended nor been revoked or used up."""
        return self.revoked is None and now < self.ends and self.left > 0

    def covers(self, row: Proposal) -> bool:
        """Whether the call is one of those that it approves."""
        same = (row.agent, row.name, row.tool, row.principal, row.kind)
        return (
            same == (self.agent, self.tool, self.deed, self.holder, "tool_call")
            and bool(self.deed)
            and place_of(row.context) == self.context
            and self._fits(row.input)
        )

    def _fits(self, input: Mapping[str, Any]) -> bool:
        if not self.pattern:
            return canonical(input) == canonical(self.arguments)
        same_names = input.keys() == self.arguments.keys()
        return same_names and all(_fits(self.arguments[name], input[name]) for name in input)

    @property
    def giver(self) -> Requester:
        """The giver as the one who decides."""
        kind: Any = self.kind
        proven = Principal(
            self.who, groups=self.groups, tenant=self.tenant, kind=kind, person=self.person
        )
        return Requester(proven, self.tenant, None, PROTOCOL)


def place_of(context: Mapping[str, Any] | None) -> dict[str, Any]:
    """The part of a call's context in which a grant holds; the user is only shown."""
    return {name: value for name, value in (context or {}).items() if name != "user_id"}


class Granting:
    """The standing grants in one store, for the calls of one agent."""

    def __init__(self, store: Store, rules: Rules, freezing: Freezing) -> None:
        self._store = store
        self._rules = rules
        self._freezing = freezing

    def why_not(self, grant: StandingGrant, row: Proposal) -> str:
        """The reason why the grant's giver alone may not approve the call, for
        `voting.why_barred`, "QUORUM" or "NOT_FOUND"; empty if the giver may."""
        if grant.claimed:
            # The command line proves no identity; a rule that names people excludes it.
            who, operator = Requester(row.principal, row.tenant, None, PROTOCOL), True
        else:
            who, operator = grant.giver, False
        if not {grant.who, grant.person or grant.who}.isdisjoint(
            (row.principal, row.person, row.user)
        ):
            return "OWN_REQUEST"
        if not self._rules.visible(row, who):
            return "NOT_FOUND"
        if row.terms is not None and row.terms.quorum > 1:
            return "QUORUM"
        return barred(row, who, operator=operator)

    async def give(self, grant: StandingGrant, seconds: float) -> StandingGrant:
        """Record the grant, which holds for this many seconds. Raises InvalidRequest if the store
        has too many."""

        def work(tx: Transaction) -> StandingGrant:
            known = dict(_notes(tx))
            for name, one in known.items():
                if (one.revoked or one.ends) < tx.now - LONGEST:
                    tx.note(name, None)
            if sum(one.holds(tx.now) for one in known.values()) >= MOST:
                text = f"there are {MOST} standing grants; revoke some"
                raise InvalidRequest.at(["body"], "too_many_grants", text)
            made = replace(grant, created=tx.now, ends=tx.now + seconds)
            tx.note(_name(made.id), dumps(asdict(made)))
            append(tx, _entry("grant_created", made, made.who))
            return made

        return await self._store.run(work)

    async def listed(self) -> tuple[list[StandingGrant], float]:
        """All grants for this agent, the newest first, and the time at the store."""

        def work(tx: Transaction) -> tuple[list[StandingGrant], float]:
            return [one for _, one in _notes(tx) if self._is_own(one)], tx.now

        found, now = await self._store.run(Reading(work, only=True))
        return sorted(found, key=lambda one: -one.created), now

    async def revoke(self, id: str, who: str) -> StandingGrant | None:
        """End the grant at once; returns it, or None if there is none of this id."""

        def work(tx: Transaction) -> StandingGrant | None:
            while (found := _read(tx, id)) is not None and self._is_own(found[1]):
                text, grant = found
                if grant.revoked is not None:
                    return grant
                ended = replace(grant, revoked=tx.now, revoked_by=who)
                if tx.swap(_name(id), text, dumps(asdict(ended))):
                    append(tx, _entry("grant_revoked", ended, who))
                    return ended
            return None

        return await self._store.run(work)

    async def approve(self, rows: Sequence[Proposal]) -> list[Proposal]:
        """Record those of the proposed calls as APPROVED that a grant covers, each as one use of
        it; returns them as recorded, and leaves the others alone.

        No grant applies while all starts are stopped.
        """

        def work(tx: Transaction) -> list[Proposal]:
            if self._freezing.look(tx) is not None:
                return []
            known = [one for _, one in _notes(tx) if one.holds(tx.now)]
            approved = []
            for row in rows if known else ():
                if (grant := self._used(tx, known, row)) is not None:
                    approved.append(_approved(tx, row, grant, self._within(row)))
            return approved

        # Without a grant the call needs no write transaction of its own.
        if not await self._store.run(Reading(lambda tx: tx.notes(_NOTES), only=True)):
            return []
        return await self._store.run(work)

    def _within(self, row: Proposal) -> float:
        """The seconds within which the approved call has to start."""
        terms = row.terms
        return (terms and (terms.run_within or terms.decide_within)) or self._rules.ttl

    def _used(
        self, tx: Transaction, known: Sequence[StandingGrant], row: Proposal
    ) -> StandingGrant | None:
        """The grant that approves the call, with this use counted."""
        for one in known:
            if not one.covers(row) or self.why_not(one, row):
                continue
            # Another process may use the same grant, or revoke it, at this moment.
            while (found := _read(tx, one.id)) is not None and found[1].holds(tx.now):
                text, grant = found
                counted = replace(grant, used=grant.used + 1)
                if tx.swap(_name(grant.id), text, dumps(asdict(counted))):
                    return counted
        return None

    def _is_own(self, grant: StandingGrant) -> bool:
        return self._rules.agent is None or grant.agent == self._rules.agent


def revoke_all(tx: Transaction, who: str) -> int:
    """End every grant that holds; returns their number."""
    held = [(name, one) for name, one in _notes(tx) if one.holds(tx.now)]
    for name, one in held:
        ended = replace(one, revoked=tx.now, revoked_by=who)
        tx.note(name, dumps(asdict(ended)))
        append(tx, _entry("grant_revoked", ended, who))
    return len(held)


def forget(tx: Transaction, who: str, by: str) -> int:
    """Remove every grant that `who` gave or holds; returns their number."""
    found = [(name, one) for name, one in _notes(tx) if who in (one.who, one.person, one.holder)]
    for name, one in found:
        tx.note(name, None)
        if one.holds(tx.now):
            append(tx, _entry("grant_revoked", one, by))
    return len(found)


def _approved(tx: Transaction, row: Proposal, grant: StandingGrant, within: float) -> Proposal:
    made = replace(row, created=tx.now, expires=tx.now + within, agent=grant.agent)
    log(tx, "proposed", made)
    made.decision = Decision(
        True, tx.now, grant.who, grant.claimed, PROTOCOL, None, grant.reason, grant=grant.id
    )
    made.state = "APPROVED"
    tx.put(made)
    log(tx, "approved", made)
    return made


def _entry(event: str, grant: StandingGrant, who: str) -> dict[str, Any]:
    shown = {"event": event, "id": grant.id, "who": who, "tool": grant.tool}
    said = {"holder": grant.holder, "uses": grant.uses, "used": grant.used, "ends": grant.ends}
    bound = [grant.deed, grant.arguments, grant.pattern, grant.context, grant.reason]
    return {**shown, **said, "claimed": grant.claimed, "grant": digest(bound)}


def _name(id: str) -> str:
    # Names of notes are printable ASCII, and an id may be any text of a caller.
    return _NOTES + "".join(c for c in id if c.isascii() and c.isalnum())[:64]


def _notes(tx: Transaction) -> Iterator[tuple[str, StandingGrant]]:
    for name, text in tx.notes(_NOTES).items():
        yield name, StandingGrant(**json.loads(text))


def _read(tx: Transaction, id: str) -> tuple[str, StandingGrant] | None:
    text = tx.notes(_name(id)).get(_name(id))
    return None if text is None else (text, StandingGrant(**json.loads(text)))


def _fits(wanted: Any, value: Any) -> bool:
    if wanted == "*":
        return True
    if isinstance(wanted, str) and isinstance(value, str):
        return value == wanted or fnmatchcase(value, wanted)
    return canonical(wanted) == canonical(value)
