"""Whether a decision may be made: the people who may decide and the approvals that count (design,
section 6, "People"), and what contradicts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from sayso.errors import InvalidRequest, ToolInputError
from sayso.ledger import Proposal, Transaction
from sayso.ledger.choices import Choice, Decided, Edit, Requester, name_of, renamed, would_start
from sayso.ledger.log import append, digest
from sayso.ledger.people import Terms, Vote
from sayso.principals import Principal, is_agent, person_of
from sayso.wire.messages import Approval, Command

_WORDS = {
    "AGENT": "an agent decides nothing; a person has to",
    "NOT_AN_APPROVER": "the rule for this call names others who may approve it",
    "OWN_REQUEST": "the requester may not approve this call; somebody else has to",
}
_REASON = "the rule for this call demands a reason for the approval; state it as 'reason'"
_GROUP = "group:"


def barred(row: Proposal, who: Requester, *, operator: bool = False) -> str:
    """The reason why `who` may not approve the call, for `why_barred`; empty if `who` may.

    An `operator` on the command line proves no identity: if a rule names people, the operator is
    none of them.
    """
    if is_agent(who.principal):
        return "AGENT"
    if (terms := row.terms) is None:
        return ""
    if _of_people(terms) and operator:
        return "NOT_AN_APPROVER"
    if terms.approvers and not is_named(terms, who.principal):
        return "NOT_AN_APPROVER"
    if _of_persons(terms) and person_of(who.principal) is None:
        return "NOT_AN_APPROVER"
    return "OWN_REQUEST" if terms.not_requester and _asked(row, who) else ""


def why_barred(reason: str) -> str:
    """The reason that keeps somebody from approving a call, in words; it is "AGENT",
    "NOT_AN_APPROVER" or "OWN_REQUEST"."""
    return _WORDS[reason]


def is_named(terms: Terms, principal: str | None) -> bool:
    """Whether the rule names this principal, its person, or one of its groups."""
    if principal is None:
        return False
    names = {str(principal), person_of(principal)}
    groups = principal.groups if isinstance(principal, Principal) else frozenset[str]()
    return any(
        each.removeprefix(_GROUP) in groups if each.startswith(_GROUP) else each in names
        for each in terms.approvers
    )


def refusal(
    choice: Choice, row: Proposal, who: Requester, *, operator: bool = False
) -> tuple[str, str] | None:
    """The reason why `who` may not make this decision, as an error type and a message; None if
    `who` may, or if the decision was made already."""
    again = row.state != "APPROVED" and would_start(choice, row)
    if row.state != "PENDING" and not again:
        return None
    own = row.principal == who.principal
    why = barred(row, who, operator=operator)
    # The principal that received the proposal may always reject it, and so may the operator.
    if why and (choice.approved or not (own or operator)):
        return "approval_not_allowed", why_barred(why)
    reasoned = bool((choice.why or "").strip())
    if choice.approved and row.terms is not None and row.terms.reason and not reasoned:
        return "approval_reason_required", _REASON
    return None


def completes(choice: Choice, row: Proposal, who: Requester) -> bool:
    """Whether the approval is the last one that the call needs."""
    if row.terms is None or row.state != "PENDING":
        return True
    voted = {vote.person for vote in row.votes} | {person_of(who.principal)}
    return len(voted) >= row.terms.quorum


def vote(
    tx: Transaction, choice: Choice, row: Proposal, who: Requester, *, edits: bool = False
) -> bool:
    """Count an approval; returns whether it is the last one that the call needs.

    A second approval of the same person changes nothing. An editor of the input approves the new
    input, which nobody else has approved yet. If the requester may not approve, an editor counts as
    a requester, too, and the edit is no approval.
    """
    if (terms := row.terms) is None:
        return True
    name, claimed, protocol, address = name_of(who)
    person = person_of(who.principal)
    entry: dict[str, Any] = {"event": "voted", "id": row.id, "who": name}
    entry |= {"person": person, "protocol": protocol, "address": address}
    entry |= {"input": digest(row.runs), "rule": terms.rule, "needed": terms.quorum}
    if edits:
        row.votes, row.editors = [], [*row.editors, str(person or name)]
    if edits and terms.not_requester:
        append(tx, {**entry, "event": "edited"})
    elif completes(choice, row, who):
        if terms.run_within is not None:
            row.expires = tx.now + terms.run_within
        return True
    elif person not in {vote.person for vote in row.votes}:
        row.votes.append(Vote(name, tx.now, person, claimed, protocol, address, row.revision))
        append(tx, entry)
    tx.put(row)
    return False


def votes(row: Proposal) -> dict[str, Any]:
    """The number of approvals that a call needs if a rule gives it to people, the number that it
    has, and their authors; empty for any other call."""
    if row.terms is None or not _of_people(row.terms):
        return {}
    by = [vote.person or vote.who for vote in row.votes]
    return {"needed": row.terms.quorum, "given": len(by), "by": by, "of": row.terms.approvers}


def needed_approvals(call: Proposal | Approval) -> str:
    """A sentence on who has approved a pending call and who is still needed, if a rule names
    people; empty for any other call."""
    stated = votes(call) if isinstance(call, Proposal) else call.votes
    if not stated:
        return ""
    missing = stated["needed"] - stated["given"]
    others = f" of {', '.join(map(_readable, stated['of']))}" if stated["of"] else ""
    needed = "one approval" if missing == 1 else f"{missing} approvals"
    if not stated["by"]:
        return f"It needs {needed}{others}."
    named = ", ".join(map(str, stated["by"]))
    more = "one more approval" if missing == 1 else f"{missing} more approvals"
    return f"It was approved by {named}; it needs {more}{others}."


def standing(row: Proposal) -> str:
    """A text with the persons who have approved a call that waits for others, and with those still
    needed."""
    if row.terms is None or not row.votes:
        return ""
    return needed_approvals(row).replace("It was", f"{row.name} was", 1)


def _readable(approver: str) -> str:
    group = approver.startswith(_GROUP)
    return f"the group {approver.removeprefix(_GROUP)}" if group else approver


def _of_people(terms: Terms) -> bool:
    return bool(terms.approvers) or _of_persons(terms)


def _of_persons(terms: Terms) -> bool:
    """Whether only approvers count whose person is known."""
    return terms.quorum > 1 or terms.not_requester


def _asked(row: Proposal, who: Requester) -> bool:
    """Whether `who` asked for the call or changed it: the principal itself, or its person."""
    mine = {str(who.principal), person_of(who.principal)}
    return not mine.isdisjoint({row.principal, row.person, row.user, *row.editors} - {None})


def contradiction(choice: Choice, row: Proposal) -> tuple[str, str] | None:
    """The conflict of the decision with the row's state, as an error type and a message; None if
    there is none."""
    if choice.approved and choice.reason is not None:
        return "approval_conflict", "the call is both approved and rejected"
    if row.state == "EXPIRED":
        late = choice.approved and choice.newest
        return ("approval_expired", "the proposal has expired") if late else None
    if choice.approved and row.state == "REJECTED":
        return "approval_conflict", "the call was rejected before"
    if not choice.approved and row.state not in ("PENDING", "REJECTED"):
        return "approval_conflict", "the call was approved before"
    return None


def wrong_edit(choice: Choice, row: Proposal, edit: Edit | None) -> str:
    """Why an approval may not change the call as the choice does; empty if it may."""
    allowed = None
    if edit and choice.input is not None and not renamed(choice, row) and row.state == "PENDING":
        try:
            allowed = edit(row, choice.input)
        except ToolInputError as error:
            return f"the changed input does not fit the tool: {error.bare}"
    return "the name or input differs from what was proposed" if allowed is None else ""


def edited_twice(found: Decided) -> set[str]:
    """The ids of calls for which this request states two different inputs to run."""
    stated: dict[str, set[str]] = {}
    for choice, row in found.chosen:
        decides = not choice.copy and choice.input is not None
        if decides and row.kind == "tool_call" and row.state == "PENDING":
            stated.setdefault(row.id, set()).add(found.stated(choice, row))
    return {id_ for id_, inputs in stated.items() if len(inputs) > 1}


def complete(choice: Choice) -> bool:
    """Whether the choice states everything needed to run a call that was never proposed."""
    if choice.kind != "command":
        return bool(choice.id and choice.name)
    try:
        Command.model_validate(choice.input)
    except ValidationError:
        return False
    return True


def may_be_issued(choice: Choice) -> bool:
    """Whether the choice may run a call that this service never proposed, if that is allowed."""
    return choice.approved and not choice.copy and complete(choice)


def refused(choice: Choice, kind: str, message: str) -> dict[str, Any]:
    """The item of a 422 that points at the choice."""
    return {"loc": list(choice.loc), "msg": message, "type": kind}


def not_issued(choice: Choice) -> dict[str, Any]:
    """The item of a 422 for a decision on a call that was never proposed."""
    return refused(choice, "approval_not_issued", "this service did not propose this call")


def refuse(items: Sequence[dict[str, Any]]) -> None:
    """Raise InvalidRequest if there is any item."""
    if items:
        raise InvalidRequest(items)
