"""An agent for the A2A test kit: the beginning of the message's id determines its behaviour.

python examples/a2a_fixture/agent.py 9999
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

from sayso import AgentMessage, Message, RequestContext, serve
from sayso_a2a import Artifact, File, answer_directly, incoming, reply, send_artifact, working

Act = Callable[[RequestContext], Awaitable[AgentMessage]]

FILE = File("output.txt", "text/plain", data=b"tck")
FILE_URL = File("output.txt", "text/plain", url="https://example.com/output.txt")


def completes(text: str = "", *artifacts: Artifact) -> Act:
    """Complete, with a message or artifacts."""

    async def act(context: RequestContext) -> AgentMessage:
        return reply(text, artifacts=artifacts)

    return act


def streams(*chunks: str | File) -> Act:
    """Work, send one artifact in this number of chunks, and complete."""

    async def act(context: RequestContext) -> AgentMessage:
        working(context)
        for number, chunk in enumerate(chunks, 1):
            artifact = Artifact(chunk, id="output")
            send_artifact(context, artifact, append=number > 1, last=number == len(chunks))
        return reply()

    return act


async def answers_directly(context: RequestContext) -> AgentMessage:
    """Answer with one message, without a task."""
    answer_directly(context)
    return reply("Direct message response")


async def asks(context: RequestContext) -> AgentMessage:
    """Ask for input."""
    return reply("What else?", state="input-required")


async def rejects(context: RequestContext) -> AgentMessage:
    """Reject the task."""
    return reply("Rejected by the agent", state="rejected")


async def asks_for_authorization(context: RequestContext) -> AgentMessage:
    """Wait for an authorization."""
    return reply("Who allows it?", state="auth-required")


def works(seconds: float, text: str = "") -> Act:
    """Work for this time, and complete."""

    async def act(context: RequestContext) -> AgentMessage:
        working(context)
        await asyncio.sleep(seconds)
        return reply(text)

    return act


ACTS: dict[str, Act] = {
    "tck-complete-task": completes("Hello from TCK"),
    "tck-artifact-file-url": completes("", Artifact(FILE_URL)),
    "tck-artifact-file": completes("", Artifact(FILE)),
    "tck-artifact-text": completes("", Artifact("Generated text content")),
    "tck-artifact-data": completes("", Artifact({"key": "value", "count": 42})),
    "tck-message-response": answers_directly,
    "tck-delayed-complete": works(2, "Done after delay"),
    "tck-input-required": asks,
    "tck-auth-required": asks_for_authorization,
    "tck-reject-task": rejects,
    "tck-stream-001": streams("Stream hello from TCK"),
    "tck-stream-002": answers_directly,
    "tck-stream-003": streams("Stream task lifecycle"),
    "tck-stream-ordering-001": streams("Ordered output"),
    "tck-stream-artifact-text": streams("Streamed text content"),
    "tck-stream-artifact-file": streams(FILE),
    "tck-stream-artifact-chunked": streams("chunk-1 ", "chunk-2"),
    "test-resubscribe-message-id": works(4),
}
"""The meaning of each beginning of a message id; the first match counts."""


async def agent(messages: Sequence[Message], context: RequestContext) -> AgentMessage:
    """Do what the A2A test kit asks for."""
    sent = incoming(context)
    message_id = sent.message_id if sent is not None else ""
    for prefix, act in ACTS.items():
        if message_id.startswith(prefix):
            return await act(context)
    return reply(f"You said: {messages[-1].content}")


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9999
    serve(agent, host="127.0.0.1", port=port, a2a=True, a2a_adapter="a2a")
