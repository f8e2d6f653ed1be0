"""Limits for each principal, over every protocol and all services that share a store."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import SendMessageRequest
from google.protobuf.json_format import ParseDict
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from websockets.sync.client import connect

from sayso import Agent, Call, Caller, Reply, Session, Text, TooMany, Turn, Usage, tool
from sayso.testing import Answer, Served, scripted, user
from sayso_limits import Limits
from sayso_limits.rows import Limit, Used, give_back, take

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from ports import quiet_port

TOKENS = {"ana": "t0ken-of-ana-that-is-long", "ben": "t0ken-of-ben-that-is-long"}
CONFIG = '[auth]\nscheme = "bearer"\n[auth.tokens]\n' + "".join(
    f'{name} = "{token}"\n' for name, token in TOKENS.items()
)


def limits(**settings: Any) -> list[Limits]:
    return [Limits(Limits.Settings(**settings))]


def header(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


def refused(answer: Answer, code: str = "RATE_LIMITED") -> bool:
    """Whether it is a 429 that says when to try again."""
    assert answer.status == 429, answer.text
    assert 1 <= int(answer.headers["retry-after"]) <= 86_400
    assert "try again in" in answer.text
    return code in answer.text


@pytest.fixture(autouse=True)
def _away_from_the_end_of_a_minute() -> None:
    left = 60 - time.time() % 60
    if left < 8:
        time.sleep(left)


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete something."""
    return f"{name} is gone"


def test_a_principal_is_refused_beyond_its_rate_and_another_is_not(sayso_served: Served) -> None:
    agent = Agent(model=scripted(*["fine"] * 9))
    service = sayso_served(agent, limits(rate=2), config=CONFIG)
    assert [service.ask("hello", headers=header("ana")).status for _ in range(2)] == [200, 200]
    assert refused(service.ask("hello", headers=header("ana")))
    assert service.ask("hello", headers=header("ben")).status == 200


def test_the_limit_holds_on_every_protocol(sayso_served: Served) -> None:
    agent = Agent(model=scripted(*["fine"] * 9), tools=[look])
    config = f'plugins = ["v1", "v2", "openai_api", "agui", "ui_stream"]\n{CONFIG}'
    service = sayso_served(agent, limits(rate=1), config=config)
    ana = header("ana")
    assert service.ask("hello", headers=ana).status == 200
    body = {"messages": [user("hello")]}
    assert refused(service.post("/api/sendMessage", body, ana), "a minute")
    chat = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}]}
    answer = service.post("/v1/chat/completions", chat, ana)
    assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1
    asked = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", **user("hello")}]}
    run = {**asked, "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    assert "RATE_LIMITED" in service.post("/agui", run, ana).text
    (event,) = service.ask("hello", stream=True, headers=ana).events
    assert (event["type"], event["code"]) == ("error", "RATE_LIMITED")
    with connect(f"ws://127.0.0.1:{service.port}/api/chat-ws", additional_headers=ana) as socket:
        for _ in range(2):
            socket.send(json.dumps(body))
            answer = json.loads(socket.recv(timeout=20))
            assert (answer["type"], answer["code"]) == ("error", "RATE_LIMITED")
    caller = Caller("mcp", "ana")

    async def direct() -> None:
        await service.host.calls.run("look", {}, caller, session=Session())

    with pytest.raises(TooMany):
        asyncio.run(direct())


MORE = f"""
plugins = ["v2", "a2a", "mcp", "ui_stream"]
[plugin.a2a]
adapter = "both"
[plugin.mcp]
port = PORT
transport = "streamable-http"
{CONFIG}"""


def test_agents_and_pages_are_refused_in_the_words_of_their_protocols(
    sayso_served: Served,
) -> None:
    port = quiet_port()
    agent = Agent(model=scripted(*["fine"] * 9), tools=[look])
    service = sayso_served(agent, limits(rate=1), config=MORE.replace("PORT", str(port)))
    ana = header("ana")
    assert service.ask("hello", headers=ana).status == 200
    assert refused(service.post("/a2a/tasks/send", {"message": "hello"}, ana))
    part = {"type": "text", "text": "hello"}
    page = {"id": "c1", "messages": [{"id": "m1", "role": "user", "parts": [part]}]}
    shown = service.post("/ai/chat", page, ana).text
    assert '"type":"error"' in shown and "try again in" in shown

    async def of_mcp() -> Any:
        async with httpx2.AsyncClient(headers=ana, timeout=20) as http:
            connection = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
            async with McpClient(connection) as client:
                return await client.call_tool("look", {})

    result = asyncio.run(of_mcp())
    assert result.is_error and "try again in" in result.content[0].text

    async def of_a2a() -> list[str]:
        async with httpx.AsyncClient(headers=ana, timeout=20) as http:
            said = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
            card = await A2ACardResolver(http, service.url).get_agent_card()
            client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
            asked = ParseDict({"message": said}, SendMessageRequest())
            return [str(each) async for each in client.send_message(asked)]

    (task,) = asyncio.run(of_a2a())
    assert "TASK_STATE_REJECTED" in task and "RATE_LIMITED" in task and "try again in" in task


def test_services_that_share_a_store_share_the_counts(sayso_served: Served, tmp_path: Path) -> None:
    config = f'[approvals]\nledger = "sqlite:///{tmp_path / "shared.db"}"\n{CONFIG}'
    first, second = (
        sayso_served(Agent(model=scripted(*["fine"] * 9)), limits(rate=3), config=config)
        for _ in range(2)
    )
    answers = [s.ask("hello", headers=header("ana")).status for s in (first, second, first, second)]
    assert answers == [200, 200, 200, 429]


def test_tokens_of_a_day_are_a_budget_and_cached_ones_count_a_tenth(sayso_served: Served) -> None:
    said = Reply(Turn("assistant", [Text("fine")]), "end_turn", Usage(40, 10, 100, 0))
    agent = Agent(model=scripted(*[said] * 9))
    service = sayso_served(agent, limits(tokens=100), config=CONFIG)
    assert [service.ask("hello", headers=header("ana")).status for _ in range(2)] == [200, 200]
    assert refused(service.ask("hello", headers=header("ana")), "BUDGET_EXHAUSTED")


def test_only_so_many_requests_run_at_once_and_a_place_comes_back(sayso_served: Served) -> None:
    entered, release = threading.Event(), threading.Event()

    @tool
    def hold() -> str:
        """Hold the place."""
        entered.set()
        release.wait(20)
        return "held"

    steps = [Call("c1", "hold", {})], "one", "two"
    service = sayso_served(Agent(model=scripted(*steps), tools=[hold]), limits(concurrent=1))
    first = threading.Thread(target=service.chat, args=("hold",))
    first.start()
    assert entered.wait(20)
    assert refused(service.ask("hello"))
    release.set()
    first.join()
    assert service.ask("hello").status == 200


def test_a_decision_is_made_beyond_all_limits_but_its_own(sayso_served: Served) -> None:
    steps = [Call("c1", "delete", {"name": "web"})], "well"
    agent = Agent(model=scripted(*steps), tools=[delete])
    service = sayso_served(agent, limits(rate=1, concurrent=1, tokens=1), config=CONFIG)
    talk = service.conversation(token=TOKENS["ana"])
    talk.say("delete web")
    assert service.ask("hello", headers=header("ana")).status == 429
    assert talk.reject("no")["content"] == "well"


def test_a_decision_without_an_effect_is_limited_like_any_turn(sayso_served: Served) -> None:
    deleting = [Call("c1", "delete", {"name": "web"})]
    agent = Agent(model=scripted(deleting, *["well"] * 9), tools=[delete])
    service = sayso_served(agent, limits(rate=1), config=CONFIG)
    talk = service.conversation(headers=header("ana"))
    (pending,) = talk.say("delete web")["data"]["tool_calls"]
    rejected = {**pending, "rejection_reason": "no"}
    forged = {**rejected, "id": "0" * 32}
    command = {"command": "true", "execute": False, "rejection_reason": "no"}

    def status(content: str, **data: Any) -> int:
        messages = [user("go on"), user(content, data=data)]
        answer = service.post("/api/chat", {"messages": messages}, header("ana"))
        return answer.status

    for content in ("and more", ""):
        assert status(content, tool_calls=[forged]) == 429
        assert status(content, approvals=[forged]) == 429
        assert status(content, cmds=[command]) == 429
    assert status("no, but more", tool_calls=[rejected]) == 200
    # It is made already, and was answered.
    assert status("and more", tool_calls=[rejected]) == 429
    assert status("", tool_calls=[rejected]) == 429


def test_a_principal_may_have_limits_of_its_own(sayso_served: Served) -> None:
    agent = Agent(model=scripted(*["fine"] * 9))
    settings = {"rate": 1, "principals": {"ben": {"rate": 3}}}
    service = sayso_served(agent, limits(**settings), config=CONFIG)
    of_ana = [service.ask("hello", headers=header("ana")).status for _ in range(2)]
    of_ben = [service.ask("hello", headers=header("ben")).status for _ in range(4)]
    assert (of_ana, of_ben) == ([200, 429], [200, 200, 200, 429])


class Notes:
    """Notes in a dictionary, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.kept: dict[str, str] = {}

    def find(self, prefix: str) -> dict[str, str]:
        return {name: text for name, text in self.kept.items() if name.startswith(prefix)}

    def put(self, name: str, text: str | None) -> None:
        self.kept.pop(name, None)
        if text is not None:
            self.kept[name] = text


def test_counts_begin_anew_with_the_minute_and_a_dead_process_frees_its_place() -> None:
    notes, limit = Notes(), Limit(rate=1, decisions=1, concurrent=1, tokens=10)

    def asked(id_: str) -> str:
        refusal = take(notes, "limits:x", limit, id_, 30.0, decides=False)
        return refusal.code if refusal else ""

    assert asked("a") == ""
    assert asked("b") == "RATE_LIMITED"
    notes.now += 60
    assert "at once" in str(take(notes, "limits:x", limit, "b", 30.0, decides=False))
    notes.now += 60
    assert asked("b") == ""
    give_back(notes, "limits:x", "b", 10)
    notes.now += 60
    assert asked("c") == "BUDGET_EXHAUSTED"
    notes.now += 86_400
    assert asked("c") == ""
    assert Used(**json.loads(notes.kept["limits:x"])).tokens == 0
