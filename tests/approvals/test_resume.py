"""Resumed once, with any history that a client still has (design, section 6, "Resume once")."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import Counted, delete, scripted, suggest
from processes import CONFIG, Nursery, commanded, lines, lost
from serving import Json, Serve, Service, approved, assistant, rejected, said, until, user

from sayso import ChatRequest, LocalShell, RequestContext, Session, tool
from sayso.errors import ModelError
from sayso.models import Ask, Call, Result


def deciding(reply: Json, *calls: Json, content: str = "") -> list[Json]:
    calls = calls or tuple(approved(call) for call in reply["data"]["tool_calls"])
    return [user("wipe"), said(reply), user(content, data={"tool_calls": list(calls)})]


def paired(model: Any) -> None:
    """The requirements of providers: alternating roles, each call answered in the next turn,
    once."""
    for ask in model.asks:
        roles = [turn.role for turn in ask.turns]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        seen: set[str] = set()
        for turn, after in zip(ask.turns, [*ask.turns[1:], None], strict=True):
            assert turn.blocks
            calls = [b.id for b in turn.blocks if isinstance(b, Call)]
            answers = [b.call_id for b in after.blocks if isinstance(b, Result)] if after else []
            assert sorted(calls) == sorted(answers) or turn.role == "user"
            assert not seen & set(calls)
            seen |= set(calls)


def test_the_recorded_reply_survives_a_restart(nursery: Nursery, tmp_path: Path) -> None:
    process = nursery.start(tmp_path)
    messages = deciding(process.client.chat(user("wipe")))
    first = process.client.chat(*messages)
    process.close()
    again = nursery.start(tmp_path).client
    assert again.chat(*messages) == first
    events = again.stream(*messages)
    assert events[0]["executed_tool_calls"] == first["data"]["executed_tool_calls"]
    assert again.chat(*messages, path="v1")["content"] == first["content"]
    assert lines(tmp_path, "runs") == ["a"]
    assert len(lines(tmp_path, "asks")) == 2


@pytest.mark.slow
def test_every_worker_gives_the_recorded_reply(tmp_path: Path) -> None:
    with commanded(tmp_path, CONFIG, OPTIONS=json.dumps({"workers": 3})) as process:
        messages = deciding(process.client.chat(user("wipe")))
        first = process.client.chat(*messages)
        assert all(process.client.chat(*messages) == first for _ in range(20))
    assert lines(tmp_path, "runs") == ["a"]
    assert len(lines(tmp_path, "asks")) == 2


def test_a_killed_worker_leaves_its_continuation_to_another(tmp_path: Path) -> None:
    options = {"OPTIONS": json.dumps({"workers": 2}), "DIE": "model", "DIE_ONCE": "1"}
    with commanded(tmp_path, CONFIG, **options) as process:
        messages = deciding(process.client.chat(user("wipe")))
        assert lost(process.client, *messages) is None, "the worker dies with its request"
        answer = until(lambda: lost(process.client, *messages), "an answer")
        assert answer.json()["content"] == "ended: wiped a"
    assert lines(tmp_path, "runs") == ["a"]


def test_a_suspended_turn_resumes_with_the_blocks_of_the_model(
    nursery: Nursery, tmp_path: Path
) -> None:
    """After a restart, with a history that has no data but the decision."""
    plan = {"PLAN": json.dumps([["a", "b"], ["c"]])}
    process = nursery.start(tmp_path, **plan)
    reply = process.client.chat(user("wipe"))
    process.close()
    calls = [approved(call) for call in reply["data"]["tool_calls"]]
    client = nursery.start(tmp_path, **plan).client
    bare = [user("wipe"), assistant(""), user("", data={"tool_calls": calls})]
    second = client.chat(*bare)
    assert [c["input"] for c in second["data"]["tool_calls"]] == [{"name": "c"}]
    calls = [approved(call) for call in second["data"]["tool_calls"]]
    last = client.chat(*bare, assistant(""), user("", data={"tool_calls": calls}))
    assert last["content"] == "ended: wiped a | wiped b | wiped c"
    assert sorted(lines(tmp_path, "runs")) == ["a", "b", "c"]


def test_outputs_in_recorded_replies_go_with_the_other_contents(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a")], "It is gone.", "Nothing is known."], tools.tools)
    service = served(agent, approvals__retention=60.0)
    messages = deciding(service.chat(user("wipe")))
    replied = service.chat(*messages)
    assert [e["output"] for e in replied["data"]["executed_tool_calls"]] == ["deleted a"]
    ledger = service.app.host.ledger

    def kept(tx: Any) -> str:
        calls = tx.find()
        return repr([calls, tx.turns([row.turn for row in calls])])

    async def before_and_after() -> tuple[str, str]:
        before = await ledger.store.run(kept)
        await asyncio.sleep(0.01)
        await ledger.purge(0.0)
        return before, await ledger.store.run(kept)

    before, after = asyncio.run(before_and_after())
    for text in ("deleted a", "It is gone."):
        assert text in before and text not in after
    service.ask(*messages)
    assert tools.names == ["a"]


@pytest.mark.parametrize("fault", [ModelError("server", "down"), RuntimeError("broken")])
def test_a_failed_continuation_can_be_claimed_again(served: Serve, fault: Exception) -> None:
    tools = Counted()
    agent, model = scripted([[delete("a")], fault, "gone"], tools.tools)
    service = served(agent)
    messages = deciding(service.chat(user("wipe")))
    assert service.ask(*messages).status >= 500
    reply = service.chat(*messages)
    assert reply["content"] == "gone"
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["deleted a"]
    assert tools.names == ["a"]
    paired(model)


def test_a_failed_continuation_is_not_answered_by_the_reply_from_before_it(
    served: Serve, tmp_path: Path
) -> None:
    tools = Counted()
    calls = [delete("a"), suggest("echo ran >> ran; echo done")]
    script = [calls, "deleted", ModelError("server", "down"), "both"]
    agent, model = scripted(script, tools.tools, commands=LocalShell(tmp_path))
    service = served(agent)
    reply = service.chat(user("wipe"))
    talk = deciding(reply, content="but not that command")
    reply = service.chat(*talk)
    assert reply["content"] == "deleted"
    talk.append(said(reply))
    command = {"command": calls[1].input["commands"][0]["command"], "execute": True}
    talk.append(user(data={"cmds": [command]}))
    assert service.ask(*talk).status >= 500
    reply = service.chat(*talk)
    assert reply["content"] == "both", "the model hears of what ran"
    assert [ran["output"] for ran in reply["data"]["executed_cmds"]] == ["done\n"]
    assert service.chat(*talk)["content"] == "both"
    assert len(model.asks) == 4
    assert [*tmp_path.rglob("ran")][0].read_text() == "ran\n"
    paired(model)


def test_a_claim_of_a_turn_that_fails_before_the_run_can_be_taken_again(served: Serve) -> None:
    tools = Counted()
    faults = [True]

    def attach(request: ChatRequest, context: RequestContext) -> None:
        if context.has_decision and faults:
            # It cannot be copied for the handlers.
            request.messages[-1].data.lock = threading.Lock()  # type: ignore[union-attr]

    script: list[Any] = [[delete("a")], "gone"]
    agent, _ = scripted(
        script, tools.tools, request_interceptors=[attach], on_event=[lambda event: None]
    )
    service = served(agent, limits__turn_time=10)
    messages = deciding(service.chat(user("wipe")))
    assert service.ask(*messages).status == 500
    assert tools.names == []
    faults.clear()
    assert service.chat(*messages)["content"] == "gone"
    assert tools.names == ["a"]


def test_textless_requests_get_the_last_reply(served: Serve) -> None:
    tools = Counted()
    agent, model = scripted([[delete("a")], "gone"], tools.tools)
    service = served(agent)
    reply = service.chat(user("wipe"))
    first = service.chat(*deciding(reply))
    moved = said(reply)
    moved["data"] = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    again = service.chat(user("wipe"), moved, user(""))
    assert again["content"] == first["content"]
    assert again["data"]["executed_tool_calls"] == first["data"]["executed_tool_calls"]
    assert len(model.asks) == 2
    assert tools.names == ["a"]


def test_decisions_of_two_turns_that_say_nothing_new_get_the_later_reply(served: Serve) -> None:
    @tool(requires_approval=True)
    def mark(name: str, session: Session) -> str:
        """Mark a thing."""
        session["marked"] = [*session.get("marked", []), name]
        return name

    script = [[Call("p", "mark", {"name": "a"})], "one", [Call("q", "mark", {"name": "b"})], "two"]
    agent, _ = scripted(script, [mark])
    service = served(agent)
    history, calls = [user("mark a")], list[Json]()
    for more in ("mark b", ""):
        reply = service.chat(*history)
        made = [approved(call) for call in reply["data"]["tool_calls"]]
        calls += made
        history += [said(reply), user("", data={"tool_calls": made})]
        reply = service.chat(*history)
        history += [said(reply), user(more)]
    again = service.chat(*history[:-1], user("", data={"tool_calls": calls}))
    assert again["content"] == "two"
    assert again["data"]["session"] == {"marked": ["a", "b"]}


@tool
def note(text: str, session: Session) -> str:
    """Note a text."""
    session["noted"] = text
    return text


@pytest.mark.parametrize("kind", ["approval", "rejection", "command"])
def test_an_old_decision_sent_again_does_not_put_the_session_back(served: Serve, kind: str) -> None:
    tools = Counted()
    proposed = suggest("echo hi") if kind == "command" else delete("a")
    script = [[proposed], "well", [Call("n", "note", {"text": "x"})], "noted"]
    agent, model = scripted(script, [*tools.tools, note], commands=LocalShell())
    service = served(agent)
    reply = service.chat(user("wipe"))
    history = [user("wipe"), said(reply), decision(reply, rejects=kind == "rejection")]
    history += [said(service.chat(*history)), user("note x")]
    noted = service.chat(*history)
    assert noted["data"]["session"]["noted"] == "x"
    again = service.chat(*history, said(noted), history[2])
    assert again["content"] == "well"
    assert again["data"]["session"] == noted["data"]["session"]
    assert (tools.names, len(model.asks)) == (["a"] * (kind == "approval"), 4)


def test_lost_reply_to_words_beside_an_old_decision_is_got_with_its_session(served: Serve) -> None:
    @tool(requires_approval=True)
    def mark(name: str, session: Session) -> str:
        """Mark a thing."""
        session["marked"] = name
        return name

    noting = [Call("n", "note", {"text": "x"})]
    script = [[Call("p", "mark", {"name": "a"})], "marked", noting, "noted"]
    agent, _ = scripted(script, [mark, note])
    service = served(agent)
    reply = service.chat(user("mark a"))
    history = [user("mark a"), said(reply), decision(reply)]
    history += [said(service.chat(*history)), {**decision(reply), "content": "note x"}]
    lost = service.chat(*history)
    assert lost["data"]["session"] == {"marked": "a", "noted": "x"}
    assert service.chat(*history) == lost


def decision(reply: Json, *, rejects: bool = False) -> Json:
    change = {"rejection_reason": "no"} if rejects else {"execute": True}
    data = {n: [{**c, **change} for c in reply["data"][n]] for n in ("tool_calls", "cmds")}
    return user("", data=data)


def test_lost_reply_to_a_command_that_was_decided_before_too_is_got_with_its_session(
    served: Serve,
) -> None:
    noting = [Call("n", "note", {"text": "x"})]
    script = [[suggest("echo hi")], "one", [suggest("echo hi")], noting, "two"]
    agent, _ = scripted(script, [note], commands=LocalShell())
    service = served(agent)
    history = [user("say hi")]
    for more in (user("again"), None):
        reply = service.chat(*history)
        history += [said(reply), decision(reply)]
        done = service.chat(*history)
        history += [said(done), more] if more else []
    assert done["data"]["session"]["noted"] == "x"
    assert service.chat(*history) == done
    # A client may keep the part that arrived before the connection broke.
    broken = [*history, assistant("tw"), history[-1]]
    assert service.chat(*broken)["data"]["session"]["noted"] == "x"


def test_another_text_with_the_same_decision_continues_again_without_a_run(served: Serve) -> None:
    tools = Counted()
    agent, model = scripted([[delete("a")], "gone", "as I said, gone"], tools.tools)
    service = served(agent)
    reply = service.chat(user("wipe"))
    assert service.chat(*deciding(reply))["content"] == "gone"
    assert service.chat(*deciding(reply, content="well?"))["content"] == "as I said, gone"
    assert service.chat(*deciding(reply, content="well?"))["content"] == "as I said, gone"
    assert service.chat(*deciding(reply))["content"] == "gone", "each message has its own reply"
    assert tools.names == ["a"]
    assert len(model.asks) == 3
    paired(model)


def test_an_idempotent_call_that_ran_again_is_answered_anew(served: Serve) -> None:
    go = threading.Event()
    runs: list[str] = []

    @tool(requires_approval=True, idempotent=True, timeout=0.2)
    def delete(name: str) -> str:
        """Delete a thing."""
        runs.append(name)
        if len(runs) == 1:
            go.wait(120)
        return f"deleted {name}"

    script = [[Call("p1", "delete", {"name": "a"})], "nobody knows", "gone"]
    agent, model = scripted(script, [delete])
    service = served(agent)
    messages = deciding(service.chat(user("wipe")))
    assert service.chat(*messages)["content"] == "nobody knows"
    reply = service.chat(*messages)
    assert reply["content"] == "gone"
    assert service.chat(*messages) == reply
    go.set()
    assert runs == ["a", "a"]
    (result,) = [b for b in model.asks[-1].turns[-1].blocks if isinstance(b, Result)]
    assert "deleted a" in result.output
    paired(model)


def test_two_tabs_that_contradict_have_one_winner(served: Serve) -> None:
    tools = Counted()
    agent, model = scripted([[delete("a")], "gone"], tools.tools)
    service = served(agent)
    reply = service.chat(user("wipe"))
    (call,) = reply["data"]["tool_calls"]
    service.chat(*deciding(reply, approved(call)))
    answer = service.ask(*deciding(reply, rejected(call)))
    assert answer.types == {"approval_conflict"}
    assert tools.names == ["a"]


def test_partial_decisions_go_on_when_all_are_decided(served: Serve) -> None:
    tools = Counted()
    calls = [delete(name, f"p{name}") for name in "abc"]
    agent, model = scripted([calls, "done"], tools.tools)
    service = served(agent)
    history = [user("wipe")]
    reply = service.chat(*history)
    one, two, three = reply["data"]["tool_calls"]
    for call, left in ((approved(one), [two, three]), (rejected(two), [three])):
        history += [said(reply), user("", data={"tool_calls": [call]})]
        reply = service.chat(*history)
        assert [c["id"] for c in reply["data"]["tool_calls"]] == [c["id"] for c in left]
        assert len(model.asks) == 1
    history += [said(reply), user("", data={"tool_calls": [approved(three)]})]
    last = service.chat(*history)
    assert last["content"] == "done"
    assert tools.names == ["a", "c"]
    results = [b for t in model.asks[-1].turns for b in t.blocks if isinstance(b, Result)]
    assert [r.is_error for r in results] == [False, True, False]
    paired(model)
    assert service.chat(*history) == last


@pytest.mark.parametrize("value", ["1", "1.0", "1e0", "10e-1", "0.1e1"])
def test_numbers_that_a_browser_wrote_anew_are_equal(served: Serve, value: str) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a", grace=1)], "gone"], tools.tools)
    service = served(agent)
    reply = service.chat(user("wipe"))
    (call,) = reply["data"]["tool_calls"]
    stated = approved(call, input={"name": "a", "grace": "@number@", "force": False})
    text = json.dumps({"messages": deciding(reply, stated)})
    answer = service.post("/api/chat", text.replace('"@number@"', value).encode())
    assert answer.status == 200, answer.raw
    assert tools.runs == [{"name": "a", "force": False, "grace": 1}]


def test_large_numbers_survive_a_double(served: Serve) -> None:
    tools = Counted()
    agent, _ = scripted([[delete("a", grace=2**53 + 1)], "gone"], tools.tools)
    service = served(agent)
    reply = service.chat(user("wipe"))
    (call,) = reply["data"]["tool_calls"]
    rounded = approved(call, input={**call["input"], "grace": float(2**53 + 1)})
    service.chat(*deciding(reply, rounded))
    assert tools.runs[0]["grace"] == 2**53 + 1, "what runs is the recorded input"


@pytest.mark.parametrize("seed", range(12))
def test_no_history_makes_a_second_run_or_a_provider_error(served: Serve, seed: int) -> None:
    """Trimmed, re-ordered, stripped and doubled histories after two rounds of approvals."""
    chance = random.Random(seed)
    tools = Counted()

    def script(ask: Any) -> Any:
        calls = sum(isinstance(b, Call) for t in ask.turns for b in t.blocks)
        return [delete(f"x{calls}", f"p{len(model.asks)}")] if len(model.asks) <= 2 else "done"

    agent, model = scripted(script, tools.tools)
    service = served(agent)
    history = [user("wipe")]
    for _ in range(2):
        reply = service.chat(*history)
        calls = [approved(call) for call in reply["data"]["tool_calls"]]
        history += [said(reply), user("", data={"tool_calls": calls})]
    reply = service.chat(*history)
    assert reply["content"] == "done"
    ran = list(tools.names)
    assert len(ran) == 2
    for _ in range(8):
        kept = [dict(message) for message in history if chance.random() < 0.8]
        if chance.random() < 0.3:
            chance.shuffle(kept)
        if chance.random() < 0.3:
            kept = [m for message in kept for m in (message, dict(message))]
        for message in kept:
            if chance.random() < 0.3:
                message.pop("data", None)
        last = chance.choice([user("and now?"), dict(history[-1])])
        answer = service.ask(*kept, last)
        assert answer.status in (200, 409), answer.raw
        assert tools.names == ran
    paired(model)


def test_a_reply_lost_by_the_client_is_not_lost(served: Serve) -> None:
    """The client disconnects during the continuation; the next request finishes it."""
    import asyncio
    import socket
    import threading

    started, go = threading.Event(), threading.Event()
    tools = Counted()

    async def wait(ask: Any) -> str:
        started.set()
        await asyncio.to_thread(go.wait, 120)
        return "late"

    agent, model = scripted([[delete("a")], wait, "gone"], tools.tools)
    service: Service = served(agent)
    messages = deciding(service.chat(user("wipe")))
    body = json.dumps({"messages": messages}).encode()
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(
            b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert started.wait(60)
    until(lambda: service.app.host.turns_running == 0)
    go.set()
    assert service.chat(*messages)["content"] == "gone"
    assert tools.names == ["a"]


def test_a_reply_sent_again_tells_its_outcomes_in_order(served: Serve) -> None:
    agent, _ = scripted([[delete("a"), delete("b")], "ended"], Counted().tools)
    service = served(agent)
    reply = service.chat(user("wipe"))
    one, two = reply["data"]["tool_calls"]
    decided = assistant(data={**reply["data"], "tool_calls": [approved(one)]})
    rest = user(data={"approvals": [{"id": two["id"], "rejection_reason": "no"}]})
    messages = [user("wipe"), decided, rest]
    first = service.stream(*messages)
    types = ["executed_tool_calls", "executed_approvals", "text_delta", "done"]
    assert [e["type"] for e in first if e["type"] != "intermittent_update"] == types
    assert service.stream(*messages) == first


@tool(requires_approval=True)
def step(session: Session) -> str:
    """Take the next step."""
    session["steps"] = session.get("steps", 0) + 1
    return f"step {session['steps']}"


def test_what_an_approved_call_did_to_the_session_is_not_done_again(served: Serve) -> None:
    agent, _ = scripted([[Call("p", "step", {})], "one", "two", "three", "four"], [step])
    service = served(agent)
    reply = service.chat(user("wipe"))
    messages = deciding(reply)
    done = service.chat(*messages)
    assert done["data"]["session"] == {"steps": 1}
    messages += [said(done)]
    for data in ({}, messages[2]["data"], {}):
        messages += [user("go on", data={**data, "session": {"steps": 5}})]
        reply = service.chat(*messages)
        assert reply["data"]["session"] == {"steps": 5}
        messages += [said(reply)]


def test_a_decision_stated_again_beside_the_next_leaves_the_session_alone(served: Serve) -> None:
    agent, _ = scripted([[Call("p", "step", {}), Call("q", "step", {})], "both"], [step])
    service = served(agent)
    reply = service.chat(user("wipe"))
    one, two = reply["data"]["tool_calls"]
    messages = deciding(reply, approved(one))
    partial = service.chat(*messages)
    assert partial["data"]["session"] == {"steps": 1}
    both = user(data={"tool_calls": [approved(one), approved(two)]})
    reply = service.chat(*messages, said(partial), both)
    assert reply["data"]["session"] == {"steps": 2}


def test_a_change_of_the_session_that_no_reply_has_told_comes_before_the_next(
    served: Serve,
) -> None:
    agent, _ = scripted([[Call("p", "step", {}), Call("q", "step", {})], "both"], [step])
    service = served(agent)
    reply = service.chat(user("wipe"))
    one, two = reply["data"]["tool_calls"]
    service.chat(*deciding(reply, approved(one)))
    # Its client did not get that reply.
    reply = service.chat(*deciding(reply, approved(one), approved(two)))
    assert reply["data"]["session"] == {"steps": 2}
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["step 1", "step 2"]


def test_two_clients_that_decide_calls_of_one_turn_lose_no_change_of_the_session(
    served: Serve,
) -> None:
    agent, _ = scripted([[Call("p", "step", {}), Call("q", "step", {})], "both"], [step])
    service = served(agent)
    reply = service.chat(user("wipe"))
    one, two = reply["data"]["tool_calls"]
    service.chat(*deciding(reply, approved(one)))
    # The other client knows only its own decision.
    reply = service.chat(*deciding(reply, approved(two)))
    assert reply["data"]["session"] == {"steps": 2}
    assert [e["output"] for e in reply["data"]["executed_tool_calls"]] == ["step 2"]


def test_a_retry_beside_the_last_decision_continues_no_turn_twice(served: Serve) -> None:
    started, go = threading.Semaphore(0), threading.Event()

    @tool(requires_approval=True)
    def hold() -> str:
        """Hold until all requests are there."""
        started.release()
        assert go.wait(60)
        return "held"

    rounds = 12
    asked = [[Call("p", "hold", {}), Call("q", "hold", {})], "both", "again"]
    for _ in range(rounds):
        go.clear()
        agent, model = scripted(asked, [hold])
        service = served(agent)
        reply = service.chat(user("wipe"))
        one, two = reply["data"]["tool_calls"]
        with ThreadPoolExecutor(3) as pool:
            sent = [pool.submit(service.chat, *deciding(reply, approved(one)))]
            assert started.acquire(timeout=60)
            sent.append(pool.submit(service.chat, *deciding(reply, approved(two))))
            assert started.acquire(timeout=60)
            sent.append(pool.submit(service.chat, *deciding(reply, approved(one))))
            time.sleep(0.05)
            go.set()
        assert {"both"} <= {request.result()["content"] for request in sent} <= {"", "both"}
        assert len(model.asks) == 2


def test_a_command_takes_back_no_change_of_the_session_that_calls_made_after_it(
    served: Serve, tmp_path: Path
) -> None:
    @tool(requires_approval=True)
    def count(session: Session) -> str:
        """Count on, and let the command end."""
        session["counts"] = session.get("counts", 0) + 1
        (tmp_path / "counted").touch()
        return "counted"

    beside = f"until [ -e {tmp_path}/counted ]; do sleep 0.01; done"
    calls = [Call("p", "count", {}), Call("q", "count", {}), suggest(beside, "echo last")]
    agent, _ = scripted([calls, "all"], [count], commands=LocalShell(tmp_path / "work"))
    service = served(agent)
    reply = service.chat(user("wipe"))
    one, two = reply["data"]["tool_calls"]
    talk = [user("wipe"), said(reply)]
    # A client that knows only the fields of the contract sends back no ids of commands.
    first, last = ({"command": line, "execute": True} for line in (beside, "echo last"))
    for data in (
        {"tool_calls": [approved(one)], "cmds": [first]},
        {"tool_calls": [approved(two)]},
        {"cmds": [last]},
    ):
        talk.append(user(data=data))
        reply = service.chat(*talk)
        for ran in reply["data"]["executed_cmds"]:
            del ran["id"]
        talk.append(said(reply))
    assert reply["content"] == "all"
    assert reply["data"]["session"]["counts"] == 2


@pytest.mark.parametrize("content", ["go on", ""])
def test_after_a_lost_reply_the_next_message_has_what_the_call_did_to_the_session(
    served: Serve, content: str
) -> None:
    agent, _ = scripted(
        [[Call("p", "step", {})], ModelError("overloaded", "busy"), "two", "three"], [step]
    )
    service = served(agent)
    reply = service.chat(user("wipe"))
    assert service.ask(*deciding(reply)).status == 503
    messages = [user("wipe"), said(reply), user(content)]
    reply = service.chat(*messages)
    assert reply["data"]["session"] == {"steps": 1}
    messages += [said(reply), user("and on", data={"session": {"steps": 5}})]
    assert service.chat(*messages)["data"]["session"] == {"steps": 5}


def test_a_late_end_takes_nothing_back_of_what_the_call_did_to_the_session(served: Serve) -> None:
    free, up = threading.Event(), threading.Event()

    @tool(requires_approval=True, timeout=0.2)
    def slow(session: Session) -> str:
        """Note the step, then take long."""
        session["steps"] = 1
        free.wait(120)
        return "late"

    def act(ask: Ask) -> Any:
        if len(ask.turns) == 1:
            return [Call("s", "slow", {})]
        if not up.is_set():
            raise ModelError("overloaded", "busy")
        return "gone"

    agent, _ = scripted(act, [slow])
    service = served(agent)
    messages = deciding(service.chat(user("wipe")))
    assert service.ask(*messages).status == 503
    free.set()
    until(lambda: service.stream(*messages)[0]["executed_tool_calls"][0]["output"] == "late")
    up.set()
    assert service.chat(*messages)["data"]["session"] == {"steps": 1}


def test_a_reply_sent_again_tells_the_late_end_of_a_call_wherever_its_approval_sits(
    served: Serve,
) -> None:
    free = threading.Event()

    @tool(requires_approval=True, timeout=0.2)
    def slow() -> str:
        """Take long."""
        free.wait(120)
        return "late"

    agent, model = scripted([[Call("s", "slow", {})], "nobody knows"], [slow])
    service = served(agent)
    reply = service.chat(user("wipe"))
    moved = said(reply)
    moved["data"] = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    messages = [user("wipe"), moved, user("")]
    (first,) = service.chat(*messages)["data"]["executed_tool_calls"]
    assert first["output"].startswith("Outcome unknown:")
    free.set()
    resent = deciding(reply)
    until(lambda: _output(service.chat(*resent)) == "late")
    assert _output(service.chat(*messages)) == "late"
    assert len(model.asks) == 2


def _output(reply: Json) -> str:
    (executed,) = reply["data"]["executed_tool_calls"]
    output: str = executed["output"]
    return output
