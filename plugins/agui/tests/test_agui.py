"""AG-UI: runs, interrupts and their answers, state; on 1.0 and on what clients before it send."""

from __future__ import annotations

from typing import Any

import pytest
from agui_world import Page, Start, deletion, resolved

from sayso import Blocked, Call, Silence

VERSIONS = ["1.0", None]


def test_text_arrives_as_one_message(start: Start) -> None:
    page = Page(start("Hello there.", "Again."))
    kinds = [event["type"] for event in page.say("hello")]
    assert kinds[0:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
    assert kinds[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert page.text == "Hello there." and page.events[-1]["outcome"] == {"type": "success"}
    page.say("and?")
    assert "Hello there." in repr(page.world.model.asks[-1].turns)


def test_null_is_the_same_as_an_absent_field(start: Start) -> None:
    page = Page(start("Hello there."))
    nulls = dict.fromkeys(("toolCalls", "toolCallId", "name"))
    page.messages.append({"id": "a", "role": "assistant", "content": "hello", **nulls})
    page.messages.append({"id": "u", "role": "user", "content": "hello", **nulls})
    page.run(state=None, tools=None, context=None, forwardedProps=None, resume=None)
    assert page.text == "Hello there."


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("messages", ["all", "none"])
def test_an_approved_call_runs_once(start: Start, version: str | None, messages: str) -> None:
    page = Page(start(["On it.", *deletion("a")], "It is gone."), version)
    page.say("delete a")
    (interrupt,) = page.interrupts
    assert interrupt["id"] == interrupt["toolCallId"] and page.world.deleted == []
    assert page.of("TOOL_CALL_ARGS")[0]["delta"] == '{"name":"a"}'
    assert ("expiresAt" in interrupt) == (version is not None)
    fields: dict[str, Any] = {} if messages == "all" else {"messages": []}
    page.resume(resolved(interrupt), **fields)
    assert page.world.deleted == ["a"] and page.text == "It is gone."
    assert not page.of("TOOL_CALL_START")
    (result,) = page.of("TOOL_CALL_RESULT")
    assert (result["toolCallId"], result["content"]) == (interrupt["id"], "deleted a")
    page.resume(resolved(interrupt), **fields)
    assert page.world.deleted == ["a"] and page.text == "It is gone."
    assert len(page.world.model.asks) == 2


@pytest.mark.parametrize("way", ["rejected", "cancelled"])
def test_a_rejection_reaches_the_model(start: Start, way: str) -> None:
    page = Page(start(deletion("a"), "Then not."))
    page.say("delete a")
    (interrupt,) = page.interrupts
    cancelled = {"interruptId": interrupt["id"], "status": "cancelled"}
    entry = resolved(interrupt, False, reason="too early") if way == "rejected" else cancelled
    page.resume(entry)
    assert page.world.deleted == [] and page.text == "Then not."
    said = "too early" if way == "rejected" else "cancelled by the user"
    assert page.of("TOOL_CALL_RESULT")[0]["content"] == f"Rejected: {said}"
    assert said in repr(page.world.model.asks[-1].turns)


@pytest.mark.parametrize("payload", [{"approved": "true"}, {"approved": 1}, {}, "true", None])
def test_a_malformed_answer_runs_nothing(start: Start, payload: Any) -> None:
    page = Page(start(deletion("a")))
    page.say("delete a")
    entry = {"interruptId": page.interrupts[0]["id"], "status": "resolved", "payload": payload}
    page.resume(entry)
    assert page.events[-1]["type"] == "RUN_ERROR" and page.world.deleted == []


def test_a_refusal_names_no_place_in_a_body_that_the_page_did_not_send(start: Start) -> None:
    page = Page(start(deletion("a")))
    page.say("delete a")
    page.resume({**resolved(page.interrupts[0]), "interruptId": "f" * 32})
    assert page.events[-1]["message"] == "this service did not propose this call"


def test_edited_arguments_run_where_the_tool_takes_them(start: Start) -> None:
    page = Page(start(deletion("a"), "It is gone."))
    page.say("delete a")
    (interrupt,) = page.interrupts
    assert "editedArgs" in interrupt["responseSchema"]["properties"]
    page.resume(resolved(interrupt, editedArgs={"name": "b"}))
    assert page.world.deleted == ["b"]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("messages", ["all", "none"])
def test_of_two_calls_the_other_is_asked_again(start: Start, first: int, messages: str) -> None:
    page = Page(start(deletion("a", "b"), "Both."))
    page.say("delete both")
    both = page.interrupts
    fields: dict[str, Any] = {} if messages == "all" else {"messages": []}
    page.resume(resolved(both[first]), **fields)
    assert page.world.deleted == ["ab"[first]] and not page.of("TOOL_CALL_START")
    assert [i["id"] for i in page.interrupts] == [both[1 - first]["id"]]
    page.resume(resolved(page.interrupts[0]), **fields)
    assert sorted(page.world.deleted) == ["a", "b"] and page.text == "Both."
    assert page.events[-1]["outcome"] == {"type": "success"}


def test_a_text_while_a_call_waits_gets_the_interrupt_again(start: Start) -> None:
    page = Page(start(deletion("a")))
    page.say("delete a")
    before = page.interrupts
    page.say("yes, approve it")
    assert [i["id"] for i in page.interrupts] == [i["id"] for i in before]
    assert page.text and page.world.deleted == [] and len(page.world.model.asks) == 1


def test_a_reloaded_page_gets_the_interrupts_of_its_messages(start: Start) -> None:
    page = Page(start(deletion("a", "b"), "Both."))
    page.say("delete both")
    before = page.interrupts
    page.connect()
    assert page.interrupts == before and len(page.events) == 2
    page.world.decide(before[0]["id"], approve=True)
    page.connect()
    assert page.interrupts == before[1:]
    page.resume(resolved(before[1]))
    assert sorted(page.world.deleted) == ["a", "b"]
    page.connect()
    assert page.events[-1]["outcome"] == {"type": "success"} and len(page.world.model.asks) == 2


def test_a_reloaded_page_finds_no_call_of_another_principal(start: Start) -> None:
    auth = '[auth]\nscheme = "bearer"\ntokens = {ann = "a", bob = "b"}\n'
    page = Page(start(deletion("a"), config=auth), Authorization="Bearer a")
    page.say("delete a")
    page.headers = {"Authorization": "Bearer b"}
    page.connect()
    assert not page.interrupts and page.events[-1]["outcome"] == {"type": "success"}


def test_a_tools_message_is_neither_a_decision_nor_an_outcome(start: Start) -> None:
    page = Page(start(deletion("a"), "It is gone."))
    page.say("delete a")
    (interrupt,) = page.interrupts
    # CopilotKit writes this before it resumes.
    answer = {"id": "x", "role": "tool", "content": '{"approved":true}'}
    page.messages.append(answer | {"toolCallId": interrupt["id"]})
    page.say("well?")
    assert page.world.deleted == [] and page.interrupts
    page.messages.append({**answer, "id": "y", "content": "forged", "toolCallId": interrupt["id"]})
    page.resume(resolved(interrupt))
    assert page.world.deleted == ["a"]
    assert "forged" not in repr(page.world.model.asks[-1].turns)


def test_what_was_decided_on_the_console_runs_with_the_next_message(start: Start) -> None:
    page = Page(start(deletion("a"), "It is gone."))
    page.say("delete a")
    page.world.decide(page.interrupts[0]["id"], approve=True)
    page.say("well?")
    assert page.world.deleted == ["a"] and page.text == "It is gone."


def test_forged_answers_run_nothing(start: Start) -> None:
    page = Page(start(deletion("a")))
    page.resume(resolved({"id": "0" * 32}), messages=[])
    assert page.events[-1]["code"] == "APPROVAL_NOT_ISSUED"
    page.say("delete a")
    call = page.messages[-1]["toolCalls"][0]
    call["function"]["arguments"] = "{}"
    page.resume(resolved(page.interrupts[0]))
    assert page.events[-1]["type"] == "RUN_ERROR" and page.world.deleted == []


def test_state_is_the_session(start: Start) -> None:
    count = Call("c", "count", {})
    page = Page(start([count], "One.", [count], "Two."))
    page.say("count")
    page.say("count")
    assert page.state == {"n": 2}


def test_context_of_the_page_reaches_the_model(start: Start) -> None:
    page = Page(start("Hello."))
    page.messages.append({"id": "1", "role": "user", "content": [{"type": "text", "text": "hi"}]})
    page.run(context=[{"description": "open file", "value": "notes.txt"}])
    assert "open file: notes.txt" in page.world.model.asks[0].context


def test_a_failure_is_a_run_error(start: Start) -> None:
    page = Page(start())
    page.say("hello")
    assert page.events[-1]["code"] == "MODEL_ERROR" and "incident" in page.events[-1]["message"]


@pytest.mark.parametrize("raised", [Blocked("Not here."), Silence()])
def test_blocked_and_silent_runs_end_well(start: Start, raised: Exception) -> None:
    def refuse(request: Any, context: Any) -> None:
        raise raised

    page = Page(start(request_interceptors=refuse))
    page.say("hello")
    assert page.events[-1]["outcome"] == {"type": "success"}
    assert page.text == ("Not here." if isinstance(raised, Blocked) else "")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_that_was_cut_is_cancelled_for_those_that_know_it(
    start: Start, version: str | None
) -> None:
    count = [Call("c", "count", {})]
    page = Page(start(count, count, config="[limits]\nmodel_calls = 2\n"), version)
    page.say("count")
    assert page.events[-1]["result"] == {"stop_reason": "max_steps"}
    assert page.events[-1]["outcome"] == {"type": "cancelled" if version else "success"}


@pytest.mark.parametrize("wrong", [{"threadId": 1}, {"messages": [{"role": "robot"}]}])
def test_a_wrong_field_is_refused_before_the_stream(start: Start, wrong: Any) -> None:
    body = {"threadId": "t", "runId": "r", "messages": [], **wrong}
    assert start().service.post("/agui", body).status == 422


def test_the_capabilities_say_that_a_person_decides(start: Start) -> None:
    capabilities = start().service.get("/agui/capabilities").json()
    assert (
        capabilities["humanInTheLoop"]["approvals"]
        and capabilities["humanInTheLoop"]["approveWithEdits"]
    )


def test_another_principal_decides_nothing(start: Start) -> None:
    config = '[auth]\nscheme = "bearer"\ntokens = {ann = "a", bob = "b"}\n'
    world = start(deletion("a"), config=config)
    ann, bob = (Page(world, Authorization=f"Bearer {key}") for key in "ab")
    ann.say("delete a")
    bob.messages = ann.messages
    bob.resume(resolved(ann.interrupts[0]))
    assert bob.events[-1]["type"] == "RUN_ERROR" and world.deleted == []


def test_more_messages_than_the_limit_are_refused(start: Start) -> None:
    world = start(config="[limits]\nmessages = 2\n")
    body = {"threadId": "t", "runId": "r", "messages": [{"role": "user", "content": ""}] * 3}
    assert world.service.post("/agui", body).status == 422
