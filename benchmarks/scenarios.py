"""What is measured: turns under load, each against the servers that can do the same work."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

from benchmarks.load import Client, Socket, Stream, Whole, frame, post


@dataclass(frozen=True, slots=True)
class Target:
    """A server of a scenario: its program, its arguments, the path that is asked."""

    script: str
    arguments: tuple[str, ...] = ()
    path: str = "/api/chat"
    body: bytes | None = None
    """The request where it differs from the scenario's."""
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Turns of one kind on a number of connections."""

    name: str
    kind: type[Client]
    body: bytes
    connections: int
    targets: dict[str, Target]
    seconds: float = 2.0
    least: dict[str, float] = field(default_factory=dict)
    """The ratio to reach: the other server's CPU time by Assent's."""

    def request(self, target: Target) -> bytes:
        """The bytes of one turn."""
        body = target.body or self.body
        if self.kind is Socket:
            return frame(body)
        return post(target.path, body, target.content_type)


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


SMALL = json.dumps({"messages": [{"role": "user", "content": "How are the pods?"}]}).encode()
HISTORY = conversation(200, 245)
"""About 62 KB."""


def targets(
    agent: str,
    path: str = "/api/chat",
    others: str | None = None,
    *,
    v1: str | None = None,
) -> dict[str, Target]:
    """Assent with that agent, plain FastAPI and the limit, on the same path or on `others`."""
    found = {"assent": Target("assent_server", (agent,), path)}
    if v1:
        found["assent v1"] = Target("assent_server", (agent,), v1)
    found["plain"] = Target("plain_server", (), others or path)
    found["limit"] = Target("limit_server", (), others or path)
    return found


STREAM = "/api/chat-stream"
V1, V1_STREAM = "/api/sendMessage", "/api/sendMessageStream"

SCENARIOS = [
    Scenario("small turn, 1 connection", Whole, SMALL, 1, targets("reply"), least={"plain": 1.25}),
    Scenario(
        "small turn, 32 connections",
        Whole,
        SMALL,
        32,
        {**targets("reply", v1=V1), "assent sync": Target("assent_server", ("plain",))},
        least={"plain": 2.0, "langserve": 8, "agno": 25, "pydantic-ai": 25},
    ),
    Scenario(
        "small turn, 256 connections", Whole, SMALL, 256, targets("reply"), least={"plain": 2.0}
    ),
    Scenario(
        "62 KB history, 32 connections", Whole, HISTORY, 32, targets("reply"), least={"plain": 2.4}
    ),
    Scenario(
        "100 deltas, 1 connection",
        Stream,
        SMALL,
        1,
        targets("deltas", STREAM),
        least={"plain": 6.0},
    ),
    Scenario(
        "100 deltas, 32 connections",
        Stream,
        SMALL,
        32,
        targets("deltas", STREAM, v1=V1_STREAM),
        least={"plain": 9.0, "langserve": 50, "agno": 50, "pydantic-ai": 50},
    ),
    Scenario(
        "96 streams paced at 10 ms an event",
        Stream,
        SMALL,
        96,
        targets("paced", STREAM, "/paced"),
        seconds=4.0,
        least={"limit": 0.8},
    ),
    Scenario(
        "WebSocket turns of 100 deltas, 32 connections",
        Socket,
        SMALL,
        32,
        targets("deltas", "/api/chat-ws"),
        least={"plain": 3.0},
    ),
    Scenario(
        "tool turn, 32 connections",
        Whole,
        SMALL,
        32,
        targets("tools", "/api/chat", "/tools"),
        least={"plain": 2.0, "pydantic-ai": 30},
    ),
]
