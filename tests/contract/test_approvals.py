"""Approvals over V1, V2 and WebSocket (interface.md, "Approval round trip"; design, section 6)."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agents import Counted, delete, look, scripted, whole
from serving import Json, Serve, Service, approved, assistant, rejected, said, until, user

from sayso import Call, Caller, Session, tool

TTL = 0.05

PATHS = pytest.mark.parametrize("path", ["v1", "v2"])


def expire() -> None:
    """Return when a proposal made just now has expired."""
    late = time.time() + 2 * TTL
    until(lambda: time.time() > late)


class Round:
    """A served agent with one pending `delete`, its tools and its model."""

    def __init__(self, served: Serve, script: Any = None, path: str = "v2", **settings: Any):
        self.tools = Counted(**settings.pop("tool", {}))
        self.agent, self.model = scripted(
            script or [["I will delete it.", delete("a")], "It is gone.", "Again."],
            self.tools.tools,
        )
        self.service: Service = served(self.agent, **settings)
        self.path = path
        self.first = user("please delete a")
        self.reply = self.chat(self.first)
        self.call: Json = self.reply["data"]["tool_calls"][0]

    def chat(self, *messages: Json, **rest: Any) -> Json:
        return self.service.chat(*messages, path=self.path, **rest)

    def ask(self, *messages: Json, **rest: Any) -> Any:
        return self.service.ask(*messages, path=self.path, **rest)

    def decide(self, call: Json, content: str = "", **rest: Any) -> Json:
        return self.chat(*self.deciding(call, content), **rest)

    def deciding(self, call: Json, content: str = "") -> list[Json]:
        return [self.first, said(self.reply), user(content, data={"tool_calls": [call]})]


@PATHS
def test_gated_call_is_proposed_and_not_run(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    assert r.reply["content"] == "I will delete it."
    assert r.call["execute"] is False
    assert (r.call["name"], r.call["input"]) == ("delete", whole("a"))
    assert r.call["id"] != "p1"
    assert len(r.call["id"]) >= 22
    assert r.call["tool_description"].startswith("Delete a thing.")
    assert r.call["input_description"]["name"] == {
        "type": "string",
        "description": "what to delete",
    }
    (item,) = r.reply["data"]["approvals"]
    assert (item["id"], item["type"], item["execute"]) == (r.call["id"], "tool_call", False)
    assert r.tools.runs == []


@PATHS
def test_approval_in_the_user_message_runs_the_call(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    reply = r.decide(approved(r.call))
    assert r.tools.names == ["a"]
    assert reply["content"] == "It is gone."
    assert reply["data"]["executed_tool_calls"] == [
        {"id": r.call["id"], "name": "delete", "input": whole("a"), "output": "deleted a"}
    ]
    assert reply["data"]["tool_calls"] == []
    assert reply["data"]["executed_approvals"] == []


@PATHS
def test_approval_in_the_assistant_message_runs_the_call(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    history = said(r.reply)
    history["data"] = {"tool_calls": [approved(r.call)]}
    reply = r.chat(r.first, history, user(""))
    assert r.tools.names == ["a"]
    assert reply["content"] == "It is gone."
    assert [e["id"] for e in reply["data"]["executed_tool_calls"]] == [r.call["id"]]


@PATHS
def test_approval_with_only_id_name_and_input_runs_the_call(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    bare = {k: r.call[k] for k in ("id", "name", "input")}
    assert r.decide({**bare, "execute": True})["content"] == "It is gone."
    assert r.tools.names == ["a"]


@PATHS
def test_approval_through_approvals_is_told_in_executed_approvals(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    item = {**r.reply["data"]["approvals"][0], "execute": True}
    reply = r.chat(r.first, said(r.reply), user("", data={"approvals": [item]}))
    assert r.tools.names == ["a"]
    assert reply["data"]["executed_approvals"] == [
        {
            "id": r.call["id"],
            "type": "tool_call",
            "name": "delete",
            "input": whole("a"),
            "output": "deleted a",
        }
    ]
    assert reply["data"]["executed_tool_calls"] == []


def test_approval_by_both_carriers_runs_once(served: Serve) -> None:
    r = Round(served)
    data = {
        "tool_calls": [approved(r.call)],
        "approvals": [{**r.reply["data"]["approvals"][0], "execute": True}],
    }
    reply = r.chat(r.first, said(r.reply), user("", data=data))
    assert r.tools.names == ["a"]
    assert len(reply["data"]["executed_tool_calls"]) == 1
    assert len(reply["data"]["executed_approvals"]) == 1


def test_streams_tell_the_outcome_first(served: Serve) -> None:
    r = Round(served)
    events = r.service.stream(*r.deciding(approved(r.call)))
    assert events[0]["type"] == "executed_tool_calls"
    assert events[0]["executed_tool_calls"][0]["output"] == "deleted a"
    assert events[-1]["type"] == "done"


def test_first_turn_never_has_executed_tool_calls(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted([[look("x")], "seen"], tools.tools)
    events = served(agent).stream(user("look at x"))
    assert "executed_tool_calls" not in {e["type"] for e in events}
    assert tools.looks == ["x"]


@PATHS
def test_rejected_call_is_not_run(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    reply = r.decide(rejected(r.call, "not today"))
    assert r.tools.runs == []
    assert reply["data"]["executed_tool_calls"] == []
    assert reply["data"]["tool_calls"] == []
    result = r.model.asks[-1].turns[-1].blocks[0]
    assert result.is_error
    assert "not today" in result.output


def test_rejection_through_approvals_is_told(served: Serve) -> None:
    r = Round(served)
    item = {**r.reply["data"]["approvals"][0], "rejection_reason": "no"}
    reply = r.chat(r.first, said(r.reply), user("", data={"approvals": [item]}))
    assert [e["output"] for e in reply["data"]["executed_approvals"]] == ["Rejected: no"]
    assert r.tools.runs == []


@PATHS
def test_rejection_through_approvals_of_the_assistant_message_is_told(
    served: Serve, path: str
) -> None:
    r = Round(served, path=path)
    item = {**r.reply["data"]["approvals"][0], "rejection_reason": "no"}
    history = [r.first, {**said(r.reply), "data": {"approvals": [item]}}]
    for _ in range(2):
        reply = r.chat(*history, user(""))
        assert [e["output"] for e in reply["data"]["executed_approvals"]] == ["Rejected: no"]
    later = r.chat(*history, user(""), said(reply), user("and now?"))
    assert later["data"]["executed_approvals"] == []
    assert r.tools.runs == []


@PATHS
def test_sent_again_the_recorded_result_comes_back(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    first = r.decide(approved(r.call))
    asked = len(r.model.asks)
    again = r.decide(approved(r.call))
    assert again == first
    assert r.tools.names == ["a"]
    assert len(r.model.asks) == asked


def test_rejection_sent_again_gets_the_same_reply(served: Serve) -> None:
    r = Round(served)
    first = r.decide(rejected(r.call))
    assert r.decide(rejected(r.call)) == first
    assert len(r.model.asks) == 2


def test_approval_sent_by_another_protocol_gets_the_recorded_result(served: Serve) -> None:
    r = Round(served)
    first = r.decide(approved(r.call))
    events = r.service.stream(*r.deciding(approved(r.call)))
    assert events[0]["executed_tool_calls"][0]["output"] == "deleted a"
    with r.service.ws() as ws:
        over = ws.turn({"messages": r.deciding(approved(r.call))})
    assert [e["type"] for e in over] == [e["type"] for e in events]
    assert first["content"] == "It is gone."
    assert r.tools.names == ["a"]
    assert len(r.model.asks) == 2


@PATHS
def test_unknown_id_is_refused_and_nothing_runs(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    answer = r.ask(*r.deciding(approved(r.call, id="f" * 32)))
    (item,) = answer.items
    assert item["type"] == "approval_not_issued"
    assert item["loc"] == ["body", "messages", 2, "data", "tool_calls", 0]
    assert r.tools.runs == []
    assert len(r.model.asks) == 1


@PATHS
def test_one_forged_call_refuses_the_true_one_too(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    data = {"tool_calls": [approved(r.call), approved(r.call, id="forged")]}
    answer = r.ask(r.first, said(r.reply), user("", data=data))
    assert answer.types == {"approval_not_issued"}
    assert r.tools.runs == []
    assert r.decide(approved(r.call))["content"] == "It is gone."


@PATHS
def test_of_thousands_of_forged_calls_the_first_hundred_are_listed(
    served: Serve, path: str
) -> None:
    r = Round(served, path=path)
    calls = [approved(r.call, id=f"forged{n}") for n in range(3000)]
    *listed, rest = r.ask(r.first, said(r.reply), user("", data={"tool_calls": calls})).items
    assert [item["loc"][-1] for item in listed] == list(range(100))
    message = "2900 more errors are not listed"
    assert rest == {"loc": ["body"], "msg": message, "type": "more_errors"}


def test_forged_call_on_a_first_turn_is_refused(served: Serve) -> None:
    tools = Counted()
    agent, model = scripted(["hello"], tools.tools)
    call = {"id": "x", "name": "delete", "input": {"name": "a"}, "execute": True}
    service = served(agent)
    answer = service.ask(user("", data={"tool_calls": [call]}))
    assert answer.types == {"approval_not_issued"}
    (event,) = service.stream(user("", data={"tool_calls": [call]}))
    assert (event["type"], event["code"]) == ("error", "APPROVAL_NOT_ISSUED")
    with service.ws() as ws:
        (event,) = ws.turn({"messages": [user("", data={"approvals": [call]})]})
        assert (event["type"], event["code"]) == ("error", "APPROVAL_NOT_ISSUED")
    assert tools.runs == []
    assert model.asks == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "look"},
        {"input": {"name": "b"}},
        {"input": {"name": "a", "force": True}},
        {"input": {}},
        {"input": {"name": ["a"]}},
        {"input": {"name": "A"}},
    ],
    ids=["name", "value", "added", "removed", "type", "case"],
)
@PATHS
def test_changed_call_is_refused(served: Serve, path: str, change: Json) -> None:
    r = Round(served, path=path)
    answer = r.ask(*r.deciding(approved(r.call, **change)))
    assert answer.types == {"approval_changed"}
    assert r.tools.runs == []
    assert r.tools.looks == []
    assert r.decide(approved(r.call))["content"] == "It is gone."


@pytest.mark.parametrize("stated", [3, 3.0, 3e0])
def test_numbers_are_compared_as_doubles(served: Serve, stated: float) -> None:
    r = Round(served, [[delete("a", grace=3)], "gone"])
    r.decide(approved(r.call, input={"grace": stated, "name": "a", "force": False}))
    assert r.tools.runs == [{"name": "a", "force": False, "grace": 3}]


def test_true_is_not_one(served: Serve) -> None:
    r = Round(served, [[delete("a", grace=1)], "gone"])
    answer = r.ask(
        *r.deciding(approved(r.call, input={"grace": True, "name": "a", "force": False}))
    )
    assert answer.types == {"approval_changed"}
    assert r.tools.runs == []


@PATHS
def test_late_approval_is_refused_as_expired(served: Serve, path: str) -> None:
    r = Round(served, path=path, approvals__ttl=TTL)
    expire()
    answer = r.ask(*r.deciding(approved(r.call)))
    assert answer.types == {"approval_expired"}
    assert r.tools.runs == []


def test_expired_call_waits_for_nobody(served: Serve) -> None:
    r = Round(served, approvals__ttl=TTL)
    expire()
    reply = r.chat(r.first, said(r.reply), user("something else"))
    assert reply["content"] == "It is gone."
    assert r.tools.runs == []
    results = [b for t in r.model.asks[-1].turns for b in t.blocks if hasattr(b, "call_id")]
    assert [b.is_error for b in results] == [True]


def test_rejection_of_an_expired_call_does_nothing(served: Serve) -> None:
    r = Round(served, approvals__ttl=TTL)
    expire()
    answer = r.ask(*r.deciding(rejected(r.call)))
    assert answer.status == 200
    assert r.tools.runs == []


@PATHS
def test_approving_and_rejecting_at_once_is_a_conflict(served: Serve, path: str) -> None:
    r = Round(served, path=path)
    answer = r.ask(*r.deciding(approved(r.call, rejection_reason="no")))
    assert answer.types == {"approval_conflict"}
    assert r.tools.runs == []


def test_two_carriers_that_disagree_are_a_conflict(served: Serve) -> None:
    r = Round(served)
    item = {**r.reply["data"]["approvals"][0], "rejection_reason": "no"}
    data = {"tool_calls": [approved(r.call)], "approvals": [item]}
    answer = r.ask(r.first, said(r.reply), user("", data=data))
    assert answer.types == {"approval_conflict"}
    assert r.tools.runs == []


def test_rejecting_what_was_approved_is_a_conflict(served: Serve) -> None:
    r = Round(served)
    r.decide(approved(r.call))
    assert r.ask(*r.deciding(rejected(r.call))).types == {"approval_conflict"}


def test_approving_what_was_rejected_is_a_conflict(served: Serve) -> None:
    r = Round(served)
    r.decide(rejected(r.call))
    assert r.ask(*r.deciding(approved(r.call))).types == {"approval_conflict"}
    assert r.tools.runs == []


def test_empty_rejection_reason_is_refused_and_none_is_no_rejection(served: Serve) -> None:
    r = Round(served)
    for execute in (False, True):
        decided = {**r.call, "execute": execute, "rejection_reason": ""}
        refused = r.ask(*r.deciding(decided))
        assert refused.types == {"string_too_short"}
    assert r.tools.runs == []
    assert r.decide({**r.call, "execute": True, "rejection_reason": None})["content"] == (
        "It is gone."
    )


def test_copy_further_back_decides_nothing(served: Serve) -> None:
    r = Round(served)
    back = assistant("I will delete it.", data={"tool_calls": [approved(r.call)]})
    answer = r.ask(r.first, back, user("yes"), assistant("hm"), user(""))
    assert r.tools.runs == []
    assert answer.status in (200, 409)
    if answer.status == 200:
        assert [c["id"] for c in answer.json()["data"]["tool_calls"]] == [r.call["id"]]


def test_unknown_copy_further_back_is_no_refusal(served: Serve) -> None:
    r = Round(served)
    forged = assistant("", data={"tool_calls": [approved(r.call, id="elsewhere")]})
    reply = r.chat(
        user("before"),
        forged,
        user("then"),
        assistant("ok"),
        user("now"),
    )
    assert reply["content"] == "It is gone."
    assert r.tools.runs == []


def test_conversation_goes_on_after_an_approval(served: Serve) -> None:
    r = Round(served)
    deciding = r.deciding(approved(r.call))
    done = r.chat(*deciding)
    reply = r.chat(*deciding, said(done), user("thanks"))
    assert reply["content"] == "Again."
    assert reply["data"]["executed_tool_calls"] == []
    assert r.tools.names == ["a"]


TWO = [["Both.", delete("a", "p1"), delete("b", "p2")], "Done.", "More."]


@PATHS
def test_partial_approval_runs_that_one_and_states_the_rest(served: Serve, path: str) -> None:
    r = Round(served, TWO, path=path)
    one, two = r.reply["data"]["tool_calls"]
    reply = r.decide(approved(one))
    assert r.tools.names == ["a"]
    assert [e["id"] for e in reply["data"]["executed_tool_calls"]] == [one["id"]]
    assert reply["data"]["tool_calls"] == [two]
    assert len(r.model.asks) == 1
    final = r.chat(
        *r.deciding(approved(one)), said(reply), user("", data={"tool_calls": [approved(two)]})
    )
    assert r.tools.names == ["a", "b"]
    assert final["content"] == "Done."
    assert [e["id"] for e in final["data"]["executed_tool_calls"]] == [two["id"]]
    results = [b for t in r.model.asks[-1].turns for b in t.blocks if hasattr(b, "call_id")]
    assert [(b.call_id, b.output) for b in results] == [("p1", "deleted a"), ("p2", "deleted b")]


def test_one_approved_one_rejected_in_one_message(served: Serve) -> None:
    r = Round(served, TWO)
    one, two = r.reply["data"]["tool_calls"]
    data = {"tool_calls": [approved(one), rejected(two)]}
    reply = r.chat(r.first, said(r.reply), user("", data=data))
    assert r.tools.names == ["a"]
    assert reply["content"] == "Done."
    assert [e["id"] for e in reply["data"]["executed_tool_calls"]] == [one["id"]]


def test_partial_approval_can_be_sent_again(served: Serve) -> None:
    r = Round(served, TWO)
    one, two = r.reply["data"]["tool_calls"]
    first = r.decide(approved(one))
    again = r.decide(approved(one))
    assert again["data"]["tool_calls"] == first["data"]["tool_calls"] == [two]
    assert again["data"]["executed_tool_calls"] == first["data"]["executed_tool_calls"]
    assert r.tools.names == ["a"]


def test_stream_of_a_partial_approval_states_the_rest(served: Serve) -> None:
    r = Round(served, TWO)
    one, two = r.reply["data"]["tool_calls"]
    events = r.service.stream(*r.deciding(approved(one)))
    assert [e["type"] for e in events] == ["executed_tool_calls", "approvals", "tool_calls", "done"]
    assert [c["id"] for c in events[2]["tool_calls"]] == [two["id"]]
    assert events[-1]["stop_reason"] == "approval_required"


def test_new_message_while_pending_is_409_on_v2(served: Serve) -> None:
    r = Round(served)
    answer = r.ask(r.first, said(r.reply), user("what about b?"))
    assert answer.status == 409
    body = answer.json()
    assert body["code"] == "APPROVALS_PENDING"
    assert body["pending"] == [r.call["id"]]
    assert isinstance(body["detail"], str)
    assert len(r.model.asks) == 1


def test_new_message_while_pending_is_422_on_v1(served: Serve) -> None:
    r = Round(served, path="v1")
    answer = r.ask(r.first, said(r.reply), user("what about b?"))
    assert answer.types == {"approvals_pending"}
    assert answer.json().keys() == {"detail"}


def test_new_message_while_pending_is_an_error_event(served: Serve) -> None:
    r = Round(served)
    messages = [r.first, said(r.reply), user("what about b?")]
    for path in ("v1", "v2"):
        (event,) = r.service.stream(*messages, path=path)
        assert (event["type"], event["code"]) == ("error", "APPROVALS_PENDING")
    with r.service.ws() as ws:
        (event,) = ws.turn({"messages": messages})
        assert (event["type"], event["code"]) == ("error", "APPROVALS_PENDING")
        events = ws.turn({"messages": r.deciding(approved(r.call))})
        assert events[-1]["type"] == "done"


def test_new_message_supersedes_when_configured(served: Serve) -> None:
    r = Round(served, approvals__on_new_message="supersede")
    reply = r.chat(r.first, said(r.reply), user("leave it, tell a joke"))
    assert reply["content"] == "It is gone."
    assert r.tools.runs == []
    texts = [b.text for b in r.model.asks[-1].turns[-1].blocks if hasattr(b, "text")]
    assert texts[-1] == "leave it, tell a joke"
    assert r.ask(*r.deciding(approved(r.call))).types == {"approval_conflict"}


def test_text_and_decision_in_one_message_both_reach_the_model(served: Serve) -> None:
    r = Round(served)
    r.decide(approved(r.call), "and be quick")
    last = r.model.asks[-1].turns[-1]
    assert last.role == "user"
    assert [type(b).__name__ for b in last.blocks] == ["Result", "Text"]
    assert last.blocks[0].output == "deleted a"
    assert last.blocks[1].text == "and be quick"


def test_empty_last_message_states_what_is_pending(served: Serve) -> None:
    r = Round(served)
    reply = r.chat(r.first, said(r.reply), user(""))
    assert reply["data"]["tool_calls"] == [r.call]
    assert len(r.model.asks) == 1


@PATHS
def test_empty_message_states_what_is_pending_where_an_earlier_turn_never_went_on(
    served: Serve, path: str
) -> None:
    script = [[delete("a")], [delete("b", "p2")], "no more"]
    r = Round(served, script, path, approvals__on_new_message="supersede")
    talk = [r.first, said(r.reply), user("rather b")]
    then = r.chat(*talk)
    again = r.chat(*talk, said(then), user(""))
    assert again["data"]["tool_calls"] == then["data"]["tool_calls"] != []
    assert len(r.model.asks) == 2


@PATHS
def test_empty_message_states_what_is_pending_where_another_turn_is_all_decided(
    served: Serve, path: str
) -> None:
    """A client that had forgotten the first turn decides part of it together with the second."""
    r = Round(served, [[delete("a"), delete("b", "p2")], [delete("c", "p3")], "done"], path)
    other = r.chat(user("c, too"))
    calls = [r.call, *other["data"]["tool_calls"]]
    decision = user("", data={"tool_calls": [approved(call) for call in calls]})
    talk = [r.first, said(r.reply), user("c, too"), said(other), decision]
    then = r.chat(*talk)
    assert [call["input"]["name"] for call in then["data"]["tool_calls"]] == ["b"]
    again = r.chat(*talk, said(then), user(""))
    assert again["data"]["tool_calls"] == then["data"]["tool_calls"]
    assert len(r.model.asks) == 2


@PATHS
def test_empty_message_after_a_superseding_one_is_refused(served: Serve, path: str) -> None:
    r = Round(served, path=path, approvals__on_new_message="supersede")
    talk = [r.first, said(r.reply), user("leave it, tell a joke")]
    then = r.chat(*talk)
    assert r.ask(*talk, said(then), user("")).types == {"nothing_to_answer"}
    assert len(r.model.asks) == 2


@PATHS
@pytest.mark.parametrize("content", ["", "   ", "\n"])
def test_empty_message_with_nothing_pending_is_refused(
    served: Serve, path: str, content: str
) -> None:
    agent, model = scripted(["x"])
    answer = served(agent).ask(user("hi"), assistant("yes?"), user(content), path=path)
    assert answer.types == {"nothing_to_answer"}
    assert model.asks == []


def test_pending_call_of_another_service_waits_for_nobody(served: Serve) -> None:
    agent, model = scripted(["fine"])
    call = {"id": "other", "name": "delete", "input": {"name": "a"}, "execute": False}
    reply = served(agent).chat(user("x"), assistant("", data={"tool_calls": [call]}), user("go on"))
    assert reply["content"] == "fine"
    results = [b for t in model.asks[-1].turns for b in t.blocks if hasattr(b, "call_id")]
    assert [b.is_error for b in results] == [True]


def test_rejecting_an_unknown_call_is_accepted(served: Serve) -> None:
    agent, model = scripted(["fine"])
    call = {"id": "other", "name": "delete", "input": {"name": "a"}, "execute": False}
    answer = served(agent).ask(
        user("x"),
        assistant("", data={"tool_calls": [call]}),
        user("", data={"tool_calls": [rejected(call)]}),
    )
    assert answer.status == 200, answer.raw
    assert len(model.asks) <= 1


def test_thirty_two_parallel_approvals_run_once(served: Serve) -> None:
    running = threading.Event()
    runs: list[str] = []

    @tool(requires_approval=True, name="delete")
    def slow(name: str) -> str:
        """Delete."""
        runs.append(name)
        running.wait(120)
        return f"deleted {name}"

    agent, model = scripted([[delete("a")], "It is gone."], [slow])
    service = served(agent)
    first = user("delete a")
    reply = service.chat(first)
    pending = reply["data"]["tool_calls"][0]
    messages = [first, said(reply), user("", data={"tool_calls": [approved(pending)]})]
    with ThreadPoolExecutor(32) as pool:
        waiting = [pool.submit(service.ask, *messages) for _ in range(32)]
        until(lambda: runs)
        running.set()
        answers = [w.result() for w in waiting]
    assert {a.status for a in answers} == {200}
    assert len({a.raw for a in answers}) == 1
    assert runs == ["a"]
    assert len(model.asks) == 2


def test_tool_that_raises_is_told_as_an_error(served: Serve) -> None:
    r = Round(served, [[delete("broken")], "It failed."])
    reply = r.decide(approved(r.call))
    (done,) = reply["data"]["executed_tool_calls"]
    assert done["output"].startswith("Error:")
    assert "Traceback" not in done["output"]
    assert r.model.asks[-1].turns[-1].blocks[0].is_error
    r.decide(approved(r.call))
    assert r.tools.names == ["broken"]


@pytest.mark.parametrize(
    "input_", [{}, {"name": 7}, {"name": "a", "grace": "long"}, {"name": "a", "other": 1}]
)
def test_gated_call_with_wrong_arguments_is_not_proposed(served: Serve, input_: Json) -> None:
    tools = Counted()
    agent, model = scripted([[Call("w", "delete", input_)], "I see."], tools.tools)
    reply = served(agent).chat(user("delete"))
    assert reply["data"]["tool_calls"] == []
    assert reply["content"] == "I see."
    assert model.asks[-1].turns[-1].blocks[0].is_error
    assert tools.runs == []


def test_unknown_tool_goes_back_to_the_model(served: Serve) -> None:
    agent, model = scripted([[Call("w", "vanish", {})], "I see."])
    assert served(agent).chat(user("x"))["content"] == "I see."
    result = model.asks[-1].turns[-1].blocks[0]
    assert result.is_error
    assert "vanish" in result.output


def test_mixed_calls_run_the_open_one_and_propose_the_other(served: Serve) -> None:
    r = Round(served, [[look("x"), delete("a")], "Done."])
    assert r.tools.looks == ["x"]
    assert r.reply["data"]["executed_tool_calls"] == []
    assert len(r.model.asks) == 1
    r.decide(approved(r.call))
    assert r.tools.looks == ["x"]
    results = r.model.asks[-1].turns[-1].blocks
    assert [b.output for b in results] == ["x is there", "deleted a"]


def test_timed_out_tool_has_an_unknown_outcome(served: Serve) -> None:
    free = threading.Event()

    @tool(requires_approval=True, timeout=0.1, name="delete")
    def slow(name: str) -> str:
        """Delete."""
        free.wait(120)
        return "deleted late"

    agent, model = scripted([[delete("a")], "Unclear.", "Clear."], [slow])
    service = served(agent)
    reply = service.chat(user("delete a"))
    deciding = [
        user("delete a"),
        said(reply),
        user("", data={"tool_calls": [approved(reply["data"]["tool_calls"][0])]}),
    ]
    got = service.chat(*deciding)
    (done,) = got["data"]["executed_tool_calls"]
    assert done["output"].startswith("Outcome unknown:")
    free.set()
    late = until(
        lambda: [
            e
            for e in service.chat(*deciding)["data"]["executed_tool_calls"]
            if e["output"] == "deleted late"
        ]
    )
    assert len(late) == 1
    assert len(model.asks) == 2


def test_async_tool_that_times_out_is_unknown_too(served: Serve) -> None:
    @tool(requires_approval=True, timeout=0.1, name="delete")
    async def slow(name: str) -> str:
        """Delete."""
        await asyncio.sleep(600)
        return "never"

    agent, _ = scripted([[delete("a")], "Unclear."], [slow])
    service = served(agent)
    reply = service.chat(user("delete a"))
    pending = reply["data"]["tool_calls"][0]
    got = service.chat(
        user("delete a"), said(reply), user("", data={"tool_calls": [approved(pending)]})
    )
    assert got["data"]["executed_tool_calls"][0]["output"].startswith("Outcome unknown:")


def test_editable_tool_runs_with_the_changed_input(served: Serve) -> None:
    r = Round(served, tool={"editable": ["name"]})
    reply = r.decide(approved(r.call, input={"name": "b"}))
    assert r.tools.names == ["b"]
    assert reply["data"]["executed_tool_calls"][0]["input"] == whole("b")
    reported = r.model.asks[-1].turns[-1].blocks[0].output
    assert "deleted b" in reported
    assert "changed" in reported
    assert r.decide(approved(r.call, input={"name": "b"})) == reply
    assert r.ask(*r.deciding(approved(r.call, input={"name": "c"}))).types == {"approval_changed"}
    assert r.tools.names == ["b"]


def edit_elsewhere(r: Round, name: str) -> None:
    """Approve the call on another surface with another input; its caller has yet to start it."""
    calls = r.service.app.host.calls
    change = {**r.call["input"], "name": name}
    asyncio.run(
        calls.decide(r.call["id"], Caller("console"), approved=True, edited=change, run=False)
    )


def seen_of(r: Round, id: str) -> str:
    """The digest of what an approver of the call sees now."""
    return asyncio.run(r.service.app.host.record.settle([id]))[id].seen


@PATHS
def test_who_still_sees_the_input_before_an_edit_does_not_start_the_edited_call(
    served: Serve, path: str
) -> None:
    r = Round(served, path=path, tool={"editable": ["name"]}, approvals__run="caller")
    edit_elsewhere(r, "b")
    assert r.ask(*r.deciding(approved(r.call))).types == {"approval_changed"}
    assert r.tools.runs == []


@PATHS
def test_call_that_was_edited_elsewhere_is_restated_with_what_would_run(
    served: Serve, path: str
) -> None:
    r = Round(served, path=path, tool={"editable": ["name"]}, approvals__run="caller")
    edit_elsewhere(r, "b")
    [restated] = r.chat(r.first, said(r.reply), user(""))["data"]["tool_calls"]
    assert restated["id"] == r.call["id"]
    assert restated["input"] == whole("b")
    reply = r.decide(approved(restated))
    assert r.tools.names == ["b"]
    assert reply["data"]["executed_tool_calls"][0]["input"] == whole("b")


@pytest.mark.parametrize(
    ("editable", "stated"), [(True, True), (["name"], ["name"]), (False, None)]
)
def test_v2_states_what_an_approver_may_change_and_v1_does_not(
    served: Serve, editable: Any, stated: Any
) -> None:
    for path, shown in (("v2", stated), ("v1", None)):
        agent, _ = scripted([[delete("a")]], Counted(editable=editable).tools)
        [call] = served(agent).chat(user("delete a"), path=path)["data"]["approvals"]
        assert call.get("editable") == shown


def test_v2_states_the_revision_of_what_is_proposed_and_v1_does_not(served: Serve) -> None:
    def stated(path: str, stream: bool) -> list[Json]:
        agent, _ = scripted([[delete("a")]], Counted().tools)
        answer = served(agent).ask(user("delete a"), path=path, stream=stream)
        if not stream:
            found: list[Json] = answer.json()["data"]["approvals"]
            return found
        return [i for e in answer.events if e["type"] == "approvals" for i in e["approvals"]]

    for stream in (False, True):
        (item,) = stated("v2", stream)
        assert (item["revision"], item["seen"][:7]) == (1, "sha256:")
        (item,) = stated("v1", stream)
        assert item.keys().isdisjoint({"revision", "seen"})


@pytest.mark.parametrize("carrier", ["tool_calls", "approvals"])
@PATHS
def test_decision_counts_for_the_revision_that_it_says_to_have_seen(
    served: Serve, path: str, carrier: str
) -> None:
    r = Round(served, path=path, tool={"editable": ["name"]}, approvals__run="caller")
    edit_elsewhere(r, "b")
    (shown,) = r.reply["data"][carrier]

    def decide(**changes: Any) -> Any:
        data = {carrier: [approved(shown, **changes)]}
        return r.ask(r.first, said(r.reply), user("", data=data))

    assert decide(seen="sha256:another").types == {"approval_changed"}
    assert decide(seen=2).status == 422
    assert r.tools.runs == []
    assert decide(seen=seen_of(r, r.call["id"]), input=whole("b")).status == 200
    assert r.tools.names == ["b"]


@PATHS
def test_decision_that_says_nothing_of_what_was_seen_does_not_start_an_edited_call(
    served: Serve, path: str
) -> None:
    r = Round(served, path=path, tool={"editable": ["name"]}, approvals__run="caller")
    edit_elsewhere(r, "b")

    def decide(**changes: Any) -> Any:
        data = {"approvals": [{"id": r.call["id"], "execute": True, **changes}]}
        return r.ask(r.first, said(r.reply), user("", data=data))

    assert decide().types == {"approval_changed"}
    assert r.tools.runs == []
    assert decide(seen=seen_of(r, r.call["id"])).status == 200
    assert r.tools.names == ["b"]


def test_changed_input_counts_beside_a_carrier_that_states_none(served: Serve) -> None:
    r = Round(served, tool={"editable": ["name"]})
    carriers = [
        {"id": r.call["id"], "execute": True, **more} for more in ({}, {"input": {"name": "b"}})
    ]
    data = {"approvals": carriers}
    reply = r.chat(r.first, said(r.reply), user("", data=data))
    assert r.tools.names == ["b"]
    (reported,) = reply["data"]["executed_approvals"]
    assert reported["input"] == whole("b")


def test_an_edit_leaves_the_other_parameters_exactly_as_they_were_proposed(served: Serve) -> None:
    # JavaScript reads integers beyond 2**53 as the nearest double.
    exact, rounded = 2**53 + 1, 2**53
    tools = Counted(editable=["name"])
    agent, _ = scripted([[delete("a", grace=exact)], "done"], tools.tools)
    service = served(agent)
    reply = service.chat(user("go"))
    (call,) = reply["data"]["tool_calls"]
    edited = approved(call, input={"name": "b", "grace": rounded})
    service.chat(user("go"), said(reply), user("", data={"tool_calls": [edited]}))
    assert tools.runs == [{"name": "b", "force": False, "grace": exact}]


@pytest.mark.parametrize(
    "input_", [{"name": "a", "force": True}, {"name": 3}, {}, {"name": "b", "other": 1}]
)
def test_edit_beyond_what_is_editable_is_refused(served: Serve, input_: Json) -> None:
    r = Round(served, tool={"editable": ["name"]})
    assert r.ask(*r.deciding(approved(r.call, input=input_))).types == {"approval_changed"}
    assert r.tools.runs == []


class TestTenants:
    def pending(self, served: Serve) -> tuple[Counted, Service, Json]:
        tools = Counted()
        agent, _ = scripted([[delete("a")], "gone", "more"], tools.tools)
        service = served(agent)
        reply = service.chat(user("delete a", platform_context={"tenant_name": "red"}))
        return tools, service, reply

    def message(self, reply: Json, tenant: str | None) -> list[Json]:
        given = {"platform_context": {"tenant_name": tenant}} if tenant else {}
        data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
        return [user("delete a"), said(reply), user("", data=data, **given)]

    def test_another_tenant_cannot_decide(self, served: Serve) -> None:
        tools, service, reply = self.pending(served)
        assert service.ask(*self.message(reply, "blue")).types == {"approval_not_issued"}
        assert tools.runs == []

    @pytest.mark.parametrize("tenant", ["red", None])
    def test_the_same_tenant_or_none_can(self, served: Serve, tenant: str | None) -> None:
        tools, service, reply = self.pending(served)
        assert service.chat(*self.message(reply, tenant))["content"] == "gone"
        assert tools.names == ["a"]


class TestPrincipals:
    KEYS = {"auth__scheme": "bearer", "auth__tokens": {"ann": "token-ann", "bob": "token-bob"}}
    ANN = {"Authorization": "Bearer token-ann"}
    BOB = {"Authorization": "Bearer token-bob"}

    def test_another_principal_cannot_decide(self, served: Serve) -> None:
        tools = Counted()
        agent, _ = scripted([[delete("a")], "gone"], tools.tools)
        service = served(agent, **self.KEYS)
        first = user("delete a")
        reply = service.chat(first, headers=self.ANN)
        data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
        messages = [first, said(reply), user("", data=data)]
        assert service.ask(*messages, headers=self.BOB).types == {"approval_not_issued"}
        assert tools.runs == []
        assert service.chat(*messages, headers=self.ANN)["content"] == "gone"

    def test_deciders_any_lets_another_decide_without_the_reply(self, served: Serve) -> None:
        tools = Counted()
        agent, _ = scripted([[delete("a")], "gone", "seen by bob"], tools.tools)
        service = served(agent, **self.KEYS, approvals__deciders="any")
        first = user("delete a")
        reply = service.chat(first, headers=self.ANN)
        data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
        messages = [first, said(reply), user("", data=data)]
        got = service.chat(*messages, headers=self.BOB)
        assert tools.names == ["a"]
        assert [e["output"] for e in got["data"]["executed_tool_calls"]] == ["deleted a"]
        service.chat(*messages, headers=self.ANN)
        assert tools.names == ["a"]


def test_session_change_of_an_approved_call_comes_with_its_outcome(served: Serve) -> None:
    @tool(requires_approval=True, name="delete")
    def marking(name: str, session: Session) -> str:
        """Delete."""
        session["gone"] = name
        return "ok"

    agent, _ = scripted([[delete("a")], "done"], [marking])
    service = served(agent)
    reply = service.chat(user("delete a"))
    assert "session" not in reply["data"]
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("delete a"), said(reply), user("", data=data)]
    first = service.chat(*messages)
    assert first["data"]["session"] == {"gone": "a"}
    assert service.chat(*messages) == first


def test_failed_continuation_can_be_sent_again(served: Serve) -> None:
    r = Round(served, [[delete("a")], RuntimeError("the model broke"), "It is gone."])
    assert r.ask(*r.deciding(approved(r.call))).status in (500, 502)
    reply = r.decide(approved(r.call))
    assert reply["content"] == "It is gone."
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["deleted a"]
    assert r.tools.names == ["a"]


def test_second_proposal_after_an_approval_is_stated_once(served: Serve) -> None:
    r = Round(served, [[delete("a", "p1")], [delete("b", "p2")], "Done."])
    second = r.decide(approved(r.call))
    assert r.decide(approved(r.call)) == second
    (call,) = second["data"]["tool_calls"]
    assert call["input"] == whole("b")
    final = r.chat(
        *r.deciding(approved(r.call)),
        said(second),
        user("", data={"tool_calls": [approved(call)]}),
    )
    assert final["content"] == "Done."
    assert r.tools.names == ["a", "b"]
    assert len(r.model.asks) == 3


def test_trimmed_history_still_decides(served: Serve) -> None:
    r = Round(served)
    reply = r.chat(user("", data={"tool_calls": [approved(r.call)]}))
    assert reply["content"] == "It is gone."
    assert r.tools.names == ["a"]
