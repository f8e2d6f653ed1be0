"""The A2A request as an agent sees it, and the functions by which an agent shapes its task.

    from sayso_a2a import Artifact, incoming, reply, send_artifact, working

    def agent(messages, context):
        sent = incoming(context)              # None over any other protocol
        working(context, "Looking")
        send_artifact(context, Artifact("first page", name="report"))
        return reply("Done", state="completed")

All but `incoming` may be called over every protocol; other protocols show only the text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sayso import AgentMessage, Data, RequestContext
from sayso_a2a.artifacts import Artifact, Json, text_of_parts

logger = logging.getLogger("sayso.a2a")
PROTOCOL = "a2a"
KEY = "a2a"
"""The key for A2A's own content in request fields, status lines and replies."""

State = Literal["completed", "failed", "rejected", "input-required", "auth-required"]


@dataclass(frozen=True, slots=True)
class Incoming:
    """The A2A message that a turn answers; parts are objects in the form of A2A 1.0.

    `held` is true if a response interceptor is installed: nothing is sent before it saw the reply.
    """

    message_id: str
    task_id: str
    context_id: str
    parts: Sequence[Json] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extensions: Sequence[str] = ()
    held: bool = False

    @property
    def text(self) -> str:
        """The parts as text."""
        return text_of_parts(self.parts)

    def fields(self) -> dict[str, Any]:
        """The message as the request fields pass it to the agent."""
        return {KEY: {name: getattr(self, name) for name in self.__slots__}}


def incoming(context: RequestContext) -> Incoming | None:
    """The A2A message behind this request; None if it came over another protocol."""
    fields = context.request_fields.get(KEY)
    # A V2 caller could send a field of this name.
    if context.protocol != PROTOCOL or not isinstance(fields, Mapping):
        return None
    return Incoming(**fields)


def working(context: RequestContext, text: str = "") -> None:
    """Show the task as working, at once, with a status message if there is a text."""
    context.update(text, {KEY: {"state": "working"}})


def send_artifact(
    context: RequestContext, artifact: Artifact, *, append: bool = False, last: bool = True
) -> None:
    """Send an artifact, or a chunk of one, at once.

    `append` adds its parts to the artifact of the same id that was sent before; `last` says that no
    chunk follows. With a response interceptor installed, nothing may be sent before the interceptor
    saw the reply: such artifacts are dropped, and the log says so. Give them to `reply` instead,
    where interceptors find them in the reply's data.
    """
    if (sent := incoming(context)) is not None and sent.held:
        logger.warning(
            "the artifact %r of task %r stays out: a response interceptor is installed, and would "
            "not see it; give it to reply()",
            artifact.id,
            sent.task_id,
        )
    content = {"artifact": artifact.json(), "append": append, "last": last}
    context.update("", {KEY: content})


def answer_directly(context: RequestContext) -> None:
    """Say that the reply is one message without a task; call it before sending anything else.

    Only the official protocol has such replies, and only if the caller did not ask for an answer
    before the agent has ended.
    """
    context.update("", {KEY: {"direct": True}})


def reply(
    text: str = "", *, artifacts: Sequence[Artifact] = (), state: State = "completed"
) -> AgentMessage:
    """The reply that ends the turn and leaves the task in `state`, with `artifacts`.

    A reply that proposes calls leaves its task `input-required`, whatever `state` says.
    """
    own = {"state": state, "artifacts": [artifact.json() for artifact in artifacts]}
    return AgentMessage(content=text, data=Data.model_validate({KEY: own}))
