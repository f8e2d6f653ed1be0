"""One table for the protocols whose clients keep the ids of calls.

Three calls, decided in any order and in any groups, here or elsewhere, run as decided, once, and
the agent goes on at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "openai_api" / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "ui_stream" / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "plugins" / "agui" / "tests"))

import agui_world
import openai_world
import ui_world

from sayso import Agent, Ask, Call, tool
from sayso.testing import Service, scripted, served

NAMES = ("a", "b", "c")
CONFIG = 'plugins = ["openai_api", "ui_stream", "agui"]\n[server]\nhost = "127.0.0.1"\n'
Json = dict[str, Any]


class Client(Protocol):
    """One conversation over one protocol."""

    def begin(self) -> Sequence[str]:
        """Ask for the three deletions; returns the ids of the calls."""
        ...

    def decide(self, decisions: Mapping[str, bool], *, again: bool) -> str:
        """Send these decisions, twice with `again`; returns the agent's text."""
        ...

    def say(self, text: str) -> str:
        """Send a text; returns the agent's text."""
        ...


class ResponsesClient:
    """OpenAI's client, going on by `previous_response_id`."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.last: Any = None

    def _create(self, given: Any, before: Any) -> Any:
        client = OpenAI(base_url=f"{self.world.service.url}/v1", api_key="x", max_retries=0)
        with client:
            more = {"previous_response_id": before.id} if before is not None else {}
            return client.responses.create(model="desk", input=given, **more)

    def begin(self) -> Sequence[str]:
        self.last = self._create("delete", None)
        return [one.id for one in self.last.output if one.type == "mcp_approval_request"]

    def decide(self, decisions: Mapping[str, bool], *, again: bool) -> str:
        kind = "mcp_approval_response"
        items = [
            {"type": kind, "approval_request_id": id_, "approve": approve}
            for id_, approve in decisions.items()
        ]
        before = self.last
        for _ in range(1 + again):
            self.last = self._create(items, before)
        return self._text

    def say(self, text: str) -> str:
        self.last = self._create(text, self.last)
        return self._text

    @property
    def _text(self) -> str:
        return str(self.last.output_text)


class UIClient:
    """A page of the AI SDK."""

    def __init__(self, world: Any) -> None:
        self.page = ui_world.Page(world)

    def begin(self) -> Sequence[str]:
        self.page.say("delete")
        return [call["toolCallId"] for call in self.page.calls()]

    def decide(self, decisions: Mapping[str, bool], *, again: bool) -> str:
        for call in self.page.calls():
            if call["toolCallId"] in decisions:
                self.page.answer(call, decisions[call["toolCallId"]])
        sent = [dict(m, parts=[dict(p) for p in m["parts"]]) for m in self.page.messages]
        self.page.post()
        if again:
            self.page.messages = sent
            self.page.post()
        assert not self.page.error
        return self.page.text()

    def say(self, text: str) -> str:
        self.page.say(text)
        assert not self.page.error
        return self.page.text()


class AGUIClient:
    """A page of AG-UI."""

    def __init__(self, world: Any) -> None:
        self.page = agui_world.Page(world)

    def begin(self) -> Sequence[str]:
        self.page.say("delete")
        return [one["id"] for one in self.page.interrupts]

    def decide(self, decisions: Mapping[str, bool], *, again: bool) -> str:
        entries = [agui_world.resolved({"id": i}, approved) for i, approved in decisions.items()]
        for _ in range(1 + again):
            self.page.resume(*entries)
        assert self.page.events[-1]["type"] == "RUN_FINISHED"
        return self.page.text

    def say(self, text: str) -> str:
        self.page.say(text)
        return self.page.text


CLIENTS: Mapping[str, Any] = {"responses": ResponsesClient, "ui": UIClient, "agui": AGUIClient}


class World:
    """A service whose agent asks for three deletions for each "delete"."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

        @tool(requires_approval=True)
        def delete(name: str) -> str:
            """Delete a file."""
            self.deleted.append(name)
            return f"deleted {name}"

        self.agent = Agent(name="desk", model=scripted(*[self._step] * 10_000), tools=[delete])
        self.service: Service

    def _step(self, ask: Ask) -> Any:
        if "Text(text='delete'" in repr(ask.turns[-1]):
            return [Call(f"c{n}", "delete", {"name": name}) for n, name in enumerate(NAMES)]
        return "All told."


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    with served(made.agent, config=CONFIG) as service:
        made.service = service
        yield made


groups = st.permutations(range(3)).flatmap(
    lambda order: st.sampled_from([[1, 1, 1], [1, 2], [2, 1], [3]]).map(
        lambda sizes: [order[sum(sizes[:n]) : sum(sizes[: n + 1])] for n in range(len(sizes))]
    )
)


@pytest.mark.parametrize("protocol", CLIENTS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=groups, verdicts=st.lists(st.booleans(), min_size=3, max_size=3), again=st.booleans())
def test_calls_run_as_decided_whatever_the_order(
    world: World, protocol: str, groups: list[list[int]], verdicts: list[bool], again: bool
) -> None:
    world.deleted.clear()
    client: Client = CLIENTS[protocol](world)
    ids = client.begin()
    assert len(set(ids)) == 3
    said = ""
    for number, group in enumerate(groups):
        said = client.decide({ids[n]: verdicts[n] for n in group}, again=again)
        decided = [n for one in groups[: number + 1] for n in one]
        ran = sorted(NAMES[n] for n in decided if verdicts[n])
        assert sorted(world.deleted) == ran
        assert ("All told." in said) is (number == len(groups) - 1)


@pytest.mark.parametrize("protocol", CLIENTS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verdicts=st.lists(st.sampled_from([True, False, None]), min_size=3, max_size=3))
def test_what_was_decided_elsewhere_goes_on_with_the_next_text(
    world: World, protocol: str, verdicts: list[bool | None]
) -> None:
    world.deleted.clear()
    client: Client = CLIENTS[protocol](world)
    ids = client.begin()
    surface = openai_world.World(world.service, None, None)  # type: ignore[arg-type]
    for id_, verdict in zip(ids, verdicts, strict=True):
        if verdict is not None:
            surface.decide(id_, approve=verdict)
    said = client.say("well?")
    wanted = [n for n, v in zip(NAMES, verdicts, strict=True) if v]
    # A message beside calls that still wait is not answered, and waits for no run of the service.
    deadline = time.monotonic() + 30
    while sorted(world.deleted) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(world.deleted) == wanted
    assert ("All told." in said) is (None not in verdicts)


RULED = """plugins = ["openai_api", "ui_stream", "agui", "a2a", "v2"]
[server]
host = "127.0.0.1"
[auth]
scheme = "bearer"
[auth.tokens]
ann = "token-a"
bob = "token-b"
carl = "token-c"
[auth.principals.ann]
kind = "person"
[auth.principals.carl]
kind = "person"
[auth.principals.bob]
kind = "person"
[plugin.a2a]
adapter = "a2a"
[[approvals.rules]]
tool = "delete"
approvers = ["bob", "carl"]
quorum = 2
"""
ASKED: Json = {"role": "user", "content": "delete"}
REQUESTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"model": "desk", "messages": [ASKED]}),
    "responses": ("/v1/responses", {"model": "desk", "input": "delete"}),
    "ui_stream": (
        "/ai/chat",
        {"messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "delete"}]}]},
    ),
    "agui": (
        "/agui",
        {
            "threadId": "t",
            "runId": "r",
            "messages": [{**ASKED, "id": "u"}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        },
    ),
    "a2a": (
        "/a2a/rest/message:send?A2A-Version=1.0",
        {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "delete"}]}},
    ),
}


@pytest.mark.parametrize("frontend", REQUESTS)
def test_cards_of_every_frontend_say_who_is_needed(frontend: str) -> None:
    made = World()
    path, body = REQUESTS[frontend]
    with served(made.agent, config=RULED) as service:
        answer = service.post(path, body, {"Authorization": "Bearer token-a"})
        assert answer.status == 200, answer.text
        assert "It needs 2 approvals of bob, carl." in answer.text
