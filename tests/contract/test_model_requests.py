"""The model's input (design, section 5, "Messages to the model")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from agents import Counted, delete, look, scripted, suggest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Json, Serve, Service, approved, assistant, rejected, said, user

from sayso import Ask, Call, LocalShell, Reply, Result, Text, Turn
from sayso.testing.script import Scripted


def check(ask: Ask) -> None:
    """A provider's rules: alternating, user first and last, each call answered next, once."""
    turns = ask.turns
    assert turns[0].role == turns[-1].role == "user"
    seen: set[str] = set()
    for before, after in zip(turns, turns[1:], strict=False):
        assert before.role != after.role
    for n, turn in enumerate(turns):
        assert turn.blocks
        calls = [b.id for b in turn.blocks if isinstance(b, Call)]
        results = [b.call_id for b in turn.blocks if isinstance(b, Result)]
        assert not (calls and turn.role == "user")
        assert not (results and turn.role == "assistant")
        assert len(set(calls)) == len(calls)
        assert not (set(calls) & seen), "an id is unique in the conversation"
        seen |= set(calls)
        for block in turn.blocks:
            if isinstance(block, Text):
                assert block.text.strip()
            if isinstance(block, Result):
                assert block.output
        if calls:
            answers = [b.call_id for b in turns[n + 1].blocks if isinstance(b, Result)]
            assert answers == calls
            kinds = [isinstance(b, Result) for b in turns[n + 1].blocks]
            assert kinds == sorted(kinds, reverse=True), "results first, texts after"
        if results:
            before_calls = [b.id for b in turns[n - 1].blocks if isinstance(b, Call)]
            assert results == before_calls


def plain(turns: Sequence[Turn]) -> list[Any]:
    """The turns in a form that is easy to compare."""
    made = []
    for turn in turns:
        for b in turn.blocks:
            match b:
                case Text():
                    made.append((turn.role, b.text))
                case Call():
                    made.append(("call", b.name, dict(b.input)))
                case Result():
                    made.append(("error" if b.is_error else "result", b.output))
    return made


class Conversation:
    def __init__(self, served: Serve, script: Any, **rest: Any) -> None:
        self.tools = Counted()
        agent, self.model = scripted(script, self.tools.tools, **rest)
        self.service: Service = served(agent)

    def chat(self, *messages: Json) -> Json:
        reply = self.service.chat(*messages)
        for ask in self.model.asks:
            check(ask)
        return reply

    @property
    def last(self) -> list[Any]:
        return plain(self.model.asks[-1].turns)


def test_resumed_turn_gets_the_blocks_that_the_model_produced(served: Serve) -> None:
    c = Conversation(served, [["Two.", look("x"), delete("a")], "Gone."])
    first = c.chat(user("go"))
    call = first["data"]["tool_calls"][0]
    c.chat(user("go"), said(first), user("", data={"tool_calls": [approved(call)]}))
    assert c.last == [
        ("user", "go"),
        ("assistant", "Two."),
        ("call", "look", {"name": "x"}),
        ("call", "delete", {"name": "a"}),
        ("result", "x is there"),
        ("result", "deleted a"),
    ]
    calls = [b.id for t in c.model.asks[-1].turns for b in t.blocks if isinstance(b, Call)]
    assert calls == ["l1", "p1"]


def test_decision_in_the_very_message_that_was_answered_is_no_new_wish(served: Serve) -> None:
    c = Conversation(served, [["Now.", delete("a")], "Gone.", "Welcome.", "Welcome."])
    call = c.chat(user("go"))["data"]["tool_calls"][0]
    decided = user("go", data={"tool_calls": [approved(call)]})
    second = c.chat(decided)
    gone = [
        ("user", "go"),
        ("assistant", "Now."),
        ("call", "delete", {"name": "a"}),
        ("result", "deleted a"),
    ]
    assert c.last == gone
    assert c.chat(decided) == second
    for reply in (said(second), assistant("Gone.")):
        c.model.asks.clear()
        c.service.chat(decided, reply, user("thanks"))
        assert c.last == [*gone, ("assistant", "Gone."), ("user", "thanks")]


def test_command_decided_in_the_very_message_that_was_answered_follows_it(served: Serve) -> None:
    c = Conversation(served, [[suggest("echo one")], "Done."], commands=LocalShell())
    c.chat(user("go"))
    c.chat(user("go", data={"cmds": [{"command": "echo one", "execute": True}]}))
    assert [kind for kind, *_ in c.last] == ["user", "call", "result"]


def test_conversation_after_an_approval_keeps_call_and_result(served: Serve) -> None:
    c = Conversation(served, [["Now.", delete("a")], "Gone.", "Welcome."])
    first = c.chat(user("go"))
    call = first["data"]["tool_calls"][0]
    deciding = user("", data={"tool_calls": [approved(call)]})
    second = c.chat(user("go"), said(first), deciding)
    c.chat(user("go"), said(first), deciding, said(second), user("thanks"))
    assert c.last == [
        ("user", "go"),
        ("assistant", "Now."),
        ("call", "delete", {"name": "a"}),
        ("result", "deleted a"),
        ("assistant", "Gone."),
        ("user", "thanks"),
    ]


@pytest.mark.parametrize("hooks", [{}, {"request_interceptors": lambda request, context: None}])
def test_conversation_after_an_approval_in_the_assistant_message_beside_a_text_keeps_the_result(
    served: Serve, hooks: dict[str, Any]
) -> None:
    c = Conversation(served, [["Now.", delete("a")], "Gone.", "Welcome."], **hooks)
    first = c.chat(user("go"))
    proposal = said(first)
    proposal["data"]["tool_calls"] = [approved(first["data"]["tool_calls"][0])]
    talk = [user("go"), proposal, user("be quick")]
    second = c.chat(*talk)
    asked = c.last
    c.chat(*talk, said(second), user("thanks"))
    assert c.last == [*asked, ("assistant", "Gone."), ("user", "thanks")]
    assert asked[-2:] == [("result", "deleted a"), ("user", "be quick")]


@pytest.mark.parametrize("hooks", [{}, {"request_interceptors": lambda request, context: None}])
def test_all_results_stand_together_where_some_were_approved_in_assistant_messages_beside_texts(
    served: Serve, hooks: dict[str, Any]
) -> None:
    c = Conversation(served, [[delete("a"), delete("b", "p2")], "Gone.", "Welcome."], **hooks)
    talk = [user("go")]
    for text in ("first a", "and b"):
        shown = said(c.chat(*talk))
        pending = shown["data"]["tool_calls"]
        shown["data"]["tool_calls"] = [approved(pending[0]), *pending[1:]]
        talk += [shown, user(text)]
    c.chat(*talk)
    assert c.last[-4:] == [
        ("result", "deleted a"),
        ("result", "deleted b"),
        ("user", "first a"),
        ("user", "and b"),
    ]


def test_rejection_is_an_error_result_with_its_reason(served: Serve) -> None:
    c = Conversation(served, [[delete("a")], "Fine."])
    first = c.chat(user("go"))
    call = first["data"]["tool_calls"][0]
    c.chat(user("go"), said(first), user("so?", data={"tool_calls": [rejected(call, "danger")]}))
    kinds = c.last
    assert kinds[-2][0] == "error"
    assert "danger" in kinds[-2][1]
    assert kinds[-1] == ("user", "so?")


def test_last_user_message_always_reaches_the_model(served: Serve) -> None:
    c = Conversation(served, ["ok"] * 9)
    for history in (
        [],
        [user("a")],
        [assistant("b")],
        [user("a"), user("b")],
        [assistant(""), user("")],
        [assistant("a"), assistant("b")],
        [user(" ")],
        [user("a"), assistant(" ")],
    ):
        c.chat(*history, user("the last"))
        assert c.last[-1] == ("user", "the last")


def test_neighbours_of_one_role_are_merged_and_none_dropped(served: Serve) -> None:
    c = Conversation(served, ["ok"])
    c.chat(user("a"), user("b"), assistant("c"), assistant("d"), user("e"), user("f"))
    assert [t.role for t in c.model.asks[0].turns] == ["user", "assistant", "user"]
    texts = [text for _, text in c.last]
    assert texts == ["a", "b", "c", "d", "e", "f"]


def test_history_of_another_service_is_rebuilt(served: Serve) -> None:
    c = Conversation(served, ["ok"])
    call = {"id": "x-1", "name": "delete", "input": {"name": "q"}, "execute": False}
    done = {"id": "x-1", "name": "delete", "input": {"name": "q"}, "output": "deleted q"}
    c.chat(
        user("go"),
        assistant("Shall I?", data={"tool_calls": [call]}),
        user("", data={"tool_calls": [rejected(call, "no")]}),
        assistant("It is gone.", data={"executed_tool_calls": [done]}),
        user("thanks"),
    )
    assert ("call", "delete", {"name": "q"}) in c.last
    assert len([b for b in c.last if b[0] == "call"]) == 1
    assert c.last[-1] == ("user", "thanks")


def test_executed_calls_on_an_assistant_message_are_native_results(served: Serve) -> None:
    c = Conversation(served, ["ok"])
    done = {"id": "x-1", "name": "delete", "input": {"name": "q"}, "output": "deleted q"}
    failed = {"id": "x-2", "name": "delete", "input": {"name": "r"}, "output": "Error: no"}
    c.chat(
        user("go"), assistant("Done.", data={"executed_tool_calls": [done, failed]}), user("and?")
    )
    assert c.last == [
        ("user", "go"),
        ("call", "delete", {"name": "q"}),
        ("call", "delete", {"name": "r"}),
        ("result", "deleted q"),
        ("error", "Error: no"),
        ("assistant", "Done."),
        ("user", "and?"),
    ]


def test_outcomes_of_approvals_that_the_ledger_does_not_know_are_told(served: Serve) -> None:
    c = Conversation(served, ["ok", "ok"])
    made = {"name": "command", "type": "command", "input": {"command": "make deploy"}}
    left = {"name": "command", "type": "command", "input": {"command": "rm all"}}
    gone = {"name": "delete", "type": "tool_call", "input": {"name": "q"}}
    asked = [{**made, "id": "c-1"}, {**left, "id": "c-2"}, {**gone, "id": "x-1"}]
    commands = [{"id": "c-1", "command": "make deploy"}, {"id": "c-2", "command": "rm all"}]
    decided = [
        {**asked[0], "execute": True},
        {**asked[1], "rejection_reason": "no"},
        {**asked[2], "execute": True},
    ]
    outputs = ["deployed", "Rejected: no", "deleted q"]
    done = [{**a, "output": output} for a, output in zip(asked, outputs, strict=True)]
    c.chat(
        user("go"),
        assistant("May I?", data={"cmds": commands, "approvals": asked}),
        user("", data={"approvals": decided}),
        assistant("Done.", data={"executed_approvals": done}),
        user("thanks"),
    )
    reported = "\n".join(str(part) for _, *parts in c.last for part in parts)
    assert reported.count("deployed") == reported.count("deleted q") == 1
    assert "The command `make deploy` was run:\ndeployed" in reported
    assert "The command `rm all` was suggested. Rejected: no" in reported
    assert "never" not in reported and "not decided" not in reported
    # The proposal itself is missing from the conversation.
    c.chat(
        user("", data={"approvals": decided}),
        assistant("Done.", data={"executed_approvals": done}),
        user("thanks"),
    )
    reported = "\n".join(str(part) for _, *parts in c.last for part in parts)
    assert "The command `make deploy` was run:\ndeployed" in reported and "deleted q" in reported
    assert "never" not in reported and "not decided" not in reported


def test_outcome_after_the_conversation_went_on_is_told_as_text(served: Serve) -> None:
    c = Conversation(served, [[delete("a")], "Later."])
    first = c.chat(user("go"))
    call = first["data"]["tool_calls"][0]
    bare = assistant("I wait.")  # a client that drops the data of replies
    reply = c.service.ask(
        user("go"),
        bare,
        user("meanwhile"),
        assistant("sure"),
        user("do it now", data={"tool_calls": [approved(call)]}),
    )
    assert reply.status == 200, reply.raw
    check(c.model.asks[-1])
    assert c.tools.names == ["a"]
    place = [b for b in c.last if b[0] in ("result", "error")]
    assert place[0][0] == "error"
    assert "not decided" in place[0][1]
    assert "deleted a" in " ".join(b[1] for b in c.last if b[0] == "user")
    assert c.last[-1] == ("user", "do it now")


def test_new_system_context_is_computed_for_each_request(served: Serve) -> None:
    n = iter(range(10))
    c = Conversation(
        served,
        [[delete("a")], "Gone."],
        system_prompt="static",
        system_context=lambda context: f"call {next(n)}",
    )
    first = c.chat(user("go"))
    call = first["data"]["tool_calls"][0]
    c.chat(user("go"), said(first), user("", data={"tool_calls": [approved(call)]}))
    assert [(a.system, a.context) for a in c.model.asks] == [
        ("static", "call 0"),
        ("static", "call 1"),
    ]


def test_raw_blocks_are_sent_again_only_for_the_same_prefix(served: Serve) -> None:
    raw = {"offline": [{"type": "thinking", "signature": "s"}]}

    def first(ask: Ask) -> Reply:
        return Reply(Turn("assistant", [delete("a")], raw), "tool_use")

    for contexts, kept in ((["same", "same"], True), (["one", "two"], False)):
        n = iter(contexts)
        c = Conversation(served, [first, "Gone."], system_context=lambda context, n=n: next(n))
        reply = c.chat(user("go"))
        call = reply["data"]["tool_calls"][0]
        c.chat(user("go"), said(reply), user("", data={"tool_calls": [approved(call)]}))
        turn = next(t for t in c.model.asks[-1].turns if t.role == "assistant")
        assert (turn.raw == raw) is kept


def test_what_is_bound_to_its_model_alone_is_sent_again_after_another_prefix(served: Serve) -> None:
    raw = {"offline": [{"signature": "s"}], "offline:small": [{"tool_calls": [{}, {"mark": 1}]}]}
    of_model = {"offline:small": raw["offline:small"]}
    second = Reply(Turn("assistant", [look("b", "p"), delete("b", "d")], raw), "tool_use")
    first = Reply(Turn("assistant", [look("a", "p"), delete("a", "q")], raw), "tool_use")
    n = iter("one two three four".split())
    script = [lambda ask: first, lambda ask: second, "Gone."]
    c = Conversation(served, script, system_context=lambda context: next(n))
    messages = [user("go")]
    for _ in range(2):
        reply = c.chat(*messages)
        call = reply["data"]["tool_calls"][0]
        messages += [said(reply), user("", data={"tool_calls": [approved(call)]})]
    assert c.chat(*messages)["content"] == "Gone."
    turns = [turn for turn in c.model.asks[-1].turns if turn.role == "assistant"]
    # The second reply's ids were renamed, since the first had one of them.
    assert [turn.raw for turn in turns] == [of_model, of_model]


def test_model_calls_of_a_turn_are_limited(served: Serve) -> None:
    tools = Counted()
    numbers = iter(range(1000))
    model = Scripted(lambda ask: [look("x", f"l{next(numbers)}")])
    from sayso import Agent

    service = served(Agent(model=model, tools=tools.tools), limits__model_calls=3)
    events = service.stream(user("go"))
    assert events[-1]["stop_reason"] == "max_steps"
    assert len(model.asks) == 3


def test_tool_calls_of_a_turn_are_limited(served: Serve) -> None:
    tools = Counted()
    agent, model = scripted([[look("x", f"l{n}") for n in range(10)], "ok"], tools.tools)
    assert served(agent, limits__tool_calls=4).chat(user("go"))["content"] == "ok"
    assert len(tools.looks) == 4
    check(model.asks[-1])


def test_same_call_id_in_later_turns_is_no_confusion(served: Serve) -> None:
    c = Conversation(served, [[delete("a", "p")], [delete("b", "p")], "Done."])
    first = c.chat(user("go"))
    one = first["data"]["tool_calls"][0]
    messages = [user("go"), said(first), user("", data={"tool_calls": [approved(one)]})]
    second = c.chat(*messages)
    two = second["data"]["tool_calls"][0]
    c.chat(*messages, said(second), user("", data={"tool_calls": [approved(two)]}))
    assert c.tools.names == ["a", "b"]
    outputs = [text for kind, text, *_ in c.last if kind == "result"]
    assert outputs == ["deleted a", "deleted b"]


def test_calls_of_one_id_in_one_reply_have_their_own_results_in_the_order_of_the_calls(
    served: Serve,
) -> None:
    """The same beside refused calls: the results of run calls may not come before all of those."""
    unknown = Call("l1", "nothing", {})
    three = [look("b"), unknown, look("c")]
    c = Conversation(served, [[look("a", "l0")], three, [look("d")], "ok"])
    c.chat(user("go"))
    assert sorted(c.tools.looks) == ["a", "b", "c", "d"]
    reported = [text.split(";")[0] for kind, text, *_ in c.last if kind in ("result", "error")]
    refused = "Error: there is no tool 'nothing'"
    assert reported == ["a is there", "b is there", refused, "c is there", "d is there"]


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_calls_of_a_broken_message_are_not_run(served: Serve, stop: Any) -> None:
    from sayso import Reply

    c = Conversation(
        served, [Reply(Turn("assistant", [Text("half"), look("x"), delete("a")]), stop)]
    )
    events = c.service.stream(user("go"))
    assert events[-1]["stop_reason"] == stop
    assert c.tools.looks == c.tools.runs == []
    assert "tool_calls" not in {e["type"] for e in events}


harm = st.sampled_from(["drop", "swap", "strip", "empty", "repeat", "drop-first", "none"])


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    decisions=st.lists(
        st.lists(st.sampled_from(["yes", "no", "leave"]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    harms=st.lists(st.tuples(harm, st.integers(0, 8)), max_size=4),
    text=st.sampled_from(["", "and so?"]),
)
def test_whatever_a_client_does_to_the_history_the_request_is_well_formed(
    hurt: tuple[Service, Scripted, Counted],
    decisions: list[list[str]],
    harms: list[tuple[str, int]],
    text: str,
) -> None:
    service, model, tools = hurt
    model.asks.clear()
    before = len(tools.runs)
    history = [user("go")]
    approvals = 0
    for given_ in decisions:
        answer = service.ask(*history)
        if answer.status != 200:
            break
        reply = answer.json()
        calls = reply["data"]["tool_calls"]
        decided = [
            approved(c) if d == "yes" else rejected(c)
            for c, d in zip(calls, given_, strict=False)
            if d != "leave"
        ]
        approvals += sum(c["execute"] for c in decided)
        history += [said(reply), user(text, data={"tool_calls": decided})]
    history = hurt_by(history, harms)
    answer = service.ask(*history)
    assert answer.status in (200, 409, 422), answer.raw
    if answer.status == 422:
        assert answer.types <= {
            "nothing_to_answer",
            "approval_conflict",
            "last_message_not_user",
            "too_short",
        }, answer.raw
    for ask in model.asks:
        check(ask)
    assert len(tools.runs) - before <= approvals


@pytest.fixture
def hurt(served: Serve) -> tuple[Service, Scripted, Counted]:
    """A service whose model calls an open tool and two gated ones, then talks."""
    from sayso import Agent

    tools = Counted()
    ids = iter(range(10**6))

    def step(ask: Ask) -> Any:
        if len([t for t in ask.turns if t.role == "assistant"]) % 2:
            return "said"
        n = next(ids)
        return ["I go.", look("x", f"l{n}"), delete("a", f"p{n}"), delete("b", f"q{n}")]

    model = Scripted(step)
    return served(Agent(model=model, tools=tools.tools)), model, tools


def hurt_by(history: list[Json], harms: list[tuple[str, int]]) -> list[Json]:
    """The history as a careless client sends it back; the last message is unchanged."""
    *old, last = history
    for what, place in harms:
        if not old:
            break
        n = place % len(old)
        match what:
            case "drop":
                del old[n]
            case "drop-first":
                del old[0]
            case "swap":
                m = (n + 1) % len(old)
                old[n], old[m] = old[m], old[n]
            case "strip":
                old[n] = {k: v for k, v in old[n].items() if k != "data"}
            case "empty":
                old[n] = {**old[n], "content": ""}
            case "repeat":
                old.insert(n, old[n])
    return [*old, last]


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("trimmed", [False, True])
def test_outcome_that_came_after_other_words_stays_in_the_conversation(
    served: Serve, watched: bool, trimmed: bool
) -> None:
    """An interceptor sees old decisions as no longer live; a client may have left them out."""
    watch = [lambda request, context: None] if watched else []
    agent, model = scripted(
        [[delete("a")], "sure", "gone", "yes"], Counted().tools, request_interceptors=watch
    )
    service = served(agent)
    proposed = service.chat(user("delete a"))
    (call,) = proposed["data"]["tool_calls"]
    service.chat(user("and you?"))
    before = [user("delete a"), said(proposed), user("and you?"), assistant("sure")]
    deciding = user("", data={"tool_calls": [approved(call)]})
    reply = service.chat(*before, deciding)
    later = user("") if trimmed else deciding
    service.chat(*before, later, said(reply), user("is it?"))
    check(model.asks[-1])
    reported = str(model.asks[-1].turns)
    assert reported.count("has now ended: deleted a") == 1
