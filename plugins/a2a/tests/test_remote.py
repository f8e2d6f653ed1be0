"""`remote_agent`: another agent as tools of ours, between two running services."""

from __future__ import annotations

import gzip
import json
import logging
import threading
import time
import tracemalloc
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from a2a_services import PATIENCE, Cluster, Scripted, Service, configured, running

from sayso import Agent, AgentMessage, Ask, Call, Config, Plugin, Result, Text, hookimpl, tool
from sayso.testing import served
from sayso_a2a import Artifact, RemoteAgent, remote_agent, reply
from sayso_a2a.link import _card_of


def driver(tools: RemoteAgent) -> tuple[Agent, Scripted]:
    """An agent whose model passes every text on, and proposes each call that is pending there."""

    def answer(ask: Ask) -> str | Call:
        newest = ask.turns[-1]
        results = [block for block in newest.blocks if isinstance(block, Result)]
        if not results:
            said = " ".join(block.text for block in newest.blocks if isinstance(block, Text))
            if said.startswith("{"):
                return Call("call-2", "kube_decide", json.loads(said))
            return Call("call-1", "kube", {"message": said})
        output = results[-1].output
        if "A call waits for a decision: " in output:
            shown = output.partition("decision: ")[2]
            call, _ = json.JSONDecoder().raw_decode(shown)
            task = output.partition("task '")[2].partition("'")[0]
            return Call("call-2", "kube_decide", {"task": task, **call})
        return f"It says: {output}"

    model = Scripted(answer)
    return Agent(name="desk", tools=list(tools), model=model), model


def ask(service: Service, *messages: dict[str, Any]) -> dict[str, Any]:
    answer = service.http.post("/api/chat", json={"messages": list(messages)})
    assert answer.status_code == 200, answer.text
    reply: dict[str, Any] = answer.json()
    return reply


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


@pytest.fixture(params=["simple", "a2a"])
def adapter(request: pytest.FixtureRequest) -> str:
    """The protocol that the remote agent speaks."""
    return str(request.param)


def test_remote_agent_answers(tmp_path: Path, cluster: Cluster, adapter: str) -> None:
    with running(cluster.agent, configured(tmp_path / "far", adapter=adapter)) as far:
        agent, _ = driver(remote_agent(far.url, name="kube"))
        with running(agent, configured(tmp_path / "near")) as near:
            assert ask(near, said("hello"))["content"] == "It says: You said: hello"


def test_call_over_there_becomes_our_proposal(
    tmp_path: Path, cluster: Cluster, adapter: str
) -> None:
    with running(cluster.agent, configured(tmp_path / "far", adapter=adapter)) as far:
        agent, _ = driver(remote_agent(far.url, name="kube"))
        with running(agent, configured(tmp_path / "near")) as near:
            first = said("delete web")
            reply = ask(near, first)
            (call,) = reply["data"]["tool_calls"]
            assert call["name"] == "kube_decide"
            assert (call["input"]["name"], call["input"]["input"]) == (
                "delete_pod",
                {"name": "web"},
            )
            assert cluster.deleted == []
            decided = said("", data={"tool_calls": [{**call, "execute": True}]})
            done = ask(near, first, {"role": "assistant", **reply}, decided)
            assert done["content"] == "It says: The tool says: deleted web"
            assert cluster.deleted == ["web"]
            ask(near, first, {"role": "assistant", **reply}, decided)
            assert cluster.deleted == ["web"]


def test_whole_numbers_from_over_there_stay_whole(tmp_path: Path, adapter: str) -> None:
    @tool(requires_approval=True)
    def refund(order: int) -> str:
        """Refund an order."""
        return f"refunded {order}"

    def reports(messages: Any) -> AgentMessage:
        return reply("Done.", artifacts=[Artifact({"rows": 42})])

    call = Call("call-1", "refund", {"order": 20261122})
    refunds = Agent(name="refunds", model=Scripted(lambda ask: call), tools=[refund])
    replies: list[dict[str, Any]] = []
    for name, there in (("reports", reports), ("refunds", refunds)):
        with running(there, configured(tmp_path / name, adapter=adapter)) as far:
            agent, _ = driver(remote_agent(far.url, name="kube"))
            with running(agent, configured(tmp_path / f"near-{name}")) as near:
                replies.append(ask(near, said("go")))
    assert '{"rows": 42}' in replies[0]["content"]
    (proposed,) = replies[1]["data"]["tool_calls"]
    assert json.dumps(proposed["input"]["input"]) == '{"order": 20261122}'


def test_rejection_here_runs_nothing_there(tmp_path: Path, cluster: Cluster, adapter: str) -> None:
    with running(cluster.agent, configured(tmp_path / "far", adapter=adapter)) as far:
        agent, _ = driver(remote_agent(far.url, name="kube"))
        with running(agent, configured(tmp_path / "near")) as near:
            reply = ask(near, said("delete web"))
            (call,) = reply["data"]["tool_calls"]
            rejected = {**call, "rejection_reason": "not today"}
            decided = said("", data={"tool_calls": [rejected]})
            ask(near, said("delete web"), {"role": "assistant", **reply}, decided)
            assert cluster.deleted == []


@pytest.mark.parametrize("change", [{"input": {"name": "db"}}, {"name": "hold"}, {"id": "made-up"}])
def test_what_the_person_saw_is_what_runs(
    tmp_path: Path, cluster: Cluster, adapter: str, change: dict[str, Any]
) -> None:
    with running(cluster.agent, configured(tmp_path / "far", adapter=adapter)) as far:
        agent, _ = driver(remote_agent(far.url, name="kube"))
        with running(agent, configured(tmp_path / "near")) as near:
            (call,) = ask(near, said("delete web"))["data"]["tool_calls"]
            invented = said(json.dumps({**call["input"], **change}))
            reply = ask(near, invented)
            (other,) = reply["data"]["tool_calls"]
            decided = said("", data={"tool_calls": [{**other, "execute": True}]})
            done = ask(near, invented, {"role": "assistant", **reply}, decided)
            assert done["data"]["executed_tool_calls"][0]["output"].startswith("Error:")
            assert cluster.deleted == []


def test_headers_go_with_each_request(tmp_path: Path, cluster: Cluster, adapter: str) -> None:
    base = configured(tmp_path / "far", adapter=adapter).model_dump(exclude_unset=True)
    auth = {"scheme": "bearer", "tokens": {"desk": "token-of-desk"}}
    with running(cluster.agent, Config.model_validate({**base, "auth": auth})) as far:
        headers = {"authorization": "Bearer token-of-desk"}
        agent, _ = driver(remote_agent(far.url, name="kube", headers=lambda: headers))
        refused, _ = driver(remote_agent(far.url, name="kube"))
        with running(agent, configured(tmp_path / "near")) as near:
            assert ask(near, said("hello"))["content"] == "It says: You said: hello"
        with running(refused, configured(tmp_path / "near")) as near:
            answer = ask(near, said("hello"))["content"]
            assert "401" in answer


class Basic(Plugin):
    """Admits requests with the user and the password."""

    name = "basic"

    @hookimpl
    def authenticate(self, headers: Mapping[str, str]) -> str | None:
        given = b64decode(headers.get("authorization", "").removeprefix("Basic "))
        return "joe" if given == b"joe:p@ss word" else None


@pytest.mark.parametrize(
    ("password", "wanted"), [("p%40ss%20word", "You said"), ("wrong%20word", "401")]
)
def test_password_in_the_address_is_sent_and_never_shown(
    tmp_path: Path, adapter: str, password: str, wanted: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    table = f'plugins = ["a2a", "basic"]\n[plugin.a2a]\nadapter = "{adapter}"'
    echo = lambda messages, context: f"You said: {messages[-1].content}"  # noqa: E731
    with served(echo, [Basic], config=table) as far:
        remote = remote_agent(f"http://joe:{password}@127.0.0.1:{far.port}/", name="kube")
        agent, _ = driver(remote)
        with running(agent, configured(tmp_path / "near")) as near:
            answer = ask(near, said("hello"))["content"]
    assert wanted in answer
    shown = repr(remote) + answer + caplog.text
    assert password not in shown and "joe:" not in shown


def test_card_that_names_another_address_is_refused(tmp_path: Path, cluster: Cluster) -> None:
    config = configured(tmp_path / "far", adapter="a2a", url="https://elsewhere.example")
    with running(cluster.agent, config) as far:
        agent, _ = driver(remote_agent(far.url, name="kube", headers={"authorization": "secret"}))
        with running(agent, configured(tmp_path / "near")) as near:
            assert "names other addresses only" in ask(near, said("hello"))["content"]


def test_agent_of_0_3_is_spoken_to_at_the_interface_of_its_own_address(tmp_path: Path) -> None:
    parts = [{"kind": "text", "text": "hello from 0.3"}]
    reply = {"kind": "message", "messageId": "m", "role": "agent", "parts": parts}
    cards: dict[str, Any] = {}
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": reply})
    with answering(answer, cards) as url:
        cards["/.well-known/agent-card.json"] = {
            "name": "old",
            "protocolVersion": "0.3.0",
            "url": "https://elsewhere.example/a2a",
            "additionalInterfaces": [{"url": f"{url}/rpc", "transport": "JSONRPC"}],
            "security": [{"bearer": []}],
        }
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            assert "hello from 0.3" in ask(near, said("hello"))["content"]


@pytest.mark.parametrize("interfaces", [["x"], {"a": 1}, [{"url": 3}], "https://x"])
def test_card_that_lists_no_interfaces_is_refused(tmp_path: Path, interfaces: Any) -> None:
    cards = {"/.well-known/agent-card.json": {"name": "far", "supportedInterfaces": interfaces}}
    with answering("{}", cards) as url:
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            assert "the card at " in ask(near, said("hello"))["content"]


def test_unreachable_agent_is_an_error_for_the_model(tmp_path: Path) -> None:
    agent, _ = driver(remote_agent("http://127.0.0.1:9", name="kube"))
    with running(agent, configured(tmp_path)) as near:
        reported = ask(near, said("hello"))["content"]
    assert "the connection to the agent at 'http://127.0.0.1:9' failed: " in reported


@contextmanager
def answering(sent: str | None, cards: dict[str, Any] | None = None) -> Iterator[str]:
    """The address of an agent whose answer to a message is `sent`, or None. Without `cards` (path:
    card) it has the contract's card."""
    known = {"/.well-known/agent.json": {"name": "far"}} if cards is None else cards

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            card = known.get(self.path)
            self.answer(404 if card is None else 200, json.dumps(card).encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if sent is None:
                self.close_connection = True
            else:
                self.answer(200, sent.encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("official", [False, True], ids=["simple", "a2a"])
def test_message_that_got_no_answer_may_have_taken_effect(tmp_path: Path, official: bool) -> None:
    cards: dict[str, Any] = {} if official else {"/.well-known/agent.json": {"name": "far"}}
    with answering(None, cards) as url:
        if official:
            spoken = {"url": f"{url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            cards["/.well-known/agent-card.json"] = {"name": "far", "supportedInterfaces": [spoken]}
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            reported = ask(near, said("hello"))["content"]
    assert "may have taken effect" in reported


@contextmanager
def answering_without_end(piece: bytes, *head: str) -> Iterator[tuple[str, threading.Event]]:
    """The address of an agent that answers everything with an endless series of `piece`, and an
    event that says whether the client has closed."""
    gone = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.wfile.write("\r\n".join(["HTTP/1.0 200 OK", *head, "", ""]).encode())
            try:
                while True:
                    self.wfile.write(piece)
                    time.sleep(0.001)
            except OSError:
                gone.set()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", gone
        finally:
            server.shutdown()


SPACES = b" " * 10**6


def test_endless_answer_is_not_read_to_its_end(tmp_path: Path) -> None:
    with answering_without_end(SPACES) as (url, gone):
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            reported = ask(near, said("hello"))["content"]
        assert gone.wait(PATIENCE)
    assert "the agent's answer is larger than 16777216 bytes" in reported


def test_packed_answer_is_unpacked_no_further_than_what_may_be_read(tmp_path: Path) -> None:
    packed = gzip.compress(SPACES * 200)
    with answering_without_end(packed, "content-encoding: gzip") as (url, _):
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            tracemalloc.start()
            try:
                reported = ask(near, said("hello"))["content"]
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert "the agent's answer is larger than 16777216 bytes" in reported
    assert peak < 5 * 2**24


@pytest.mark.parametrize(
    ("packing", "read"),
    [
        ("gzip", "the agent's answer is no gzip"),
        ("gzip, gzip", "the agent's answer is packed as 'gzip, gzip', which nobody asked for"),
    ],
)
def test_answer_that_cannot_be_unpacked_is_no_answer(
    tmp_path: Path, packing: str, read: str
) -> None:
    with answering_without_end(b"nonsense", f"content-encoding: {packing}") as (url, _):
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            assert read in ask(near, said("hello"))["content"]


def test_answer_that_comes_byte_by_byte_is_not_waited_for_longer_than_the_timeout(
    tmp_path: Path,
) -> None:
    with answering_without_end(b" ") as (url, gone):
        agent, _ = driver(remote_agent(url, name="kube", timeout=0.5))
        with running(agent, configured(tmp_path)) as near:
            reported = ask(near, said("hello"))["content"]
        assert gone.wait(PATIENCE)
    assert "no whole answer within 0.5 seconds" in reported


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("<html>Sign in</html>", "Error: the remote agent's answer is no task: the body is wrong"),
        ("[1]", "Error: the remote agent's answer is no task: the body is wrong"),
        (
            '{"status": "completed", "artifacts": [1]}',
            "Error: the remote agent's answer is no task: artifacts.0 is wrong",
        ),
        (
            '{"status": "completed", "text": "paid", "metadata": null, "artifacts": null}',
            "paid",
        ),
        (
            '{"task_id": "7", "status": "running", "text": "Looking."}',
            "Looking.\nThe task '7' is running.",
        ),
    ],
)
def test_what_is_no_task_is_no_answer(tmp_path: Path, sent: str, read: str) -> None:
    with answering(sent) as url:
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            assert ask(near, said("hello"))["content"] == f"It says: {read}"


def test_agent_that_comes_back_with_another_protocol_is_understood(tmp_path: Path) -> None:
    cards: dict[str, Any] = {}
    with answering('{"status": "completed", "text": "paid"}', cards) as url:
        interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        official = {"name": "far", "supportedInterfaces": [interface]}
        cards["/.well-known/agent-card.json"] = official
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            assert "Error" in ask(near, said("hello"))["content"]
            cards.clear()
            cards["/.well-known/agent.json"] = {"name": "far"}
            assert ask(near, said("hello"))["content"] == "It says: paid"


def test_conversation_over_there_goes_on_with_ours(
    tmp_path: Path, cluster: Cluster, adapter: str
) -> None:
    with running(cluster.agent, configured(tmp_path / "far", adapter=adapter)) as far:
        agent, _ = driver(remote_agent(far.url, name="kube"))
        with running(agent, configured(tmp_path / "near")) as near:
            first = ask(near, said("hello"))
            ask(near, said("hello"), {"role": "assistant", **first}, said("and more"))
            noted = [getattr(turn.blocks[0], "text", "") for turn in cluster.model.asks[-1].turns]
            assert noted == ["hello", "You said: hello", "and more"]
            ask(near, said("elsewhere"))
            assert len(cluster.model.asks[-1].turns) == 1


AT_WORK: dict[str, tuple[Any, str, Any]] = {
    "simple": (
        {"task_id": "t", "status": "running"},
        "/a2a/tasks/t",
        {"task_id": "t", "status": "completed", "text": "paid"},
    ),
    "a2a": (
        {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}},
        "/tasks/t",
        {
            "id": "t",
            "contextId": "c",
            "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "name": "x", "parts": [{"text": "paid"}]}],
        },
    ),
}


def test_task_that_comes_back_at_work_is_looked_at_until_it_ends(
    tmp_path: Path, adapter: str
) -> None:
    opened, path, done = AT_WORK[adapter]
    cards: dict[str, Any] = {path: done}
    with answering(json.dumps(opened), cards) as url:
        if adapter == "simple":
            cards["/.well-known/agent.json"] = {"name": "far"}
        else:
            spoken = {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
            cards["/.well-known/agent-card.json"] = {"name": "far", "supportedInterfaces": [spoken]}
        agent, _ = driver(remote_agent(url, name="kube"))
        with running(agent, configured(tmp_path)) as near:
            assert ask(near, said("pay"))["content"] == "It says: paid"


def test_task_that_is_at_work_for_too_long_is_told_as_it_is(tmp_path: Path) -> None:
    opened, path, _ = AT_WORK["simple"]
    cards = {path: opened, "/.well-known/agent.json": {"name": "far"}}
    with answering(json.dumps(opened), cards) as url:
        agent, _ = driver(remote_agent(url, name="kube", timeout=0.3))
        with running(agent, configured(tmp_path)) as near:
            assert "The task 't' is running." in ask(near, said("pay"))["content"]


@pytest.mark.parametrize("name", ["localhost", "0.0.0.0", "[::1]"])
def test_card_of_this_machine_may_name_it_otherwise(tmp_path: Path, name: str) -> None:
    cards: dict[str, Any] = {}
    with answering('{"message": {"messageId": "m", "parts": [{"text": "hi"}]}}', cards) as url:
        spoken = {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        cards["/.well-known/agent-card.json"] = {"name": "far", "supportedInterfaces": [spoken]}
        assert _card_of(cards["/.well-known/agent-card.json"], url.replace("127.0.0.1", name))
        agent, _ = driver(remote_agent(url.replace("127.0.0.1", "localhost"), name="kube"))
        with running(agent, configured(tmp_path)) as near:
            assert ask(near, said("hello"))["content"] == "It says: hi"


def test_header_that_cannot_be_sent_is_refused_without_its_value(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="header 'authorization' has a line end") as refused:
        remote_agent("http://127.0.0.1:9", headers={"authorization": "Bearer token-x\n"})
    assert "token-x" not in str(refused.value)
    headers = {"authorization": "Bearer token-x\n"}
    agent, _ = driver(remote_agent("http://127.0.0.1:9", name="kube", headers=lambda: headers))
    with running(agent, configured(tmp_path)) as near:
        answer = ask(near, said("hello"))["content"]
    assert "header 'authorization' has a line end" in answer
    assert "token-x" not in answer


@pytest.mark.parametrize("address", ["ftp://me:pass-word-1@host", "me:pass-word-1@host"])
def test_a_wrong_address_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(ValueError, match="begins with http") as caught:
        remote_agent(address)
    assert "pass-word" not in str(caught.value)


@pytest.mark.parametrize("more", ["?token=pass-word-1", "/kube?token=pass-word-1", "#pass-word-1"])
def test_an_address_with_more_than_a_path_is_refused_without_its_key(more: str) -> None:
    with pytest.raises(ValueError, match="ends with its path") as caught:
        remote_agent(f"https://billing.example{more}")
    assert "pass-word" not in str(caught.value)


def test_only_addresses_and_times_are_taken() -> None:
    with pytest.raises(ValueError, match="begins with http"):
        remote_agent("billing.example")
    with pytest.raises(ValueError, match="timeout must be above 0 seconds, not -1"):
        remote_agent("https://billing.example", timeout=-1)


def test_tools_are_named_and_the_deciding_one_is_gated() -> None:
    tools = remote_agent("https://billing.example/", name="billing", description="Sends bills.")
    assert [(tool.name, tool.requires_approval) for tool in tools] == [
        ("billing", False),
        ("billing_decide", True),
    ]
    assert "Sends bills." in tools[0].description
    assert len(tools) == 2
