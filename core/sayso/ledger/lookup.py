"""Finds the row that a command without an id means (design, section 6, "Commands")."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from sayso.ledger import OPEN, Proposal, Transaction
from sayso.ledger.choices import Choice, Conversation, Requester, command_identity, command_key
from sayso.trees import canonical

_ByText = dict[bytes, list[Proposal]]


class Lookup:
    """The rows that the commands of one request may mean, in one transaction.

    No search is repeated: a request may have thousands of commands, and thousands of messages
    before them. `shown` are the rows that its ids name and their turns'; `visible` and `settle` are
    those of the rules.
    """

    def __init__(
        self,
        tx: Transaction,
        who: Requester,
        conversation: Conversation,
        shown: Collection[str],
        visible: Callable[[Proposal, Requester], bool],
        settle: Callable[[Transaction, Proposal], Proposal],
    ) -> None:
        self._tx = tx
        self._who = who
        self._conversation = conversation
        # Rows found here are added.
        self._shown = frozenset(shown)
        self._visible = visible
        self._settle = settle
        self._found: dict[tuple[bytes, int], Sequence[Proposal]] = {}
        self._own: _ByText | None = None
        self._walked: dict[int, _ByText] = {}
        # The places where something may have been proposed; places without a proposal are removed.
        self._left = list(range(len(conversation.references)))

    def row(self, choice: Choice) -> Proposal | None:
        """The row that the command means; equal commands of one turn are matched in their order."""
        wanted = command_key(choice.input or {})
        place = (wanted, choice.message)
        if place not in self._found:
            by_id = bool(self._conversation.id)
            self._found[place] = self._in_conversation(*place) if by_id else self._nearest(*place)
        same = self._found[place]
        return same[min(choice.ordinal, len(same) - 1)] if same else None

    def _in_conversation(self, wanted: bytes, message: int) -> Sequence[Proposal]:
        if self._own is None:
            # If there is more than one page, read the newest rows.
            found = self._tx.find(conversation=self._conversation.id, newest=True)
            self._own = self._by_text(reversed(found))
        rows = self._own.get(wanted, [])
        near = {row.reference for row in rows}
        places = sorted(self._places[one] for one in near if one in self._places)
        if places:
            # Asked for twice, for instance after a lost reply: take the decided one, or else the
            # newer one.
            reference = self._conversation.references[_nearest_first(places, message)[0]]
            same = self._received([row for row in rows if row.reference == reference])
            return _of_turn(same, [row for row in same if row.decision] or same)
        return _of_turn(rows, rows)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {one: place for place, one in enumerate(self._conversation.references)}

    def _nearest(self, wanted: bytes, message: int) -> Sequence[Proposal]:
        for rows in self._near(message):
            if wanted not in rows:
                continue
            equal = [self._settle(self._tx, row) for row in self._received(rows[wanted])]
            open_ = [row for row in equal if row.state in OPEN]
            same = _of_turn(equal, open_ or equal)
            # If several turns have ended, it is unclear whose outcome is asked for.
            return same if open_ or len(same) == len(equal) else []
        return []

    def _received(self, rows: Sequence[Proposal]) -> Sequence[Proposal]:
        """Of rows proposed at one place, those whose reply the client has, if its messages have any
        id from that place."""
        return [row for row in rows if row.id in self._shown] or rows

    def _near(self, message: int) -> Iterator[_ByText]:
        """The proposals to this user after each reference, the nearest to the message first."""
        for place in _nearest_first(self._left, message):
            if place not in self._walked:
                reference = self._conversation.references[place]
                # Everybody whose messages are the same has this reference.
                found = self._tx.find(reference=reference, newest=True)
                own = (row for row in reversed(found) if row.user == self._who.user)
                self._walked[place] = self._by_text(own)
            if rows := self._walked[place]:
                yield rows
            else:
                del self._left[bisect_left(self._left, place)]

    def _by_text(self, rows: Iterable[Proposal]) -> _ByText:
        found: _ByText = {}
        for row in rows:
            if row.kind == "command" and self._visible(row, self._who):
                found.setdefault(command_key(row.input), []).append(row)
        return found


def _nearest_first(places: Sequence[int], message: int) -> list[int]:
    """The ascending `places` in the order of the search for a message's decision: proposals made
    before the message, the latest first; then those made in answer to it."""
    after = bisect_left(places, message)
    return [*reversed(places[:after]), *reversed(places[after:])]


def _of_turn(rows: Sequence[Proposal], stated: Sequence[Proposal]) -> Sequence[Proposal]:
    """The rows in the turn of the last row in `stated`."""
    turn = max(stated, key=lambda row: row.created).turn if stated else None
    return [row for row in rows if row.turn == turn]


def name_of_unissued(choice: Choice, who: Requester, conversation: Conversation) -> str:
    """The id for a command that was never proposed and has none."""
    place = [conversation.id, *conversation.references[choice.message : choice.message + 1]]
    wanted = command_identity(choice.input or {})
    parts = [place, wanted, choice.ordinal, who.principal, who.tenant, who.user]
    return hashlib.sha256(canonical(parts)).hexdigest()[:32]
