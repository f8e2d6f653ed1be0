"""The record of proposals, for plugins that list them and report their changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from sayso.context import Caller
from sayso.conversation import approvals
from sayso.decisions.deed import requester
from sayso.engine import Engine
from sayso.errors import InvalidRequest
from sayso.hosting.numbers import Backlog
from sayso.hosting.record import Notes, Ruling
from sayso.ledger import Pending, Proposal, Reading, Transaction, outbox
from sayso.ledger.choices import Choice, Conversation, Requester, name_of
from sayso.ledger.log import append, digest
from sayso.ledger.people import Comment
from sayso.ledger.rules import Frozen
from sayso.ledger.voting import standing

T = TypeVar("T")
MOST_COMMENTS = 100
_COUNTED = 1_000
_NOTES = "plugin:"
"""The beginning of the names of all notes of plugins: they change no note of the core."""


class PluginNotes:
    """The notes of plugins in one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.now = tx.now

    def find(self, prefix: str) -> dict[str, str]:
        found = self._tx.notes(f"{_NOTES}{prefix}")
        return {name.removeprefix(_NOTES): text for name, text in found.items()}

    def put(self, name: str, text: str | None) -> None:
        self._tx.note(f"{_NOTES}{name}", text)


class Recorded:
    """The record of one service; `host.record`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """The result of `work`, which reads the state of one moment and writes nothing."""
        return await self._run(Reading(work, only=True))

    async def settle(self, ids: Sequence[str]) -> dict[str, Proposal]:
        """These rows by id, after updating those that have expired or whose owner has died."""
        settle = partial(self._engine.ledger.settle, ids)
        return await self._engine.code.workers.on_engine_loop(settle)

    async def notes(self, work: Callable[[Notes], T], *, lasting: bool = False) -> T:
        """The result of `work`, which reads and changes the notes of plugins in one transaction."""
        return await self._run(Reading(lambda tx: work(PluginNotes(tx)), flushed=lasting))

    def visible(self, row: Proposal | Pending, caller: Caller) -> bool:
        """Whether the call exists for this caller."""
        return self._engine.ledger.visible(row, requester(caller))

    def barred(self, row: Proposal, caller: Caller) -> str:
        """The reason why this caller may not approve the call: "AGENT", "NOT_AN_APPROVER" or
        "OWN_REQUEST"; an empty text if the caller may."""
        return self._engine.ledger.barred(row, requester(caller))

    def standing(self, row: Proposal) -> str:
        """A text with the persons who have approved a call that waits for others, and with those
        still needed; empty for a call that nobody has approved."""
        frozen = self._engine.ledger.freezing.now
        if row.state == "APPROVED" and frozen is not None:
            return frozen.words(row)
        return standing(row)

    async def backlog(self) -> Backlog:
        """The numbers of calls that wait; it reads up to 1,000 rows."""
        return await self.read(partial(_backlog, agent=self._engine.agent.id))

    async def frozen(self) -> Frozen | None:
        """The stop of all starts, if there is one: its author, time and reason."""
        return await self.read(self._engine.ledger.freezing.look)

    async def freeze(self, caller: Caller, reason: str) -> None:
        """Stop all starts of approved calls, in every process, within two seconds."""
        who = name_of(requester(caller))[0]
        await self._run(partial(self._engine.ledger.freezing.freeze, who=who, reason=reason))

    async def thaw(self, caller: Caller) -> None:
        """Let approved calls start again."""
        who = name_of(requester(caller))[0]
        await self._run(partial(self._engine.ledger.freezing.thaw, who=who))

    async def log(self, cursor: str | None, limit: int = 100) -> outbox.LogPage:
        """The rows of the log after `cursor`; None begins with the oldest. Raises ValueError for an
        invalid cursor."""
        read = partial(outbox.read, self._engine.ledger.store, cursor, limit)
        return await self._engine.code.workers.on_engine_loop(read)

    async def log_end(self) -> str:
        """The cursor after the newest rows, for a reader that begins now."""
        newest = partial(outbox.newest, self._engine.ledger.store)
        return await self._engine.code.workers.on_engine_loop(newest)

    async def decide_all(self, rulings: Sequence[Ruling], caller: Caller) -> list[Proposal]:
        """Record all of these decisions in one transaction, or none; returns the rows in their
        order.

        Raises InvalidRequest whose items point at `["body", "decisions", index]`.
        """
        who = requester(caller)
        choices = [_choice(number, each) for number, each in enumerate(rulings)]

        async def work() -> list[Proposal]:
            found = await self._engine.ledger.decide(choices, [], who, Conversation(), claim=False)
            for id_ in found.fresh:
                event = approvals.decision_event(found.rows[id_], who.principal)
                await self._engine.fire(event)
                self._engine.on_approved(found.rows[id_])
            return [found.rows[each.id] for each in rulings]

        return await self._engine.code.workers.on_engine_loop(work)

    async def comment(self, id: str, caller: Caller, text: str) -> Proposal | None:
        """The call with this comment added, or None if it is not visible to this caller.

        Raises InvalidRequest if it has too many comments.
        """
        return await self._run(partial(self._commented, id=id, who=requester(caller), text=text))

    def _commented(self, tx: Transaction, id: str, who: Requester, text: str) -> Proposal | None:
        row = tx.proposals([id]).get(id)
        if row is None or not self._engine.ledger.visible(row, who):
            return None
        if len(row.comments) >= MOST_COMMENTS:
            message = f"the call has {MOST_COMMENTS} comments, and takes no more"
            raise InvalidRequest.at(["body", "text"], "too_many_comments", message)
        name, claimed, *_ = name_of(who)
        row.comments.append(Comment(name, tx.now, text, claimed))
        tx.put(row)
        append(tx, {"event": "commented", "id": id, "who": name, "text": digest(text)})
        return row

    async def _run(self, work: Callable[[Transaction], T]) -> T:
        return await self._engine.code.workers.on_engine_loop(
            lambda: self._engine.ledger.store.run(work)
        )


def _backlog(tx: Transaction, agent: str) -> Backlog:
    found = tx.pending(None, _COUNTED)
    mine = [row for row in found if row.agent in ("", agent) and row.expires > tx.now]
    ready = tx.find(state="APPROVED", limit=_COUNTED)
    waiting = [row for row in ready if row.agent in ("", agent) and row.expires > tx.now]
    oldest = max((tx.now - row.created for row in mine), default=0.0)
    return Backlog(len(mine), len(waiting), max(0.0, oldest))


def _choice(number: int, ruling: Ruling) -> Choice:
    reason = None if ruling.approved else ruling.reason or "no reason given"
    why = ruling.reason if ruling.approved else None
    return Choice(
        ruling.id,
        None,
        ruling.approved,
        loc=("body", "decisions", number),
        newest=True,
        reason=reason,
        why=why,
        seen=ruling.seen if ruling.approved else None,
    )
