"""The model's input satisfies every provider's pairing rules, whatever the client sends."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sayso.conversation.approvals import references
from sayso.conversation.calls import paired
from sayso.conversation.history import bound_to, model_turns
from sayso.ledger import Decision, Proposal, SuspendedTurn
from sayso.ledger.choices import Decided
from sayso.models import Call, Result, Text, Turn, dump_turns
from sayso.wire.messages import Message


def prefixes(messages: list[Message]) -> list[str]:
    return references((m.role, m.content) for m in messages)


IDS = st.sampled_from(["a", "b", "c", "p1", "p2", "p3", "p4"])
TEXTS = st.sampled_from(["", " ", "hello", "more"])


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    call: dict[str, Any] = {"id": draw(IDS), "name": "tool", "input": {}}
    match draw(st.sampled_from(["pending", "approved", "rejected"])):
        case "approved":
            call["execute"] = True
        case "rejected":
            call["rejection_reason"] = "no"
    return call


@st.composite
def message(draw: st.DrawFn, role: str | None = None) -> Message:
    data: dict[str, Any] = {}
    if draw(st.booleans()):
        data["tool_calls"] = draw(st.lists(calls(), max_size=2))
    if draw(st.booleans()):
        data["approvals"] = draw(st.lists(calls(), max_size=2))
    if draw(st.booleans()):
        data["executed_tool_calls"] = [
            {"id": draw(IDS), "name": "tool", "input": {}, "output": draw(TEXTS)}
        ]
    if draw(st.booleans()):
        data["cmds"] = [{"command": draw(st.sampled_from(["ls", "df"])), "execute": False}]
    if draw(st.booleans()):
        data["executed_cmds"] = [{"command": "ls", "output": ""}]
    if draw(st.booleans()):
        kind, given = draw(st.sampled_from([("tool_call", {}), ("command", {"command": "ls"})]))
        done = {"id": draw(IDS), "type": kind, "name": "tool", "input": given, "output": "done"}
        data["executed_approvals"] = [done]
    return Message.model_validate(
        {
            "role": role or draw(st.sampled_from(["user", "assistant"])),
            "content": draw(TEXTS),
            "data": data,
        }
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    history = draw(st.lists(message(), max_size=5))
    return [*history, draw(message(role="user"))]


@st.composite
def ledgers(draw: st.DrawFn, messages: list[Message]) -> Decided:
    """Up to two suspended turns of two calls each, in any state, placed anywhere."""
    found = Decided()
    known = prefixes(messages)
    for name, ids in [("t", ["p1", "p2"]), ("u", ["p3", "p4"])][: draw(st.integers(0, 2))]:
        calls = [Call(f"{name}{n}", "tool", {"id": id_}) for n, id_ in enumerate(ids)]
        asked = Turn("assistant", [Text("thinking"), *calls])
        found.turns[name] = SuspendedTurn(
            id=name,
            created=float(len(found.turns)),
            reference=draw(st.sampled_from([*known, "elsewhere"])),
            transcript=draw(st.sampled_from([dump_turns([asked]), []])),
            calls=ids,
            prefix=draw(st.sampled_from(["same", "other"])),
        )
        for index, (id_, call) in enumerate(zip(ids, calls, strict=True)):
            state: Any = draw(st.sampled_from(["PENDING", "DONE", "FAILED", "REJECTED", "EXPIRED"]))
            found.rows[id_] = Proposal(
                id=id_,
                kind="tool_call",
                name="tool",
                input={"id": id_},
                turn=name,
                index=index,
                call_id=call.id,
                created=1.0,
                expires=2.0,
                state=state,
                decision=Decision(state != "REJECTED", 1.0, reason="no"),
                output=f"out of {id_}",
            )
    return found


def with_ids_again(found: Decided) -> Decided:
    """The same with model call ids that also occur in other replies and messages."""
    again = {f"{turn}{n}": id_ for turn in "tu" for n, id_ in enumerate("ab")}

    def transcript(turn: SuspendedTurn) -> list[dict[str, Any]]:
        text = json.dumps(turn.transcript)
        for own, id_ in again.items():
            text = text.replace(f'"{own}"', f'"{id_}"')
        loaded: list[dict[str, Any]] = json.loads(text)
        return loaded

    rows = {id_: replace(row, call_id=again[row.call_id]) for id_, row in found.rows.items()}
    turns = {name: replace(t, transcript=transcript(t)) for name, t in found.turns.items()}
    return replace(found, rows=rows, turns=turns)


def without_ids(turns: list[Turn]) -> list[list[object]]:
    return [[replace(b, **_NO_ID.get(type(b), {})) for b in turn.blocks] for turn in turns]


_NO_ID: dict[type, dict[str, Any]] = {Call: {"id": ""}, Result: {"call_id": ""}}


def assert_accepted_by_providers(turns: list[Turn]) -> None:
    assert turns[0].role == turns[-1].role == "user"
    assert all(a.role != b.role for a, b in zip(turns, turns[1:], strict=False))
    seen: set[str] = set()
    for index, turn in enumerate(turns):
        assert turn.blocks, "a turn without blocks"
        texts = [b for b in turn.blocks if isinstance(b, Text)]
        assert all(b.text.strip() for b in texts)
        asked = [b.id for b in turn.blocks if isinstance(b, Call)]
        results = [b for b in turn.blocks if isinstance(b, Result)]
        assert not (asked and turn.role == "user")
        assert not (results and turn.role == "assistant")
        assert seen.isdisjoint(asked) and len(set(asked)) == len(asked)
        seen |= set(asked)
        if asked:
            answers = [b.call_id for b in turns[index + 1].blocks if isinstance(b, Result)]
            assert answers == asked
            assert all(not isinstance(b, Result) for b in turns[index + 1].blocks[len(asked) :])
        elif turn.role == "assistant":
            assert not any(isinstance(b, Result) for b in turns[index + 1].blocks)
        assert all(r.output.strip() for r in results)
    assert not any(isinstance(b, Result) for b in turns[0].blocks)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), messages=conversations())
def test_every_conversation_satisfies_the_pairing_rules(
    data: st.DataObject, messages: list[Message]
) -> None:
    found = data.draw(ledgers(messages))
    turns = model_turns(messages, found, prefixes(messages), "same")
    assert_accepted_by_providers(turns)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), messages=conversations())
def test_ids_that_a_provider_gives_again_change_nothing_that_the_model_is_told(
    data: st.DataObject, messages: list[Message]
) -> None:
    found = data.draw(ledgers(messages))
    turns = model_turns(messages, found, prefixes(messages), "same")
    again = model_turns(messages, with_ids_again(found), prefixes(messages), "same")
    assert_accepted_by_providers(again)
    assert without_ids(again) == without_ids(turns)


@settings(max_examples=300, deadline=None)
@given(messages=conversations())
def test_the_last_user_message_always_reaches_the_model(messages: list[Message]) -> None:
    messages[-1].content = "the newest question"
    turns = model_turns(messages, Decided(), prefixes(messages), "same")
    last = [b.text for b in turns[-1].blocks if isinstance(b, Text)]
    assert last[-1] == "the newest question"


def user(content: str = "", **data: Any) -> Message:
    return Message.model_validate({"role": "user", "content": content, "data": data})


def assistant(content: str = "", **data: Any) -> Message:
    return Message.model_validate({"role": "assistant", "content": content, "data": data})


CALL = {"id": "u1", "name": "tool", "input": {"n": 1}}


def test_a_call_that_the_ledger_does_not_know_is_rebuilt_with_its_recorded_outcome() -> None:
    messages = [
        user("go"),
        assistant("let me", tool_calls=[CALL]),
        user("", tool_calls=[{**CALL, "execute": True}]),
        assistant("done", executed_tool_calls=[{**CALL, "output": "42"}]),
        user("thanks"),
    ]
    turns = model_turns(messages, Decided(), prefixes(messages), "")
    assert turns[1].blocks == [Text("let me"), Call("u1", "tool", {"n": 1})]
    assert turns[2].blocks == [Result("u1", "42")]
    assert turns[3].blocks == [Text("done")]


def test_a_rejection_reaches_the_model_as_an_error_result_with_its_reason() -> None:
    messages = [
        user("go"),
        assistant("", tool_calls=[CALL]),
        user("", tool_calls=[{**CALL, "rejection_reason": "too risky"}]),
    ]
    turns = model_turns(messages, Decided(), prefixes(messages), "")
    result = turns[2].blocks[0]
    assert isinstance(result, Result) and result.is_error and "too risky" in result.output


def suspended(reference: str, state: Any = "DONE") -> Decided:
    asked = Turn("assistant", [Text("I will"), Call("x1", "tool", {"n": 1})], {"raw": ["block"]})
    found = Decided()
    found.turns["t"] = SuspendedTurn(
        id="t",
        created=1.0,
        reference=reference,
        transcript=dump_turns([asked]),
        calls=["p1"],
        prefix=bound_to("same", [Turn("user", [Text("go")])]),
    )
    found.rows["p1"] = Proposal(
        id="p1",
        kind="tool_call",
        name="tool",
        input={"n": 1},
        turn="t",
        index=0,
        call_id="x1",
        created=1.0,
        expires=2.0,
        state=state,
        output="42",
        decision=Decision(True, 1.0),
    )
    return found


def test_a_suspended_turn_takes_the_place_of_the_message_that_carries_its_id() -> None:
    call = {"id": "p1", "name": "tool", "input": {"n": 1}}
    messages = [
        user("go"),
        assistant("I will", tool_calls=[call]),
        user("", tool_calls=[{**call, "execute": True}]),
    ]
    turns = model_turns(messages, suspended("elsewhere"), prefixes(messages), "same")
    assert [t.role for t in turns] == ["user", "assistant", "user"]
    assert turns[1].raw == {"raw": ["block"]}
    assert turns[2].blocks == [Result("x1", "42")]


@pytest.mark.parametrize("kept", [True, False], ids=["turn kept", "turn gone"])
def test_an_outcome_that_a_purge_has_forgotten_is_taken_from_the_messages(kept: bool) -> None:
    call = {"id": "p1", "name": "tool", "input": {"n": 1}}
    messages = [
        user("go"),
        assistant("I will", tool_calls=[call]),
        user("", tool_calls=[{**call, "execute": True}]),
        assistant("done", executed_tool_calls=[{**call, "output": "42"}]),
        user("thanks"),
    ]
    found = suspended("elsewhere")
    found.rows["p1"] = found.rows["p1"].without_contents()
    if not kept:
        found.turns.clear()
    turns = model_turns(messages, found, prefixes(messages), "same")
    assert [b.output for t in turns for b in t.blocks if isinstance(b, Result)] == ["42"]


def test_provider_blocks_are_left_out_when_the_prefix_has_changed() -> None:
    messages = [user("go"), user("", tool_calls=[{**CALL, "id": "p1", "execute": True}])]
    found = suspended(prefixes(messages)[0])
    turns = model_turns(messages, found, prefixes(messages), "another")
    assert turns[1].raw is None
    assert turns[1].blocks == [Text("I will"), Call("x1", "tool", {"n": 1})]


def test_a_suspended_turn_without_its_message_stands_after_its_reference() -> None:
    messages = [
        user("go"),
        assistant("I will"),
        user("", tool_calls=[{**CALL, "id": "p1", "execute": True}]),
    ]
    found = suspended(prefixes(messages)[0])
    turns = model_turns(messages, found, prefixes(messages), "same")
    assert [type(b).__name__ for t in turns for b in t.blocks] == ["Text", "Text", "Call", "Result"]


def test_an_outcome_after_the_conversation_went_on_comes_as_text() -> None:
    call = {"id": "p1", "name": "tool", "input": {"n": 1}}
    messages = [
        user("go"),
        assistant("I will", tool_calls=[call]),
        user("what is the weather?"),
        assistant("sunny"),
        user("now do it", tool_calls=[{**call, "execute": True}]),
    ]
    turns = model_turns(messages, suspended("elsewhere"), prefixes(messages), "same")
    first = turns[2].blocks[0]
    assert isinstance(first, Result) and "not decided" in first.output.lower()
    texts = [(b.text, b.note) for b in turns[-1].blocks if isinstance(b, Text)]
    assert "42" in texts[0][0] and texts[0][1]
    assert texts[-1] == ("now do it", False)


def test_turns_of_two_requests_at_once_whose_calls_have_one_id_keep_their_own_results() -> None:
    """Some providers count from zero in each reply."""
    messages = [
        user("go"),
        assistant("I will", tool_calls=[{**CALL, "id": "p1", "execute": True}]),
        user("go on"),
        assistant("I will", tool_calls=[{**CALL, "id": "p2", "execute": True}]),
        user(""),
    ]
    found, other = suspended("elsewhere"), suspended("elsewhere")
    found.turns["u"] = replace(other.turns["t"], id="u", created=2.0, calls=["p2"])
    found.rows["p2"] = replace(other.rows["p1"], id="p2", turn="u", output="43")
    turns = model_turns(messages, found, prefixes(messages), "same")
    called = [b.id for t in turns for b in t.blocks if isinstance(b, Call)]
    results = [b for t in turns for b in t.blocks if isinstance(b, Result)]
    assert [result.output for result in results] == ["42", "43"]
    assert [result.call_id for result in results] == called
    assert_accepted_by_providers(turns)
    assert model_turns(messages, found, prefixes(messages), "same") == turns


def test_a_call_that_no_model_made_is_told_as_a_call_with_its_result() -> None:
    """Proposed by a client over MCP, decided by a message that shows only this call."""
    found = suspended("elsewhere")
    found.turns["t"].transcript = []
    reported = {"id": "p1", "name": "tool", "input": {"n": 1}, "output": "42"}
    decided = [{"id": "p1", "execute": True}]
    messages = [user("and now?", approvals=decided, executed_tool_calls=[reported])]
    turns = model_turns(messages, found, prefixes(messages), "")
    assert turns[1].blocks == [Call("p1", "tool", {"n": 1})]
    assert turns[2].blocks == [Result("p1", "42"), Text("and now?")]


def test_results_stand_before_texts_after_partial_decisions() -> None:
    turns = paired(
        [
            Turn("assistant", [Call("a", "t", {}), Call("b", "t", {})]),
            Turn("user", [Result("b", "2"), Text("first")]),
            Turn("user", [Result("a", "1"), Text("second")]),
        ]
    )
    assert turns[2].blocks == [Result("a", "1"), Result("b", "2"), Text("first"), Text("second")]


def test_a_history_of_thousands_of_calls_is_paired_without_comparing_each_with_each() -> None:
    # The turns of all callers wait meanwhile; twenty thousand calls once took ten seconds.
    calls = [Call(f"c{n}", "look", {}) for n in range(20_000)]
    results = [Result(call.id, "seen") for call in calls]
    start = time.process_time()
    turns = paired([Turn("user", [Text("look")]), Turn("assistant", calls), Turn("user", results)])
    assert time.process_time() - start < 4
    assert turns[1].blocks == calls
    assert turns[2].blocks == results


def test_a_history_of_thousands_of_turns_of_one_role_is_merged_without_copying_it_each_time() -> (
    None
):
    # The messages of a caller who never got an answer.
    said = [Turn("user", [Text("a")] * 20) for _ in range(20_000)]
    start = time.process_time()
    (turn,) = paired(said)
    assert time.process_time() - start < 2
    assert len(turn.blocks) == 400_000
    assert said[0].blocks == [Text("a")] * 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tool_calls", "cmds"])
def test_a_conversation_with_hundreds_of_approvals_is_not_searched_anew_for_each_of_them(
    kind: str,
) -> None:
    messages: list[Message] = []
    found = Decided()
    for n in range(1600):
        id_, given = f"p{n}", {"command": f"echo {n}", "files": None}
        call: dict[str, Any] = {"id": id_, "name": "look", "input": given}
        stated = call if kind == "tool_calls" else {"command": f"echo {n}"}
        asked = Turn("assistant", [Call(f"x{n}", "look", given)])
        messages += [
            Message(role="user", content="look"),
            Message.model_validate({"role": "assistant", "content": "", "data": {kind: [stated]}}),
            Message.model_validate(
                {"role": "user", "content": "", "data": {kind: [{**stated, "execute": True}]}}
            ),
            Message(role="assistant", content="seen"),
        ]
        found.rows[id_] = Proposal(
            id=id_,
            kind="tool_call" if kind == "tool_calls" else "command",
            name="look",
            input=given,
            turn=f"t{n}",
            index=0,
            call_id=f"x{n}",
            created=n,
            expires=1e12,
            state="DONE",
            output=f"output {n}",
        )
        found.turns[f"t{n}"] = SuspendedTurn(
            id=f"t{n}",
            created=n,
            reference="",
            transcript=dump_turns([asked]),
            calls=[id_],
            prefix="same",
        )
    messages.append(Message(role="user", content="and now?"))
    known = prefixes(messages)
    for n in range(1600):
        found.turns[f"t{n}"].reference = known[4 * n]
    start = time.process_time()
    turns = model_turns(messages, found, known, "same")
    # Linear time takes a tenth or two of a second; quadratic time took four and more.
    assert time.process_time() - start < 2
    results = [b for turn in turns for b in turn.blocks if isinstance(b, Result)]
    assert [r.call_id for r in results] == [f"x{n}" for n in range(1600)]
    assert all(f"output {n}" in results[n].output for n in range(1600))
