"""One request, in the form that every step of its turn reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sayso.context import Caller, RequestContext, Session
from sayso.conversation import approvals
from sayso.decisions.deed import requester
from sayso.decisions.settling import Edits
from sayso.engine import Engine, Slot
from sayso.ledger.choices import Choice, Conversation, Decided, Requester
from sayso.trees import copied
from sayso.turns.output import Output
from sayso.turns.plan import Asking
from sayso.wire.chat import know_secrets
from sayso.wire.events import AgentEvent, ConversationStarted, MessageAdded
from sayso.wire.masking import Secrets
from sayso.wire.messages import (
    ChatRequest,
    Message,
    PlatformContext,
    history_of,
    platform_of,
    said_in,
)


class Request(NamedTuple):
    """A request, its caller, and the values that were read from it; a step that changes one makes a
    new request.

    `received` is the body as the client sent it, `seen` the body after the request interceptors.
    `session` and `context` belong to user code, which changes them in place.
    """

    engine: Engine
    received: ChatRequest
    seen: ChatRequest
    caller: Caller
    slot: Slot
    until: float
    """The end of its time limit (`time.monotonic`)."""
    session: Session
    context: RequestContext
    secrets: Secrets
    tenant: str | None
    user: str | None
    said: Sequence[tuple[str, str]]
    """Role and content of each received message; empty if no code can change a message."""
    blank: bool
    """Whether the newest message had no words when it was received."""
    involved: bool
    """Whether a message shows or decides a call."""
    choices: Sequence[Choice] = ()
    shown: Sequence[str] = ()
    """The ids of the calls in the messages."""
    references: Sequence[str] = ()
    """The digest of each prefix of `said`, if one is needed."""
    conversation: Conversation = Conversation()
    edits: Edits | None = None
    """The results of validating the inputs that an approver changed."""

    @property
    def who(self) -> Requester:
        """The requester in the form that the ledger uses."""
        return requester(self.caller, self.tenant, self.user)

    @property
    def empty(self) -> bool:
        """Whether the last message has no words, even after the request interceptors."""
        return self.blank and not self.seen.messages[-1].content.strip()

    @property
    def left(self) -> float:
        """Seconds until the turn's limit."""
        return max(0.0, self.until - time.monotonic())

    def asking(self, found: Decided) -> Asking:
        """The request in the form that the plan reads, with the rows that the ledger found."""
        return Asking(
            self.received.messages,
            self.shown,
            found,
            decides=self.context.has_decision,
            blank=self.blank,
            empty=self.empty,
            to_callable=self.engine.agent.function is not None,
        )

    def digests(self) -> Sequence[str]:
        """The digest of each prefix of the received messages, from the shortest to the longest."""
        return self.references or approvals.references(self.said or said_in(self.received.messages))

    async def fire(self, event: AgentEvent) -> None:
        """Pass the event to the event handlers, if there are any."""
        if self.engine.events_on:
            await self.engine.fire(event, self.secrets)

    def set_session(self, given: Mapping[str, Any] | None) -> None:
        """Set the session that a reply of user code states; None changes nothing."""
        if given is not None:
            self.session.clear()
            self.session.update(given)


async def accepted(request: Request, out: Output) -> None:
    """Pass the message to the handlers, once, when nothing can refuse it any more."""
    if request.engine.events_on and not out.announced:
        await started(request, out)
        out.announced = True
        # The interceptors have changed this copy already, so no log has what they removed.
        await request.fire(MessageAdded(request.seen.messages[-1].model_copy(deep=True)))


async def started(request: Request, out: Output) -> None:
    """Pass the first message of a conversation to the handlers, once, unless it is refused."""
    if request.engine.events_on and not out.announced and len(request.received.messages) == 1:
        await request.fire(ConversationStarted())


async def platform_in(
    engine: Engine, received: ChatRequest, more: Sequence[Message]
) -> PlatformContext:
    """The platform context, whose secrets are then known to masking."""
    platform = platform_of(more)
    if history_of(received) is not None:
        newest = received.messages[-1].platform_context
        platform = platform if platform is newest else platform.model_copy(deep=True)
    if platform.kubeconfig or platform.aws_credentials:
        bounds = engine.limits.secrets, engine.limits.secrets_size
        if not platform.are_known(*bounds):
            await asyncio.to_thread(know_secrets, platform, *bounds)
    return platform


def request_of(
    engine: Engine,
    received: ChatRequest,
    more: Sequence[Message],
    platform: PlatformContext | None,
    caller: Caller,
    slot: Slot,
    out: Output,
    *,
    involved: bool,
) -> Request:
    """The request of a turn that begins now.

    `more` are those of its messages that carry more than text.
    """
    messages = received.messages
    stated = session_in(more) if more else None
    if stated and history_of(received) is not None:
        stated = copied(stated)
    session = Session(stated, nesting=engine.limits.nesting)
    context = RequestContext(
        platform=platform,
        request_fields=caller.request_fields or {},
        source=received.source,
        session=session,
        principal=caller.principal,
        protocol=caller.protocol,
        _send=out.working,
    )
    # Keep the received words, since code that gets the messages may change them in place.
    kept = involved or engine.intercepts or engine.agent.function is not None
    request = Request(
        engine,
        received,
        received,
        caller,
        slot,
        time.monotonic() + engine.limits.turn_time,
        session,
        context,
        out.secrets,
        platform.tenant_name if platform is not None else None,
        user_of(messages),
        said_in(messages) if kept else (),
        not messages[-1].content.strip(),
        involved,
    )
    return _involved(request) if involved else request


def _involved(request: Request) -> Request:
    messages = request.received.messages
    choices = approvals.choices(messages)
    references = approvals.References(request.said)
    request.context.has_decision = any(not choice.copy for choice in choices)
    return request._replace(
        choices=choices,
        shown=approvals.shown(messages),
        references=references,
        conversation=Conversation(request.session.conversation or "", references),
        edits=Edits(request.engine, request.secrets),
    )


def user_of(messages: Sequence[Message]) -> str | None:
    """The user whom the newest message names."""
    user = messages[-1].user
    return (user.id or user.name or None) if user else None


def session_in(messages: Sequence[Message]) -> dict[str, Any] | None:
    """The session as the newest message that states one has it."""
    for data in reversed([m.data for m in messages if m.data is not None]):
        if data.session is not None:
            return data.session
    return None
