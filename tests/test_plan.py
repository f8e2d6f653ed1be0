"""The next step of a request, as a pure function (`sayso.turns.plan`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sayso import Data, Message, ToolCall
from sayso.conversation import approvals
from sayso.errors import InvalidRequest
from sayso.ledger import ENDED, Proposal, SuspendedTurn
from sayso.ledger.choices import Decided
from sayso.turns.plan import AskFunction, Asking, AskModel, Restate, plan
from sayso.wire.messages import Command

STATES = st.sampled_from(
    ["PENDING", "APPROVED", "REJECTED", "EXPIRED", "EXECUTING", "DONE", "FAILED", "INDETERMINATE"]
)


def call(turn: str, index: int, state: str = "PENDING", kind: str = "tool_call") -> Proposal:
    given: Any = {"kind": kind, "state": state}
    return Proposal(
        id=f"{turn}-{index}",
        name="command" if kind == "command" else "reboot",
        input={"command": f"run {index}", "files": None} if kind == "command" else {"host": "a"},
        turn=turn,
        index=index,
        call_id="c",
        created=1.0,
        expires=9.0,
        **given,
    )


def found(*rows: Proposal, callables: bool = False, mine: bool = True) -> Decided:
    decided = Decided(rows={row.id: row for row in rows})
    for id_ in {row.turn for row in rows}:
        if callables:
            decided.callables.add(id_)
        if mine:
            decided.turns[id_] = SuspendedTurn(id_, 1.0, from_callable=callables)
    return decided


def shown(row: Proposal, **how: Any) -> Data:
    if row.kind == "command":
        return Data(cmds=[Command(command=row.input["command"], id=row.id, **how)])
    return Data(tool_calls=[ToolCall(id=row.id, name=row.name, input=row.input, **how)])


def asking(
    decided: Decided, *messages: Message, to_callable: bool = False, empty: bool | None = None
) -> Asking:
    choices = approvals.choices(messages)
    decided.chosen = [(c, decided.rows[c.id]) for c in choices if c.id in decided.rows]
    blank = not messages[-1].content.strip()
    return Asking(
        messages,
        approvals.shown(messages),
        decided,
        decides=any(not c.copy for c in choices),
        blank=blank,
        empty=blank if empty is None else empty,
        to_callable=to_callable,
    )


def said(row: Proposal, text: str = "", **how: Any) -> list[Message]:
    """A history that shows the call, and the newest message, which may decide it."""
    newest = Message(role="user", content=text, data=shown(row, **how) if how else None)
    return [Message(role="assistant", content="", data=shown(row)), newest]


def test_turn_whose_only_call_is_decided_goes_on() -> None:
    row = call("t", 0, "DONE")
    assert plan(asking(found(row), *said(row, execute=True))) == AskModel(("t",))


def test_call_that_is_still_pending_beside_the_decided_one_is_restated() -> None:
    rows = [call("t", 0, "DONE"), call("t", 1)]
    assert plan(asking(found(*rows), *said(rows[0], execute=True))) == Restate([rows[1]])


def test_command_that_is_pending_does_not_hold_up_new_words() -> None:
    rows = [call("t", 0, "DONE"), call("t", 1, kind="command")]
    request = asking(found(*rows), *said(rows[0], "and now?", execute=True))
    assert plan(request) == AskModel(("t",))


def test_call_that_was_approved_elsewhere_is_restated_until_its_caller_sends_it_back() -> None:
    row = call("t", 0, "APPROVED")
    assert plan(asking(found(row), *said(row))) == Restate([row])


def test_empty_message_continues_a_turn_all_of_whose_calls_have_ended() -> None:
    row = call("t", 0, "REJECTED")
    assert plan(asking(found(row), *said(row))) == AskModel(("t",))


def test_empty_message_that_nothing_waits_for_is_refused() -> None:
    row = call("t", 0, "DONE")
    decided = found(row)
    decided.turns["t"].state = "ENDED"
    with pytest.raises(InvalidRequest, match="nothing waits"):
        plan(asking(decided, *said(row)))


def test_callable_is_given_what_an_earlier_request_decided() -> None:
    row = call("t", 0, "APPROVED")
    history = [*said(row, "yes", execute=True), Message(role="assistant", content="soon")]
    request = asking(
        found(row, callables=True), *history, Message(role="user", content="?"), to_callable=True
    )
    step = plan(request)
    assert step == AskFunction(("t",), ("t",))
    assert isinstance(step, AskFunction)
    assert step.unacknowledged


def test_other_persons_turn_is_given_to_its_callable_and_not_continued() -> None:
    row = call("t", 0, "APPROVED")
    request = asking(
        found(row, callables=True, mine=False), *said(row, execute=True), to_callable=True
    )
    assert plan(request) == AskFunction((), ("t",))


@st.composite
def requests(draw: Any) -> Asking:
    """Any conversation over up to three suspended turns in any state."""
    decided = Decided()
    for turn in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        kinds = draw(st.lists(st.sampled_from(["tool_call", "command"]), min_size=1, max_size=3))
        rows = [call(turn, n, draw(STATES), kind) for n, kind in enumerate(kinds)]
        one = found(*rows, callables=draw(st.booleans()), mine=draw(st.booleans()))
        decided.rows |= one.rows
        decided.turns |= one.turns
        decided.callables |= one.callables
    messages = []
    for role in [*draw(st.lists(st.sampled_from(["user", "assistant"]), max_size=4)), "user"]:
        data = Data()
        for row in decided.rows.values():
            if draw(st.booleans()):
                how = draw(st.sampled_from([{}, {"execute": True}, {"rejection_reason": "no"}]))
                stated = shown(row, **how)
                data.tool_calls += stated.tool_calls
                data.cmds += stated.cmds
        messages.append(Message(role=role, content=draw(st.sampled_from(["", "hi"])), data=data))
    return asking(decided, *messages, to_callable=draw(st.booleans()))


@given(requests())
@settings(max_examples=400)
def test_plan_restates_only_what_waits_and_goes_on_past_no_pending_tool_call(
    request: Asking,
) -> None:
    rows = request.found.rows.values()
    try:
        step = plan(request)
    except InvalidRequest:
        assert request.empty and not request.decides
        assert not any(row.state == "PENDING" and row.id in request.shown for row in rows)
        return
    if isinstance(step, Restate):
        assert step.pending
        assert all(row.state in ("PENDING", "APPROVED") for row in step.pending)
        return
    assert set(step.own) <= request.found.turns.keys()
    callables = step.callables if isinstance(step, AskFunction) else ()
    assert set(callables) <= request.found.callables
    pending = {row.turn for row in rows if row.kind == "tool_call" and row.state == "PENDING"}
    assert pending.isdisjoint({*step.own, *callables})
    if not request.decides and not getattr(step, "unacknowledged", False):
        ended = [row.state in ENDED for row in rows if row.turn in step.own]
        assert all(ended)
