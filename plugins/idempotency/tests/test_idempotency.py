"""A client sends its request again with the same key, and nothing happens twice."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sayso import (
    Agent,
    Call,
    Caller,
    LocalShell,
    ModelError,
    Plugin,
    Principal,
    Session,
    hookimpl,
    tool,
)
from sayso.testing import Answer, Service, scripted, served, user
from sayso_idempotency import rows
from sayso_idempotency.attempts import InProgress, Journal

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from slow import few

CONFIG = 'plugins = ["v1", "v2", "idempotency"]\n[server]\nhost = "127.0.0.1"\n'
KEY = {"Idempotency-Key": "a-key-of-this-test"}
PATHS = ["/api/chat", "/api/chat-stream", "/api/sendMessage", "/api/sendMessageStream"]
Start = Callable[..., Service]
Json = dict[str, Any]


class Desk:
    """An agent that counts what its tools do."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.started, self.open = threading.Event(), threading.Event()

    def agent(self, steps: Sequence[Any]) -> Agent:
        @tool
        def send(to: str, session: Session) -> str:
            """Send a letter."""
            self.runs.append(to)
            session.set("sent", to)
            return f"letter {len(self.runs)} to {to}"

        @tool
        def wait() -> str:
            """Wait."""
            self.runs.append("wait")
            self.started.set()
            assert self.open.wait(30)
            return "waited"

        return Agent(name="desk", model=scripted(*steps), tools=[send, wait])


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def start(desk: Desk) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(*steps: Any, config: str = CONFIG) -> Service:
            return stack.enter_context(served(desk.agent(steps), config=config))

        yield begin


def send(to: str) -> list[Any]:
    return [Call(f"to-{to}", "send", {"to": to})]


def ask(service: Service, path: str = PATHS[0], text: str = "hi", **headers: str) -> Answer:
    return service.post(path, {"messages": [user(text)]}, {**KEY, **headers})


def replayed(answer: Answer) -> bool:
    return answer.headers.get("idempotent-replayed") == "true"


@pytest.mark.parametrize("path", few(PATHS, *PATHS[:2]))
def test_the_same_request_gets_the_recorded_answer(start: Start, desk: Desk, path: str) -> None:
    service = start(send("ann"), "Sent.")
    first, second = ask(service, path), ask(service, path)
    assert first.status == second.status == 200
    assert second.body == first.body
    assert (replayed(first), replayed(second)) == (False, True)
    assert second.headers["content-type"] == first.headers["content-type"]
    assert desk.runs == ["ann"]


def test_a_key_with_another_body_or_path_is_refused(start: Start) -> None:
    service = start("One.")
    assert ask(service).status == 200
    for other in (ask(service, text="ho"), ask(service, PATHS[1])):
        assert other.status == 422
    (item,) = ask(service, text="ho").json()["detail"]
    assert item["type"] == "idempotency_key_reused"
    assert "send a new key with a new request" in item["msg"]
    assert replayed(ask(service))


def test_a_key_whose_request_is_being_answered_is_refused(start: Start, desk: Desk) -> None:
    service = start([Call("w", "wait", {})], "Done.")
    answers: list[Answer] = []
    first = threading.Thread(target=lambda: answers.append(ask(service)))
    first.start()
    assert desk.started.wait(30)
    refused = ask(service)
    assert (refused.status, refused.json()["code"]) == (409, "IDEMPOTENCY_KEY_IN_USE")
    assert int(refused.headers["retry-after"]) > 0
    desk.open.set()
    first.join()
    assert ask(service).body == answers[0].body
    assert desk.runs == ["wait"]


def test_a_turn_with_a_key_goes_on_when_its_client_leaves(start: Start, desk: Desk) -> None:
    service = start([Call("w", "wait", {})], "Done.")
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    body = json.dumps({"messages": [user("hi")]})
    connection.request("POST", PATHS[0], body, {"Content-Type": "application/json", **KEY})
    assert desk.started.wait(30)
    connection.close()
    desk.open.set()
    answer = ask(service)
    while answer.status == 409:
        answer = ask(service)
    assert answer.json()["content"] == "Done."
    assert desk.runs == ["wait"]


@pytest.mark.parametrize("path", PATHS[:2])
def test_a_turn_that_failed_for_now_goes_on_and_runs_no_tool_again(
    start: Start, desk: Desk, path: str
) -> None:
    away = ModelError("overloaded", "away")
    service = start(send("ann"), send("bob"), away, "Both sent.")
    failed = ask(service, path)
    assert failed.status == 503 or failed.events[-1]["type"] == "error"
    again = ask(service, path)
    assert again.status == 200
    assert not replayed(again)
    assert "".join(e.get("text", e.get("content", "")) for e in again.events) == "Both sent."
    assert '"session":{"sent":"bob"}' in again.text
    assert desk.runs == ["ann", "bob"]
    given = service.host.model.asks[-1].turns[-1].blocks[0].output  # type: ignore[attr-defined]
    assert given == "letter 2 to bob"
    assert replayed(ask(service, path))


def test_refusals_before_the_turn_are_not_kept(start: Start) -> None:
    service = start("One.", config=f'{CONFIG}cors_origins = ["https://page.example"]\n')
    assert service.post(PATHS[0], {"messages": []}, KEY).status == 422
    assert ask(service).json()["content"] == "One."
    again = ask(service, Origin="https://page.example")
    assert replayed(again)
    assert "Idempotent-Replayed" in again.headers["access-control-expose-headers"]


def test_a_failure_of_the_agent_is_kept(desk: Desk) -> None:
    class Broken(Plugin):
        name = "broken"

        @hookimpl
        def intercept_response(self) -> None:
            raise RuntimeError("no")

    with served(desk.agent([send("ann"), "Sent."]), [Broken], config=CONFIG) as service:
        first, second = ask(service), ask(service)
    assert first.status == second.status == 500
    assert second.body == first.body
    assert replayed(second)
    assert desk.runs == ["ann"]


def test_a_key_that_is_none_is_refused(start: Start) -> None:
    service = start("One.")
    for key in ("", "x" * 256, "caf\u00e9"):
        answer = ask(service, **{"Idempotency-Key": key})
        assert answer.status == 422
        assert "1 to 255" in answer.json()["detail"][0]["msg"]


def test_keys_belong_to_their_principal(start: Start) -> None:
    tokens = '[auth]\nscheme = "bearer"\n[auth.tokens]\nann = "ann-token-0123456789"\n'
    service = start("One.", "Two.", config=f'{CONFIG}{tokens}bob = "bob-token-0123456789"\n')
    ann, bob = ({"Authorization": f"Bearer {who}-token-0123456789"} for who in ("ann", "bob"))
    assert ask(service, **ann).json()["content"] == "One."
    assert ask(service, text="other", **bob).json()["content"] == "Two."
    assert replayed(ask(service, **ann))


def test_keys_belong_to_their_tenant(start: Start) -> None:
    repeats = start("One.").host.repeats
    assert repeats is not None

    def attempt(tenant: str) -> None:
        caller = Caller("v2", Principal("ann", tenant=tenant))
        asyncio.run(repeats.attempt([b"key"], [b"body"], caller))

    attempt("acme")
    attempt("other")
    with pytest.raises(InProgress):
        attempt("acme")


def test_a_key_is_forgotten_after_its_time(start: Start) -> None:
    service = start("One.", "Two.", config=f'{CONFIG}[plugin.idempotency]\nkeep = "50ms"\n')
    assert ask(service).json()["content"] == "One."
    threading.Event().wait(0.06)
    assert ask(service, text="other").json()["content"] == "Two."


def test_another_process_knows_the_keys(desk: Desk, tmp_path: Path) -> None:
    shared = f'{CONFIG}[approvals]\nledger = "sqlite:///{tmp_path / "approvals.db"}"\n'
    with (
        served(desk.agent([send("ann"), "Sent."]), config=shared) as one,
        served(desk.agent(["Never said."]), config=shared) as other,
    ):
        first, second = ask(one), ask(other)
    assert second.body == first.body
    assert replayed(second)
    assert desk.runs == ["ann"]


def test_an_old_protocols_failure_for_now_is_not_kept(start: Start, desk: Desk) -> None:
    service = start(send("ann"), ModelError("overloaded", "away"), "Sent.")
    failed, again = ask(service, PATHS[2]), ask(service, PATHS[2])
    assert failed.status == 500
    assert again.json()["content"] == "Sent."
    assert desk.runs == ["ann"]


def test_a_proposal_is_answered_once(start: Start) -> None:
    rules = '[[approvals.rules]]\ntool = "send"\naction = "require"\n'
    service = start(send("ann"), "Sent.", config=f"{CONFIG}{rules}")
    first, second = ask(service), ask(service)
    (call,) = first.json()["data"]["tool_calls"]
    assert second.json()["data"]["tool_calls"] == [call]
    assert replayed(second)


def test_a_secret_is_not_kept_and_its_call_does_not_run_again(start: Start, desk: Desk) -> None:
    secret = "a-token-of-the-platform"
    away = ModelError("overloaded", "away")

    def kept(service: Service) -> str:
        store = service.host.ledger.store
        found = asyncio.run(store.run(lambda tx: tx.notes("plugin:idempotency/")))
        return " ".join(found.values())

    service = start(send(secret), away, "Sent.")
    said = user("hi", platform_context={"platform_token": secret})
    body = {"messages": [said]}
    assert service.post(PATHS[0], body, KEY).status == 503
    assert "letter 1 to [secret]" in kept(service)
    assert secret not in kept(service)
    assert service.post(PATHS[0], body, KEY).json()["content"] == "Sent."
    assert secret not in kept(service)
    assert desk.runs == [secret]


def test_a_long_turn_keeps_its_key(
    start: Start, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "LEASE", 0.3)
    service = start([Call("w", "wait", {})], "Done.")
    first = threading.Thread(target=lambda: ask(service))
    first.start()
    assert desk.started.wait(30)
    threading.Event().wait(1.0)
    assert ask(service).status == 409
    desk.open.set()
    first.join()
    assert replayed(ask(service))


class Kept:
    """Notes of a store whose time the test sets."""

    def __init__(self) -> None:
        self.now = 100 * rows.HOUR + 1.0
        self.texts: dict[str, str] = {}

    def find(self, prefix: str) -> dict[str, str]:
        return {name: text for name, text in self.texts.items() if name.startswith(prefix)}

    def put(self, name: str, text: str | None) -> None:
        self.texts.pop(name, None)
        if text is not None:
            self.texts[name] = text


def test_what_is_over_is_removed_by_the_hour() -> None:
    notes = Kept()
    while rows.sweep(notes):
        pass
    assert isinstance(rows.claim(notes, "old", "r", "me", 2 * rows.HOUR), rows.Claimed)
    rows.end(notes, "old", "me", rows.Reply(200, [], "said"))
    assert isinstance(rows.claim(notes, "new", "r", "me", 5 * rows.HOUR), rows.Claimed)
    notes.now += 4 * rows.HOUR
    while rows.sweep(notes):
        pass
    assert not notes.find("idempotency/old")
    assert notes.find("idempotency/new")
    assert len(notes.find("idempotency-due")) == 1


def test_erased_answers_keep_their_keys_and_a_request_that_is_answered_now_stays() -> None:
    notes = Kept()
    assert not rows.sweep(notes)
    ann, bob = rows.whose("ann"), rows.whose("bob")
    for key, of in (("done", ann), ("broken", ann), ("runs", ann), ("bobs", bob)):
        rows.claim(notes, key, "r", "one", 60, [of])
        rows.note(notes, key, "one", "step", "ann-said-this" if of == ann else "bob-said-this")
    for key in ("done", "bobs"):
        rows.end(notes, key, "one", rows.Reply(200, [], f"answer-{key}"))
    rows.end(notes, "broken", "one", None)
    assert rows.erase(notes, ann) == (2, 1)
    kept = {name: text for name, text in notes.texts.items() if "runs" not in name}
    assert "ann-said-this" not in str(kept) and "answer-done" not in str(kept)
    for key in ("done", "broken"):
        # The request is not carried out again.
        assert rows.claim(notes, key, "r", "two", 60) == rows.Reply(200, [], None)
    assert rows.claim(notes, "bobs", "r", "two", 60) == rows.Reply(200, [], "answer-bobs")
    rows.end(notes, "runs", "one", rows.Reply(200, [], "late"))
    assert rows.erase(notes, ann) == (1, 0)
    assert "ann-said-this" not in str(notes.texts) and "late" not in str(notes.texts)
    notes.now += 60 + 2 * rows.HOUR
    while rows.sweep(notes):
        pass
    assert [name for name in notes.texts if name != "idempotency-swept"] == []


def test_an_attempt_that_was_overtaken_notes_nothing() -> None:
    notes = Kept()
    rows.claim(notes, "key", "r", "slow", 60)
    assert rows.note(notes, "key", "slow", "one", "begun")
    assert isinstance(rows.claim(notes, "key", "r", "quick", 60), rows.Running)
    notes.now += rows.LEASE + 1
    claimed = rows.claim(notes, "key", "r", "quick", 60)
    assert claimed == rows.Claimed({"one": "begun"})
    assert not rows.note(notes, "key", "slow", "two", "begun")
    rows.end(notes, "key", "slow", rows.Reply(200, [], "late"))
    assert isinstance(rows.claim(notes, "key", "r", "third", 60), rows.Running)


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO], ids=["quiet", "counted"])
@pytest.mark.parametrize("timeout", [None, 30])
def test_a_call_that_was_reported_unknown_before_it_began_never_begins(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    timeout: float | None,
    level: int,
) -> None:
    caplog.set_level(level, "sayso")
    monkeypatch.setattr(rows, "LEASE", 0.4)
    monkeypatch.setattr(rows, "renew", lambda *args, **kwargs: None)
    noted, again = threading.Event(), threading.Event()
    note = Journal.note

    async def stands_still(journal: Journal, name: str, text: str) -> None:
        await note(journal, name, text)
        if text == "started" and not noted.is_set():
            noted.set()
            await asyncio.to_thread(again.wait, 30)

    monkeypatch.setattr(Journal, "note", stands_still)
    runs: list[str] = []

    @tool(timeout=timeout)
    def send(to: str) -> str:
        """Send a letter."""
        runs.append(to)
        return "sent"

    agent = Agent(
        name="desk",
        model=scripted([Call("c", "send", {"to": "ann"})], "Nobody knows."),
        tools=[send],
    )
    with served(agent, config=CONFIG) as service:
        answers: list[Answer] = []
        first = threading.Thread(target=lambda: answers.append(ask(service)))
        first.start()
        assert noted.wait(30)
        threading.Event().wait(0.5)
        assert ask(service).json()["content"] == "Nobody knows."
        again.set()
        first.join()
    assert runs == []
    assert answers[0].status == 409


def test_what_was_proposed_or_granted_before_a_crash_is_not_proposed_again(
    start: Start, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "LEASE", 0.2)
    # A process that dies at this moment records no answer either.
    monkeypatch.setattr(rows, "end", lambda *args, **kwargs: None)
    rules = '[[approvals.rules]]\ntool = "send"\naction = "require"\n'
    service = start(send("ann"), "Sent.", config=f"{CONFIG}{rules}")
    (first,) = ask(service).json()["data"]["tool_calls"]
    threading.Event().wait(0.3)
    again = ask(service)
    assert not replayed(again)
    assert again.json()["data"]["tool_calls"] == [first]
    pending = asyncio.run(service.host.calls.pending(Caller("v2")))
    assert [call.id for call in pending.calls] == [first["id"]]
    conversation = service.conversation(user("hi"), {"role": "assistant", **again.json()})
    assert conversation.approve()["content"] == "Sent."
    assert desk.runs == ["ann"]


def test_suggested_commands_are_not_suggested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LEASE", 0.2)
    monkeypatch.setattr(rows, "end", lambda *args, **kwargs: None)
    suggestion = Call("s", "suggest_commands", {"commands": [{"command": "true"}]})
    agent = Agent(name="desk", model=scripted([suggestion]), commands=LocalShell())
    with served(agent, config=CONFIG) as service:
        (first,) = ask(service).json()["data"]["cmds"]
        threading.Event().wait(0.3)
        assert ask(service).json()["data"]["cmds"] == [first]
        pending = asyncio.run(service.host.calls.pending(Caller("v2")))
        assert len(pending.calls) == 1


GRANTS = """
[auth]
scheme = "bearer"
[auth.tokens]
ann = "ann-token-0123456789"
bob = "bob-token-0123456789"
[auth.principals.ann]
kind = "person"
[auth.principals.bob]
kind = "person"
[approvals]
deciders = "any"
grants = true
[[approvals.rules]]
tool = "send"
action = "require"
"""


def test_a_call_under_a_standing_grant_runs_once(start: Start, desk: Desk) -> None:
    away = ModelError("overloaded", "away")
    config = CONFIG.replace('"v2"', '"v2", "approvals"') + GRANTS
    service = start(send("zoe"), away, "Sent.", config=config)
    ann, bob = ({"Authorization": f"Bearer {who}-token-0123456789"} for who in ("ann", "bob"))
    grant = {
        "tool": "send",
        "arguments": {"to": "zoe"},
        "holder": "ann",
        "reason": "letters",
        "uses": 9,
        "seconds": 600,
    }
    assert service.post("/approvals/grants", grant, bob).status in (200, 201)
    assert ask(service, **ann).status == 503
    again = ask(service, **ann)
    assert again.json()["content"].startswith("Sent.")
    assert desk.runs == ["zoe"]
