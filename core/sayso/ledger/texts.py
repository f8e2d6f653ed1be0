"""Proposals and suspended turns as JSON texts, for a store's columns.

The texts are pure ASCII, so no database has to store NUL or lone surrogates.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from sayso.ledger import Decision, Owner, Proposal, SuspendedTurn
from sayso.ledger.people import Comment, Terms, Vote

T = TypeVar("T")
_CONTENTS = ("input", "edited", "output", "session", "intent")
_LATER = ("sent", "comments", "preview")
"""Fields that few proposals have; they follow the reason of the decision."""
_DOC = tuple(f.name for f in fields(Proposal) if f.name not in (*_CONTENTS, *_LATER))
_TURN_DOC = tuple(f.name for f in fields(SuspendedTurn))
_OWNER = tuple(f.name for f in fields(Owner))
_DECISION = tuple(f.name for f in fields(Decision) if f.name != "reason")
_doc_of = attrgetter(*_DOC)
_turn_doc_of = attrgetter(*_TURN_DOC)
_owner_of = attrgetter(*_OWNER)
_decision_of = attrgetter(*_DECISION)
_contents_of = attrgetter(*_CONTENTS)
_LONGEST_KEY = 400


def dumps(value: object) -> str:
    """`value` as compact JSON text in ASCII."""
    try:
        # Four times as fast, but fails on lone surrogates.
        return to_json(value, ensure_ascii=True, inf_nan_mode="constants").decode()
    except ValueError:
        return json.dumps(value, separators=(",", ":"), default=asdict)


def loads(text: str) -> Any:
    """The inverse of `dumps`."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def key(text: str) -> str:
    """`text` in the form of an indexed column: printable ASCII of bounded length, one to one."""
    if len(text) <= _LONGEST_KEY and text.isascii() and text.isprintable() and "\\" not in text:
        # Nearly all ids are Sayso's own or a provider's, and need no change.
        return text
    if len(text) > _LONGEST_KEY:
        return "\\#" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return text.encode("unicode_escape").decode("ascii")


def dump_proposal(proposal: Proposal) -> tuple[str, str]:
    """The JSON texts of the row and of its contents."""
    doc = dict(zip(_DOC, _doc_of(proposal), strict=True))
    decision = proposal.decision
    doc["owner"] = _dump_owner(proposal.owner)
    doc["decision"] = decision and dict(zip(_DECISION, _decision_of(decision), strict=True))
    contents = [*_contents_of(proposal), decision.reason if decision else None]
    later = [proposal.sent, proposal.comments or None, proposal.preview]
    while later and later[-1] is None:
        later.pop()
    contents += later
    return dumps(doc), dumps(contents)


NO_CONTENTS = dumps([{}, None, None, None, None, None])
"""The contents of a proposal that has none, or whose contents were purged."""


def load_proposal(doc: str, contents: str | None, lease: float | None) -> Proposal:
    """The inverse of `dump_proposal`; `contents` is None after a purge, `lease` is the column."""
    row: dict[str, Any] = loads(doc)
    # A newer Sayso may have written more fields, here and in other rows.
    found = [*loads(contents or NO_CONTENTS), None, None, None]
    *values, reason, sent, comments, preview = found[: len(_CONTENTS) + 4]
    row["owner"] = _load_owner(row["owner"], lease)
    if row["decision"]:
        row["decision"] = _made(Decision, {**row["decision"], "reason": reason})
    row |= zip(_CONTENTS, values, strict=True)
    row["terms"] = load_terms(row.get("terms"))
    if votes := row.get("votes"):
        row["votes"] = [_made(Vote, vote) for vote in votes]
    row["comments"] = [_made(Comment, comment) for comment in comments or ()]
    return _made(Proposal, {**row, "sent": sent, "preview": preview})


def load_terms(value: dict[str, Any] | None) -> Terms | None:
    """The terms in a proposal's document."""
    return _made(Terms, value) if value else None


def dump_turn(turn: SuspendedTurn) -> str:
    """The JSON text of the row."""
    doc = dict(zip(_TURN_DOC, _turn_doc_of(turn), strict=True))
    doc["owner"] = _dump_owner(turn.owner)
    return dumps(doc)


def load_turn(doc: str, lease: float | None) -> SuspendedTurn:
    """The inverse of `dump_turn`; `lease` is the column, which a renewal changes alone."""
    row: dict[str, Any] = loads(doc)
    row["owner"] = _load_owner(row["owner"], lease)
    return _made(SuspendedTurn, row)


def _dump_owner(owner: Owner | None) -> dict[str, Any] | None:
    return dict(zip(_OWNER, _owner_of(owner), strict=True)) if owner else None


def _load_owner(value: dict[str, Any] | None, lease: float | None) -> Owner | None:
    return _made(Owner, {**value, "lease": lease}) if value else None


def _made(kind: type[T], values: dict[str, Any]) -> T:
    try:
        return kind(**values)
    except TypeError:
        known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
        return kind(**{name: value for name, value in values.items() if name in known})
