"""Credentials that are words of the records themselves: masked in messages only (design, section
6)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import scripted, suggest
from hypothesis import given
from hypothesis import strategies as st
from serving import Json, Serve, approved, said, service, user

from sayso import (
    AgentMessage,
    Call,
    LocalShell,
    PlatformContext,
    RequestContext,
    Result,
    Session,
    Text,
    Turn,
    tool,
)
from sayso.conversation.hidden import hidden_reply, hidden_turns
from sayso.ledger import SuspendedTurn
from sayso.ledger.database import dump_turn, load_turn
from sayso.models import Ask, dump_turns, load_turns
from sayso.wire.messages import Data

WORDS = {
    "turns": "role user assistant blocks text call name input error result output is_error raw",
    "replies": "reply content data session stop_reason approval_required executed_tool_calls",
    "proposals": "proposals kind type tool_call index turn call_id created description intent",
    "the rest": "delete Error secret true null _sayso string transcript prefix",
    "tools": "wipe show",
    "ids": "call_ plan",
}
"""Words that occur in the records, the names of the tools and the ids of the calls."""


class Pods:
    """An agent that looks, then proposes to wipe two pods, then a third; and a caller of it."""

    def __init__(self, folder: Path, *credentials: str) -> None:
        self.folder = folder
        self.platform = {"aws_credentials": {"output": credentials}}
        self.ran: list[str] = []
        self.first = threading.Event()
        """Set when the first pod is wiped: calls that are approved together run in any order."""
        self.asks: list[Ask] = []
        self.replies: list[Json] = []

    @property
    def tools(self) -> list[Any]:
        @tool
        def show(pod: str, session: Session) -> str:
            """Look at it."""
            session["early"] = pod
            return f"{pod} up"

        @tool(requires_approval=True)
        def wipe(pod: str, session: Session) -> str:
            """Wipe it."""
            if pod == "b":
                assert self.first.wait(120)
            self.ran.append(pod)
            session["pods"] = [*session.get("pods", []), pod]
            session.pop("early", None)
            self.first.set()
            if pod == "c":
                raise ValueError("no")
            return f"{pod} gone"

        return [show, wipe]

    def answer(self, ask: Ask) -> Any:
        self.asks.append(ask)
        said = [turn for turn in ask.turns if turn.role == "assistant"]
        return (
            [Call("call_1", "show", {"pod": "a"})],
            ["So.", Call("call_2", "wipe", {"pod": "a"}), Call("call_3", "wipe", {"pod": "b"})],
            ["On.", Call("plan_1", "show", {"pod": "x"}), Call("plan_2", "wipe", {"pod": "c"})],
            "Over.",
        )[min(len(said), 3)]

    def ask(self, messages: Sequence[Json], times: int = 1) -> None:
        """Send it to a service that has just started."""
        agent, _ = scripted(self.answer, self.tools)
        ledger = {"approvals__ledger": "sqlite:///approvals.db"}
        with service(agent, self.folder, **ledger) as running:
            self.replies += [running.chat(*messages) for _ in range(times)]

    def talk(self) -> None:
        """Approve all proposals, and send each decision three times."""
        messages = [user("go", platform_context=self.platform)]
        self.ask(messages)
        while calls := self.replies[-1]["data"]["tool_calls"]:
            decided = {"tool_calls": [approved(call) for call in calls]}
            last = user("", data=decided, platform_context=self.platform)
            messages += [said(self.replies[-1]), last]
            self.ask(messages, 2)
            self.ask(messages)

    @property
    def seen(self) -> Any:
        """Everything that caller, tool and model got, with the ids of each message by their
        order."""
        asked = [dump_turns(ask.turns) for ask in self.asks]
        return [numbered(each, {}) for each in (*self.replies, self.ran, *asked)]


_ID = re.compile(r"(call_)?[0-9a-f]{16,32}|(call|plan)_\d|sha256:[0-9a-f]{64}")


def numbered(value: Any, known: dict[str, str]) -> Any:
    match value:
        case dict():
            return {key: numbered(item, known) for key, item in value.items()}
        case list():
            return [numbered(item, known) for item in value]
        case str() if re.fullmatch(_ID, value):
            return known.setdefault(value, f"#{len(known)}")
    return value


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pods = Pods(tmp_path_factory.mktemp("usual"), "harmless-4711")
    pods.talk()
    assert pods.ran == ["a", "b", "c"]
    assert [reply["content"] for reply in pods.replies] == ["So.", *3 * ["On."], *3 * ["Over."]]
    assert pods.replies[-1]["data"]["session"] == {"pods": ["a", "b", "c"]}
    assert len(pods.asks) == 4, "a repeat asks no model"
    return pods.seen


@pytest.mark.parametrize("words", WORDS)
def test_a_credential_that_is_a_word_of_the_records_changes_nothing_but_what_was_said(
    tmp_path: Path, usual: Any, words: str
) -> None:
    """An AWS profile has `output = text`."""
    pods = Pods(tmp_path, *WORDS[words].split())
    pods.talk()
    assert pods.seen == usual
    _, *second, third, again, last = pods.replies
    assert second == [second[0]] * 3 and third == again == last


SECRETS = ["geheim-4711", 'a "b" \\c\n', "Schl\u00fcssel\U0001f511", "it's & <so>", "x" * 40]


def written(secret: str) -> st.SearchStrategy[str]:
    """Texts that contain the secret, plainly or as JSON within JSON, and texts that do not."""
    ways = [secret, secret.strip(), repr(secret), "".join(secret.split()), "nothing", "text"]
    for ascii_ in (True, False):
        once = json.dumps({"key": secret}, ensure_ascii=ascii_)
        ways += [once, json.dumps({"log": once}, ensure_ascii=ascii_)]
    return st.sampled_from([*ways, *(f"before {way} after" for way in ways)])


def values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """JSON values of these texts, keys included."""
    plain = st.none() | st.booleans() | st.integers() | texts
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=1),
        max_leaves=4,
    )


@st.composite
def conversation(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[Turn]:
    """The turns of a suspended turn, each call but those of the last with its result."""
    turns: list[Turn] = []
    for n in range(draw(st.integers(1, 3))):
        ids = draw(st.lists(texts.map(lambda text, n=n: f"{text}{n}"), max_size=3, unique=True))
        inputs = st.dictionaries(texts, values(texts), max_size=1)
        names = st.sampled_from(["wipe", "text"]) | texts
        calls = [Call(i, draw(names), draw(inputs), draw(st.none() | texts)) for i in ids]
        kept = values(texts)
        key = draw(st.sampled_from(["anthropic", "openai", "openai:text", "raw"]))
        raw = draw(st.none() | st.lists(kept, min_size=1, max_size=2).map(lambda r, k=key: {k: r}))
        turns.append(
            Turn("assistant", [*map(Text, draw(st.lists(texts, max_size=2))), *calls], raw)
        )
        turns.append(Turn("user", [Result(i, draw(texts), draw(st.booleans())) for i in ids]))
    return turns


def texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from (text for pair in value.items() for part in pair for text in texts_in(part))
        case list():
            yield from (text for item in value for text in texts_in(item))


def holds(text: str, secret: str) -> bool:
    """Whether a text contains the secret, also as JSON within JSON."""
    forms = [secret.strip(), repr(secret.strip())[1:-1]]
    for ascii_ in (True, False):
        once = json.dumps(secret.strip(), ensure_ascii=ascii_)[1:-1]
        forms += [once, json.dumps(once, ensure_ascii=ascii_)[1:-1]]
    return any(form in text for form in forms)


def shape(turns: Sequence[Turn]) -> Any:
    """The turns without their texts: the pairs of calls and results, and so on."""
    ids: dict[str, int] = {}
    return [
        (
            turn.role,
            [
                ("call", ids.setdefault(b.id, len(ids)), b.name == "wipe", len(b.input))
                if isinstance(b, Call)
                else ("result", ids.setdefault(b.call_id, len(ids)), b.is_error)
                if isinstance(b, Result)
                else "text"
                for b in turn.blocks
            ],
        )
        for turn in turns
    ]


@given(st.data(), st.sampled_from(SECRETS))
def test_nothing_of_a_secret_is_in_a_stored_turn_and_its_structure_stays(
    data: st.DataObject, secret: str
) -> None:
    secrets = PlatformContext.model_validate({"platform_token": secret}).secrets()
    turns = data.draw(conversation(written(secret)))
    hidden, fresh = hidden_turns(turns, secrets, ["wipe", "text"])
    stored = dump_turn(SuspendedTurn("t", 0.0, transcript=dump_turns(hidden)))
    loaded = load_turns(load_turn(stored, None).transcript)
    assert not [text for text in (stored, *texts_in(json.loads(stored))) if holds(text, secret)]
    assert shape(loaded) == shape(turns)
    if hidden is turns:
        assert dump_turns(loaded) == dump_turns(turns)
        return
    for before, after in zip(turns, loaded, strict=True):
        assert (after.raw or {}).keys() == {key for key in before.raw or {} if ":" in key}
        called = [[b.id for b in t.blocks if isinstance(b, Call)] for t in (before, after)]
        assert called[1] == [fresh.get(id_, id_) for id_ in called[0]]


@given(st.data(), st.sampled_from(SECRETS))
def test_nothing_of_a_secret_is_in_a_recorded_reply_and_its_fields_stay(
    data: st.DataObject, secret: str
) -> None:
    secrets = PlatformContext.model_validate({"platform_token": secret}).secrets()
    texts = written(secret)
    free = st.dictionaries(texts, values(texts), max_size=2)
    ran = st.tuples(free, free, texts).map(
        lambda drawn: {**drawn[0], "id": "i", "name": "text", "input": drawn[1], "output": drawn[2]}
    )
    link = st.tuples(free, texts).map(lambda drawn: {**drawn[0], "url": drawn[1]})
    given = {
        "content": texts,
        "data": st.fixed_dictionaries(
            {
                "executed_tool_calls": st.lists(ran, max_size=2),
                "executed_approvals": st.lists(ran, max_size=2),
                "executed_cmds": st.lists(st.builds(dict, command=texts, output=texts), max_size=2),
                "url_configs": st.lists(link, max_size=1),
            }
        ),
        "meta_data": free,
        "timestamp": st.none() | st.just("2026-01-05T10:00:00Z"),
        "user": st.none() | st.builds(dict, name=texts, id=texts),
    }
    reply = AgentMessage.model_validate(data.draw(st.fixed_dictionaries(given)))
    reply.data = Data.model_validate({**data.draw(free), **reply.data.model_dump()})
    recorded = hidden_reply(reply, secrets)
    stored = dump_turn(SuspendedTurn("t", 0.0, reply={"reply": recorded}))
    assert not [text for text in (stored, *texts_in(json.loads(stored))) if holds(text, secret)]
    loaded = AgentMessage.model_validate(recorded)
    assert [(o.id, o.name) for o in loaded.data.outcomes] == [("i", "text")] * len(
        reply.data.outcomes
    )
    assert len(loaded.data.executed_cmds) == len(reply.data.executed_cmds)
    assert (
        loaded.model_fields_set == AgentMessage.model_validate(reply.model_dump()).model_fields_set
    )


def carries_out(messages: Any, context: RequestContext, session: Session) -> Any:
    """Proposes two calls under ids of its own, and carries them out once they are approved."""
    stated = {"user": {"name": "N", "id": "I"}, "meta_data": {"m": 1}}
    if not context.decisions:
        session["early"] = 1
        calls = [
            {"id": f"call_{n}", "name": "wipe", "input": {"pod": n}, "tool_description": "W"}
            for n in "ab"
        ]
        return {"content": "So?", "data": {"tool_calls": calls}, **stated}
    session["pods"] = [decided.input["pod"] for decided in context.decisions]
    del session["early"]
    done = [
        {"id": d.call_id, "name": d.name, "input": d.input, "output": f"{d.input['pod']} gone"}
        for d in context.decisions
    ]
    done.append({"id": "call_0", "name": "show", "input": {"pod": "x"}, "output": "up"})
    links = [{"url": "u://x", "description": "X"}]
    return {
        "content": "Over.",
        "data": {"executed_tool_calls": done, "url_configs": links},
        **stated,
    }


def of_callable(folder: Path, *credentials: str) -> Any:
    platform = {"aws_credentials": {"output": credentials}}
    messages = [user("go", platform_context=platform)]
    replies: list[Json] = []
    for times in (1, 2, 1):
        with service(carries_out, folder, approvals__ledger="sqlite:///approvals.db") as it:
            replies += [it.chat(*messages) for _ in range(times)]
        if times == 1 and len(messages) == 1:
            decided = [approved(call) for call in replies[0]["data"]["tool_calls"]]
            last = user("", data={"tool_calls": decided}, platform_context=platform)
            messages += [said(replies[0]), last]
    assert replies[1] == replies[2] == replies[3]
    return [numbered(reply, {}) for reply in replies]


@pytest.mark.parametrize("words", WORDS)
def test_such_a_credential_changes_nothing_of_what_a_callable_carries_out(
    tmp_path: Path, words: str
) -> None:
    usual = of_callable(tmp_path / "usual", "harmless-4711")
    assert usual[1]["data"]["session"] == {"pods": ["a", "b"]}
    outputs = [done["output"] for done in usual[1]["data"]["executed_tool_calls"]]
    assert outputs == ["a gone", "b gone", "up"]
    assert of_callable(tmp_path / "words", *WORDS[words].split()) == usual


def test_such_a_credential_changes_nothing_of_a_command_and_its_conversation(
    served: Serve, tmp_path: Path
) -> None:
    agent, model = scripted(
        [
            [suggest({"command": "cat a", "files": [{"file_path": "a", "file_content": "A\n"}]})],
            "Ok.",
        ],
        commands=LocalShell(workdir=tmp_path / "work"),
    )
    running = served(agent, approvals__ledger="sqlite:///approvals.db")
    words = "command files file_path file_content terminal suggest_commands _sayso".split()
    platform = {"aws_credentials": {"output": words}}
    reply = running.chat(user("go", platform_context=platform))
    (command,) = reply["data"]["cmds"]
    assert reply["data"]["approvals"][0]["description"] == "A terminal command"
    conversation = reply["data"]["session"]["_sayso"]
    for ids in ((), (conversation[:8], command["id"][:8])):
        platform = {"aws_credentials": {"output": [*words, *ids]}}
        last = user("", data={"cmds": [approved(command)]}, platform_context=platform)
        got = running.chat(user("go", platform_context=platform), said(reply), last)
        assert got["data"]["executed_cmds"][0]["output"] == "A\n"
        assert got["data"]["session"] == {"_sayso": conversation}
        assert got["content"] == "Ok."
    assert [turn.role for turn in model.asks[1].turns] == ["user", "assistant", "user"]


def test_an_error_begins_with_that_word_whatever_the_credential(served: Serve) -> None:
    agent, model = scripted(
        [[Call("1", "nothing", {}), Call("2", "show", {"pod": 1})], "Ok."], Pods(Path(), "").tools
    )
    running = served(agent)
    running.chat(user("go", platform_context={"platform_token": "Error"}))
    outputs = [block.output for block in model.asks[1].turns[-1].blocks]
    assert [output.partition(":")[0] for output in outputs] == ["Error", "Error"]
