"""The scenarios: turns under load, each against the servers that can do the same work."""

from __future__ import annotations

import base64
import json
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

from benchmarks.load import Client, Socket, Stream, Whole, frame, post

NUMBER = b"NNNNNN"
"""The placeholder for the number of the turn in a numbered target's body."""
TOGETHER = 64
"""Conversations that are under way at a time."""
SESSIONS = 20_000
"""Most turns of a numbered target: each needs a session made before."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server of a scenario: its program, its arguments, the requested path."""

    script: str
    arguments: tuple[str, ...] = ()
    path: str = "/api/chat"
    body: bytes | None = None
    """The request if it differs from the scenario's."""
    content_type: str = "application/json"
    numbered: bool = False
    """Whether each turn has a number of its own in its body."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Turns of one kind on a number of connections."""

    name: str
    kind: type[Client]
    body: bytes
    connections: int
    targets: dict[str, Target]
    seconds: float = 0.75
    turns: Sequence[bytes] = ()
    """The bodies of a conversation; many conversations are under way at a time, each with a number
    of its own in place of `NUMBER`, so that nobody sends the same body twice."""
    repeat: int = 1
    """The factor for the number of rounds: scenarios that use little of a core vary by a third."""
    expects: bytes = b"The pods of the namespace are all running."
    """A text in the reply of every server."""

    def request(self, target: Target) -> bytes:
        """The bytes of one turn."""
        body = target.body or self.body
        if self.kind is Socket:
            return frame(body)
        return post(target.path, body, target.content_type)

    def requests(self, target: Target) -> Iterator[bytes]:
        """The bytes of each turn, one after the other."""
        if self.turns:
            return conversations(
                [post(target.path, body, target.content_type) for body in self.turns]
            )
        request = self.request(target)
        if not target.numbered:
            return repeat(request)
        return (request.replace(NUMBER, b"%06d" % n) for n in range(SESSIONS))


def conversations(turns: Sequence[bytes]) -> Iterator[bytes]:
    """The requests of many conversations, in turn."""
    under_way = deque((n, n * len(turns) // TOGETHER) for n in range(TOGETHER))
    for fresh in count(TOGETHER):
        number, at = under_way.popleft()
        yield turns[at].replace(NUMBER, b"%06d" % number, 1)
        under_way.append((number, at + 1) if at + 1 < len(turns) else (fresh, 0))


WORDS = (
    "the pods of this namespace restart when a probe fails so look at the events and then at the "
    "logs of the container that ended last before you change a limit or delete anything Kubernetes"
).split()


def conversation(messages: int, length: int = 40) -> bytes:
    """A request of that many messages, the last a user's, each of about `length` letters."""
    chosen = random.Random(1)
    said = [
        {
            "role": "user" if (messages - n) % 2 else "assistant",
            "content": " ".join(chosen.choices(WORDS, k=max(1, length // 6))),
            "timestamp": "2026-01-05T10:00:00Z",
        }
        for n in range(messages)
    ]
    return json.dumps({"messages": said}).encode()


KUBECONFIG = """apiVersion: v1
kind: Config
current-context: blue
clusters:
- name: blue
  cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Q0VSVElGSUNBVEU=}
contexts:
- name: blue
  context: {cluster: blue, user: ann, namespace: shop}
users:
- name: ann
  user: {token: eyJhbGciOiJSUzI1NiJ9.c3RhbmQtaW4.c2lnbmF0dXJl}
"""


def asked(text: str) -> dict[str, Any]:
    """A user's message as a client sends it, with what its platform says of the user."""
    return {
        "role": "user",
        "content": text,
        "platform_context": {
            "user_id": "u-4711",
            "tenant_name": "blue",
            "k8s_namespace": "shop",
            "kubeconfig": base64.b64encode(KUBECONFIG.encode()).decode(),
        },
        "timestamp": "2026-01-05T10:00:00Z",
        "user": {"name": "Ann", "id": "u-4711"},
    }


def outcomes(messages: int, size: int, id_: str = "call-{}") -> bytes:
    """A request of about `size` bytes whose replies have the outcomes of the calls they made; `id_`
    is the form of the calls' ids."""
    said = _with_outcomes(messages, size, id_)
    return json.dumps({"messages": [*said, asked("And now?")]}).encode()


def growing(messages: int, size: int, id_: str = "call-{}") -> list[bytes]:
    """The bodies of such a conversation: with each message, the client sends all that were before
    it, and the replies that it got."""
    said = _with_outcomes(messages, size, id_)
    return [
        json.dumps({"messages": [*said[:n], asked(said[n]["content"])]}).encode()
        for n in range(0, len(said), 2)
    ]


def _with_outcomes(messages: int, size: int, id_: str) -> list[dict[str, Any]]:
    chosen = random.Random(2)
    said: list[dict[str, Any]] = []
    for n in range(messages - 1):
        text = " ".join(chosen.choices(WORDS, k=size // messages // 14))
        if n % 2:
            output = " ".join(chosen.choices(WORDS, k=size // messages // 5))
            said.append(_replied(id_.format(n), text, output))
        else:
            said.append({"role": "user", "content": text, "user": {"name": "Ann", "id": "u-4711"}})
    said[0]["content"] = f"{NUMBER.decode()} {said[0]['content']}"
    return said


def _replied(id_: str, text: str, output: str) -> dict[str, Any]:
    lists: dict[str, Any] = {
        name: [] for name in ("cmds", "executed_cmds", "tool_calls", "url_configs")
    }
    call = {
        "id": id_,
        "name": "lookup",
        "input": {"name": "web"},
        "output": output,
    }
    return {
        "role": "assistant",
        "content": text,
        "data": lists | {"executed_tool_calls": [call]},
        "meta_data": {"request_context": {"source": "help-desk"}},
        "timestamp": "2026-01-05T10:00:00Z",
        "user": None,
        "agent": {"name": "assistant", "id": "a-1"},
    }


SMALL = json.dumps({"messages": [{"role": "user", "content": "How are the pods?"}]}).encode()
HISTORY = conversation(200, 272)
"""62 KB: 200 messages of a role, a text and a time."""
ASKED = json.dumps({"messages": [asked("How are the pods?")]}).encode()
"""One message with a platform context."""
OUTCOMES = outcomes(40, 62_000)
"""62 KB: 40 messages, half of them replies with the outcome of a call."""
KNOWN = outcomes(40, 62_000, "{:032x}")
"""The same with ids of the form that Sayso gives, so that it has to look for them in its ledger."""


def targets(
    agent: str,
    path: str = "/api/chat",
    others: str | None = None,
    *,
    v1: str | None = None,
) -> dict[str, Target]:
    """Sayso with that agent, plain FastAPI and the limit, on the same path or on `others`."""
    found = {"sayso": Target("sayso_server", (agent,), path)}
    if v1:
        found["sayso v1"] = Target("sayso_server", (agent,), v1)
    found["plain"] = Target("plain_server", (), others or path)
    found["limit"] = Target("limit_server", (), others or path)
    return found


STREAM = "/api/chat-stream"
V1, V1_STREAM = "/api/sendMessage", "/api/sendMessageStream"
LAST = b"word 99 "
READS = targets("reads", others="/reads")
"""An agent that reads each message, like one whose model answers."""

AGENT = targets("answers", others="/answers")
"""An Agent whose stand-in model gets the whole history and answers at once."""


def _conversations(name: str, bodies: Sequence[bytes], servers: dict[str, Target]) -> Scenario:
    return Scenario(name, Whole, bodies[-1], 32, servers, turns=bodies)


AS_SENT = [
    Scenario("small turn as sent, 1 connection", Whole, ASKED, 1, targets("reply")),
    Scenario("small turn as sent, 32 connections", Whole, ASKED, 32, targets("reply")),
    Scenario("small turn as sent, Agent, 1 connection", Whole, ASKED, 1, AGENT),
    Scenario("small turn as sent, Agent, 32 connections", Whole, ASKED, 32, AGENT),
    _conversations("62 KB with outcomes, 32 connections", [OUTCOMES], READS),
    _conversations("62 KB with outcomes, Agent, 32 connections", [OUTCOMES], AGENT),
    _conversations("62 KB with outcomes to look for, Agent, 32 connections", [KNOWN], AGENT),
    _conversations("growing to 62 KB, Agent, 32 connections", growing(40, 62_000), AGENT),
    _conversations(
        "growing to 62 KB, to look for, Agent, 32 connections",
        growing(40, 62_000, "{:032x}"),
        AGENT,
    ),
    Scenario(
        "100 deltas as sent, 1 connection",
        Stream,
        ASKED,
        1,
        targets("deltas", STREAM),
        expects=LAST,
    ),
    Scenario(
        "100 deltas as sent, 32 connections",
        Stream,
        ASKED,
        32,
        targets("deltas", STREAM),
        expects=LAST,
    ),
    Scenario(
        "tool turn as sent, 32 connections",
        Whole,
        ASKED,
        32,
        targets("tools", "/api/chat", "/tools"),
    ),
]
"""Bodies as real clients send them."""


def own(body: bytes) -> list[Scenario]:
    """Turns of a body that somebody brings, as a client of theirs sends it."""
    return [
        Scenario("own body, 1 connection", Whole, body, 1, READS),
        Scenario("own body, 32 connections", Whole, body, 32, READS),
        Scenario("own body, Agent, 32 connections", Whole, body, 32, AGENT),
    ]


SCENARIOS = [
    *AS_SENT,
    Scenario("small turn, 1 connection", Whole, SMALL, 1, targets("reply")),
    Scenario(
        "small turn, 32 connections",
        Whole,
        SMALL,
        32,
        {**targets("reply", v1=V1), "sayso sync": Target("sayso_server", ("plain",))},
    ),
    Scenario("small turn, 256 connections", Whole, SMALL, 256, targets("reply")),
    Scenario("62 KB history, 32 connections", Whole, HISTORY, 32, READS),
    Scenario("100 deltas, 1 connection", Stream, SMALL, 1, targets("deltas", STREAM), expects=LAST),
    Scenario(
        "100 deltas, 32 connections",
        Stream,
        SMALL,
        32,
        targets("deltas", STREAM, v1=V1_STREAM),
        expects=LAST,
    ),
    Scenario(
        "96 streams paced at 10 ms an event",
        Stream,
        SMALL,
        96,
        targets("paced", STREAM, "/paced"),
        seconds=1.2,
        repeat=3,
        expects=LAST,
    ),
    Scenario(
        "WebSocket turns of 100 deltas, 32 connections",
        Socket,
        SMALL,
        32,
        targets("deltas", "/api/chat-ws"),
        expects=LAST,
    ),
    Scenario(
        "tool turn, 32 connections",
        Whole,
        SMALL,
        32,
        targets("tools", "/api/chat", "/tools"),
    ),
]
