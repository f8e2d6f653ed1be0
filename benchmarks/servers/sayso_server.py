"""Sayso with a stand-in agent: `sayso_server.py PORT AGENT [OPTION=VALUE]...`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from sayso import Agent, serve, tool
from sayso.models import Ask, Call, ModelEvent, Reply, Text, TextDelta, Turn

REPLY = "The pods of the namespace are all running."
DELTAS = [f"word {n} " for n in range(100)]


async def reply(messages: Any, context: Any) -> str:
    """A whole text."""
    return REPLY


async def reads(messages: Any, context: Any) -> str:
    """The same, after reading each message."""
    return REPLY if sum(len(m.content) for m in messages if m.role == "user") else ""


def plain(messages: Any, context: Any) -> str:
    """The same, as a plain function: on a thread of its own."""
    return REPLY


async def deltas(messages: Any, context: Any) -> AsyncIterator[str]:
    """A text in pieces, all at once."""
    for piece in DELTAS:
        yield piece


async def paced(messages: Any, context: Any) -> AsyncIterator[str]:
    """A text in pieces, one each ten milliseconds."""
    for piece in DELTAS:
        await asyncio.sleep(0.01)
        yield piece


@tool
async def lookup(name: str) -> str:
    """Look a name up."""
    return f"{name} is fine"


@tool(requires_approval=True)
async def delete(name: str) -> str:
    """Delete something."""
    return f"{name} is gone"


class ToolModel:
    """Calls its tool once, then reports the result."""

    provider = "stand-in"
    name = "tools"

    def __init__(self, calls: str = "lookup") -> None:
        self.calls = calls

    async def stream(self, ask: Ask) -> AsyncIterator[ModelEvent]:
        last = ask.turns[-1].blocks[-1]
        if isinstance(last, Text):
            call = Call("call-1", self.calls, {"name": "web"})
            yield Reply(Turn("assistant", [call]), "tool_use")
            return
        yield TextDelta(REPLY)
        yield Reply(Turn("assistant", [Text(REPLY)]), "end_turn")


class AnswerModel:
    """Reads the texts of the whole history, and answers."""

    provider = "stand-in"
    name = "answers"

    async def stream(self, ask: Ask) -> AsyncIterator[ModelEvent]:
        texts = (b for turn in ask.turns for b in turn.blocks if isinstance(b, Text))
        said = REPLY if sum(len(block.text) for block in texts) else ""
        yield TextDelta(said)
        yield Reply(Turn("assistant", [Text(said)]), "end_turn")


def block(messages: Any, context: Any) -> str:
    """Block a thread for two seconds."""
    time.sleep(2)
    return REPLY


async def block_async(messages: Any, context: Any) -> str:
    """Block an event loop for two seconds."""
    time.sleep(2)  # noqa: ASYNC251
    return REPLY


@tool
async def lookup_slowly(name: str) -> str:
    """Look a name up, blocking."""
    time.sleep(2)  # noqa: ASYNC251
    return f"{name} is fine"


async def intercept_slowly(request: Any, context: Any) -> None:
    """Block in an interceptor."""
    time.sleep(2)  # noqa: ASYNC251


def many_tools(count: int) -> list[Any]:
    """This number of tools beside the one that is called."""

    def other(name: str) -> str:
        """Do something else."""
        return name

    return [lookup, *(tool(other, name=f"other_{n}") for n in range(count - 1))]


async def look(request: Any, context: Any) -> None:
    """A request interceptor that lets everything pass."""


async def keep(response: Any, context: Any) -> None:
    """A response interceptor that leaves the text unchanged."""


def route(messages: Any) -> dict[str, Any]:
    """A channel router that lets the agent answer."""
    return {"should_respond": True, "reasoning": "asked"}


def agent(kind: str, count: int, responses: bool) -> object:
    """The agent of a scenario."""
    match kind:
        case "answers":
            return Agent(model=AnswerModel())
        case "tools":
            return Agent(model=ToolModel(), tools=many_tools(max(1, count)))
        case "approval":
            return Agent(model=ToolModel("delete"), tools=[delete])
        case "intercepted":
            return Agent(
                model=ToolModel(),
                tools=[lookup],
                request_interceptors=[look] * count,
                response_interceptors=[keep] * (count if responses else 0),
            )
        case "block_tool":
            return Agent(model=ToolModel("lookup_slowly"), tools=[lookup_slowly])
        case "block_interceptor":
            return Agent(model=ToolModel(), tools=[lookup], request_interceptors=intercept_slowly)
        case _:
            return globals()[kind]


if __name__ == "__main__":
    # Sayso runs on FastAPI if an SDK of OpenTelemetry is installed, as for the tests, because
    # FastAPI traces by itself. Most installations have none.
    sys.modules["opentelemetry.sdk"] = None  # type: ignore[assignment]
    given = {key: json.loads(value) for key, _, value in (a.partition("=") for a in sys.argv[3:])}
    served = agent(sys.argv[2], given.pop("count", 0), given.pop("responses", False))
    if ledger := given.pop("ledger", None):
        os.environ["SAYSO_APPROVALS__LEDGER"] = ledger
    if given.pop("router", False):
        given["channel_router"] = route
    serve(
        served,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        state_dir=".",
        **{"log_level": "warning", **given},
    )
