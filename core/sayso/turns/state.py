"""The state of one turn while it runs; the steps of the engine work on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from sayso.commands.identity import shell_deed
from sayso.context import Caller, RequestContext
from sayso.conversation import approvals
from sayso.decisions.edits import Edits
from sayso.decisions.places import place
from sayso.decisions.requested import proposal, requester, stands_alone
from sayso.engine import Engine, Unrecorded
from sayso.gate import Outcome
from sayso.hosting.streams import Sink
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Continuation, Conversation, Decided
from sayso.slots import Slot
from sayso.turns.output import Output
from sayso.wire.events import (
    AgentEvent,
    ConversationStarted,
    MessageAdded,
    StopReason,
    TextDelta,
)
from sayso.wire.masking import Secrets, mask
from sayso.wire.messages import ChatRequest, Command, Data, Message, PlatformContext, said_in
from sayso.wire.session import Session
from sayso.workers.places import Place


class RunningTurn:
    """The state of one turn, from its place among the turns in flight to its last event."""

    # As most turns leave them.
    decisions: Sequence[Choice] = ()
    shown: Sequence[str] = ()
    references: Sequence[str] = ()
    conversation = Conversation()
    found = Decided()
    """What the ledger found; nothing, where no call is involved."""
    place: Place | None = None
    """Where a callable carries out what was approved."""
    not_begun: dict[str, str]
    """Why approved calls have not begun, by their ids; empty for the others."""
    continuing: Continuation | None = None
    gone = False
    added = False
    """Whether the handlers have heard of the user's message."""
    calls_made = 0
    stop: StopReason = "end_turn"
    """How a callable says that its reply ends."""

    def __init__(
        self,
        engine: Engine,
        request: ChatRequest,
        more: Sequence[Message],
        platform: PlatformContext | None,
        caller: Caller,
        sink: Sink,
        slot: Slot,
        *,
        involved: bool,
    ) -> None:
        messages = request.messages
        self.engine = engine
        self.request = request
        self.caller = caller
        self.slot = slot
        self.until = time.monotonic() + engine.limits.turn_time
        self.events_on = engine.events_on
        self.secrets = platform.secrets() if platform is not None else Secrets()
        self.out = Output(sink, held=engine.holds, secrets=self.secrets, limit=engine.limits.reply)
        self.session = Session(_session_in(more) if more else None, nesting=engine.limits.nesting)
        user = messages[-1].user
        self.who = requester(
            caller,
            platform.tenant_name if platform is not None else None,
            (user.id or user.name or None) if user else None,
        )
        if engine.intercepts or engine.agent.function:
            # As received: who gets the messages may change them in place.
            self.said = said_in(messages)
        self.blank = not messages[-1].content.strip()
        self.involved = involved
        if involved:
            self.decisions = approvals.choices(messages)
            self.shown = approvals.shown(messages)
            self.references = approvals.references(self.said)
            self.found = Decided()
            self.not_begun = {}
        if more:
            self.conversation = Conversation(self.session.conversation or "", self.references)
        self.context = RequestContext(
            platform=platform,
            request_fields=caller.request_fields or {},
            source=request.source,
            session=self.session,
            principal=caller.principal,
            protocol=caller.protocol,
            has_decision=bool(self.decisions) and any(not c.copy for c in self.decisions),
            # No method of the turn: then each turn would wait for the garbage collector to go.
            _send=self.out.working,
        )
        self.seen = request

    @cached_property
    def acts_in(self) -> dict[str, Any]:
        """Where the calls act that this request proposes."""
        return place(self.context.stated_platform)

    @cached_property
    def said(self) -> list[tuple[str, str]]:
        """Role and content of each message as received."""
        return said_in(self.request.messages)

    @cached_property
    def data(self) -> Data:
        """The reply's data; most turns have none."""
        return Data()

    @cached_property
    def edits(self) -> Edits:
        """The inputs that an approver changed."""
        return Edits(self.engine, self.secrets)

    @cached_property
    def unrecorded(self) -> Unrecorded:
        """Set when the store has long refused to record an outcome that this turn waits for."""
        return asyncio.get_running_loop().create_future()

    @property
    def empty(self) -> bool:
        """Whether the last message says nothing, also after the request interceptors."""
        return self.blank and not self.seen.messages[-1].content.strip()

    def left(self) -> float:
        """Seconds until the turn's limit."""
        return max(0.0, self.until - time.monotonic())

    async def fire(self, event: AgentEvent) -> None:
        """Tell the event handlers, if there are any."""
        if self.events_on:
            await self.engine.fire(event, self.secrets)

    async def accepted(self) -> None:
        """Tell the handlers of the message, once, when nothing can refuse it any more."""
        if self.events_on and not self.added:
            await self.started()
            self.added = True
            # As the interceptors left it: what they took out is for no log either.
            await self.fire(MessageAdded(self.seen.messages[-1].model_copy(deep=True)))

    async def started(self) -> None:
        """Tell the handlers of a conversation's first message, once, when it is not refused."""
        if self.events_on and not self.added and len(self.request.messages) == 1:
            await self.fire(ConversationStarted())

    def take(self, continuing: Continuation) -> None:
        """Have this turn continue the suspended one; if it has ended meanwhile, another turn
        may."""
        if self.gone:
            self.engine.keep(self.engine.ledger.release(continuing))
        else:
            self.continuing = continuing

    async def ran(self, row: Proposal, outcome: Outcome) -> None:
        """Take note that a claimed call has ended; `row` carries the outcome."""
        self.found.rows[row.id] = row
        if self.events_on:
            await self.fire(outcome.event(approvals.approval(row, execute=True)))

    def set_session(self, given: Mapping[str, Any] | None) -> None:
        """Take the session that a reply of user code states; None leaves it as it is."""
        if given is not None:
            self.session.clear()
            self.session.update(given)

    async def say(self, text: str) -> None:
        """Send a text, if there is any."""
        if text:
            await self.out.send(TextDelta(text))

    def new_proposal(self, **fields: Any) -> Proposal:
        """A proposal of this request, not yet recorded."""
        # Masked before it is cut: nothing would know half a secret.
        fields["intent"] = mask(fields.get("intent"), self.secrets)
        name, given = fields["name"], fields["input"]
        tool = None if fields["kind"] == "command" else self.engine.agent.tools.get(name)
        terms = self.engine.gate.policy.terms(
            name,
            tool,
            fields.get("sent") or given,
            given,
            self.context.stated_platform,
        )
        fields |= {"agent": self.engine.agent.id, "context": self.acts_in, "terms": terms}
        stated = self.context.stated_platform
        fields["unattended"] = stands_alone(tool, stated, self.context.request_fields)
        return proposal(self.who, **fields)

    def new_command(
        self,
        command: Command,
        call_id: str,
        intent: str | None,
        description: str = "A terminal command",
    ) -> Proposal:
        """A proposal of this request to run a terminal command."""
        return self.new_proposal(
            kind="command",
            name="command",
            input=approvals.command_input(command),
            call_id=call_id,
            description=description,
            intent=intent,
            **shell_deed(self.engine.agent.commands),
        )


def _session_in(messages: Sequence[Message]) -> dict[str, Any] | None:
    for data in reversed([m.data for m in messages if m.data is not None]):
        if data.session is not None:
            return data.session
    return None
