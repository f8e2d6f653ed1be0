"""A decision counts for the revision that its approver saw (design, section 6, "Revisions")."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from stages import ALICE, approve, call, decide, refused, reject, run, turn_of

from sayso.ledger import Proposal, Transaction
from sayso.ledger.choices import Choice, revise
from sayso.ledger.memory import MemoryStore
from sayso.ledger.record import Ledger

TWO, ONE, NONE = ({"replicas": n} for n in (2, 1, 0))


def edit(row: Proposal, stated: dict[str, Any]) -> dict[str, Any]:
    """Every change is allowed, and the tool gets just that."""
    return stated


@asynccontextmanager
async def edited(*inputs: dict[str, Any], **fields: Any) -> AsyncIterator[tuple[Ledger, Proposal]]:
    """A ledger with a pending call whose input was changed from two replicas to each of `inputs`,
    by approvers whose votes did not suffice."""
    ledger = Ledger(MemoryStore())
    await ledger.open()
    row = call("t", input=TWO, **fields)
    await ledger.propose(turn_of(row), [row])

    def change(tx: Transaction) -> Proposal:
        (found,) = tx.proposals([row.id]).values()
        for given in inputs:
            revise(found, given, given)
        tx.put(found)
        return found

    yield ledger, await ledger.store.run(change)
    await ledger.close()


def seen(row: Proposal, revision: int, *inputs: dict[str, Any]) -> str:
    """The digest of what an approver of this revision saw."""
    given = [TWO, *inputs][revision - 1] if revision <= len(inputs) + 1 else {}
    return replace(row, revision=revision, edited=None, input=given).seen


async def outcome(ledger: Ledger, choice: Choice) -> set[str]:
    return await refused(ledger, choice, edit=edit, claim=False)


@pytest.mark.parametrize(
    ("changes", "types"),
    [
        ({"input": NONE}, set()),
        ({"input": TWO}, {"approval_changed"}),
        ({"input": ONE}, {"approval_changed"}),
        ({"input": None, "seen": 3}, set()),
        ({"input": None, "seen": 2}, {"approval_changed"}),
        ({"input": None, "seen": 1}, {"approval_changed"}),
        ({"input": None, "seen": 4}, {"approval_changed"}),
        ({"input": None}, {"approval_changed"}),
        ({"input": NONE, "seen": 3}, set()),
        ({"input": TWO, "seen": 1}, {"approval_changed"}),
        # An approver who has seen the newest revision may change it back.
        ({"input": TWO, "seen": 3}, set()),
        ({"input": {"replicas": 5}, "seen": 1}, {"approval_changed"}),
        ({"input": {"replicas": 5}, "seen": 3}, set()),
    ],
)
def test_approval_counts_for_the_revision_that_it_echoes_or_says_to_have_seen(
    changes: dict[str, Any], types: set[str]
) -> None:
    async def work() -> None:
        async with edited(ONE, NONE) as (ledger, row):
            assert row.revision == 3
            stated = dict(changes)
            if "seen" in stated:
                stated["seen"] = seen(row, stated["seen"], ONE, NONE)
            assert await outcome(ledger, approve(row, **stated)) == types
            stands = (await ledger.settle([row.id]))[row.id]
            assert stands.state == ("PENDING" if types else "APPROVED")
            if not types:
                assert stands.runs == (changes["input"] or NONE)

    run(work())


def test_edit_makes_a_new_revision_and_is_known_when_it_is_sent_again() -> None:
    async def work() -> None:
        async with edited() as (ledger, row):
            assert row.revision == 1
            again = approve(row, input=NONE, seen=seen(row, 1))
            assert await outcome(ledger, again) == set()
            stands = (await ledger.settle([row.id]))[row.id]
            assert (stands.revision, stands.runs, stands.state) == (2, NONE, "APPROVED")
            # Its editor, whose approval was lost on the way.
            assert await outcome(ledger, again) == set()
            assert await outcome(ledger, approve(row, input=TWO)) == {"approval_changed"}
            assert await outcome(ledger, approve(row, input=TWO, seen=seen(row, 1))) == {
                "approval_changed"
            }
            # Nobody changes a decision.
            assert await outcome(ledger, approve(row, input=ONE, seen=seen(row, 2, NONE))) == {
                "approval_changed"
            }

    run(work())


@pytest.mark.parametrize("choose", [approve, reject])
def test_decision_of_an_earlier_revision_is_no_conflict_once_the_call_has_ended(
    choose: Callable[..., Choice],
) -> None:
    async def work() -> None:
        async with edited(NONE) as (ledger, row):
            decided = choose(row, input=NONE, seen=seen(row, 2, NONE))
            found = await decide(ledger, decided, edit=edit)
            for grant in found.grants:
                await ledger.finish(grant, "DONE", "scaled")
            for shown in (decided, choose(row, input=TWO), choose(row, input=TWO, seen=1)):
                assert await outcome(ledger, shown) == set()

    run(work())


def test_rejection_counts_whatever_its_caller_has_seen() -> None:
    async def work() -> None:
        async with edited(NONE) as (ledger, row):
            assert await outcome(ledger, reject(row, input=TWO, seen=1)) == set()
            assert (await ledger.settle([row.id]))[row.id].state == "REJECTED"

    run(work())


def test_one_of_two_carriers_says_what_was_seen() -> None:
    async def work() -> None:
        async with edited(NONE) as (ledger, row):
            bare = approve(row, input=None, through_approvals=True)
            assert await refused(ledger, bare, approve(row, input=TWO), edit=edit) == {
                "approval_changed"
            }
            assert await refused(ledger, bare, approve(row, input=NONE), edit=edit) == set()

    run(work())


def test_idempotent_call_of_unknown_outcome_starts_again_only_as_it_was_edited() -> None:
    async def work() -> None:
        async with edited(NONE, idempotent=True) as (ledger, row):
            (grant,) = (await decide(ledger, approve(row, input=NONE), who=ALICE)).grants
            await ledger.finish(grant, "INDETERMINATE", "Outcome unknown: it timed out.")
            assert await refused(ledger, approve(row, input=TWO)) == {"approval_changed"}
            assert await refused(ledger, approve(row, input=None)) == {"approval_changed"}
            seen = (await ledger.settle([row.id]))[row.id].seen
            (again,) = (await decide(ledger, approve(row, input=None, seen=seen))).grants
            assert again.proposal.runs == NONE

    run(work())
