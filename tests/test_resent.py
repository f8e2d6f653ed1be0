"""Requests of clients that send back only texts and the ids of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from sayso import Approval, Asked, Caller, Proposal, Shown, asked
from sayso.hosting import Calls
from sayso.ledger import Decision

CALLER = Caller("test")
SAID = [Shown("user", "delete a"), Shown("assistant", "On it.", ["a"])]


class Rows:
    """A ledger of a few rows."""

    def __init__(self, *rows: Proposal) -> None:
        self.rows = {row.id: row for row in rows}

    async def standing(self, ids: Sequence[str], caller: Caller) -> Mapping[str, Proposal]:
        return {id_: self.rows[id_] for id_ in ids if id_ in self.rows}


def row(id: str, state: Any = "PENDING", **fields: Any) -> Proposal:
    made = Proposal(id, "tool_call", "delete", {"name": id}, "t", 0, id, 0.0, 1.0, state=state)
    return replace(made, **fields)


def result(rows: Rows, shown: Sequence[Shown], *decisions: Approval, **options: Any) -> Asked:
    return asyncio.run(asked(cast(Calls, rows), CALLER, shown, decisions, **options))


def newest(found: Asked) -> list[Approval]:
    assert found.request is not None and found.request.messages[-1].data is not None
    return found.request.messages[-1].data.approvals


def test_a_text_while_a_call_is_pending_starts_nothing() -> None:
    found = result(Rows(row("a")), [*SAID, Shown("user", "yes")])
    assert found.request is None and [one.id for one in found.pending] == ["a"]


def test_a_text_that_supersedes_goes_on() -> None:
    found = result(Rows(row("a")), [*SAID, Shown("user", "forget it")], supersede=True)
    assert found.request is not None and newest(found) == []


def test_a_decision_stands_in_the_newest_message() -> None:
    decision = Approval(id="a", execute=True)
    found = result(Rows(row("a")), SAID, decision)
    assert newest(found) == [decision]
    assert found.request is not None and found.request.messages[-1].content == ""


@pytest.mark.parametrize("state", ["APPROVED", "EXECUTING", "DONE", "FAILED", "INDETERMINATE"])
def test_what_was_approved_elsewhere_counts_as_approved(state: str) -> None:
    (decision,) = newest(result(Rows(row("a", state)), [*SAID, Shown("user", "well?")]))
    assert decision.execute and decision.id == "a"


def test_a_text_runs_no_call_again_whose_outcome_is_unknown() -> None:
    unknown = row("a", "INDETERMINATE", idempotent=True)
    assert newest(result(Rows(unknown), [*SAID, Shown("user", "well?")])) == []
    again = Approval(id="a", execute=True)
    assert newest(result(Rows(unknown), [*SAID, Shown("user", "once more")], again)) == [again]


def test_what_was_rejected_elsewhere_counts_with_its_reason() -> None:
    no = Decision(approved=False, reason="too early", at=0.0)
    (decision,) = newest(
        result(Rows(row("a", "REJECTED", decision=no)), [*SAID, Shown("user", "well?")])
    )
    assert (decision.execute, decision.rejection_reason) == (False, "too early")


@pytest.mark.parametrize("state", ["DONE", "REJECTED"])
def test_an_outcome_is_told_once(state: str) -> None:
    found = result(Rows(row("a", state)), [*SAID, Shown("user", "thanks")], reported={"a"})
    assert newest(found) == []


def test_an_expired_call_is_no_decision() -> None:
    assert newest(result(Rows(row("a", "EXPIRED")), [*SAID, Shown("user", "well?")])) == []


def test_an_approved_call_further_back_is_meant_and_a_pending_one_holds_up() -> None:
    later = [Shown("user", "more"), Shown("assistant", "Yes."), Shown("user", "and?")]
    found = result(Rows(row("a", "APPROVED")), [*SAID, *later])
    assert found.request is not None and newest(found) == []
    data = found.request.messages[1].data
    assert data is not None and [one.execute for one in data.approvals] == [True]
    assert result(Rows(row("a")), [*SAID, *later]).request is None


def test_unknown_ids_are_nothing_and_the_ledgers_words_count() -> None:
    shown = [Shown("user", "x"), Shown("assistant", "y", ["a", "b"]), Shown("user", "z")]
    found = result(Rows(row("a", "DONE")), shown)
    assert found.request is not None
    data = found.request.messages[1].data
    assert data is not None and [(one.id, one.input) for one in data.approvals] == [
        ("a", {"name": "a"})
    ]
