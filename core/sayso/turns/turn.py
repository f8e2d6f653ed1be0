"""The turn engine: one ChatRequest in, its events out (design, section 5).

The order of a turn: request interceptors, decisions (`decisions`), the model and its tools
(`tool_loop`) or a plain callable (`callables`), response interceptors and the record (`ending`).
Everything that users wrote is called through `UserCode`, never on the engine's own loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sayso import approvals
from sayso.agent import RequestContext
from sayso.commands.identity import shell_deed
from sayso.errors import Blocked, Silence
from sayso.events import (
    AgentEvent,
    ConversationStarted,
    Event,
    MessageAdded,
    StopReason,
    TextDelta,
)
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Continuation, Conversation, Decided, Requester
from sayso.lenient_json import fitting
from sayso.masking import mask
from sayso.messages import (
    AgentMessage,
    ChatRequest,
    Command,
    Data,
    Message,
    platform_of,
    said_in,
)
from sayso.session import Session
from sayso.texts import Texts
from sayso.turns.callables import ask_function
from sayso.turns.continuation import nothing_to_answer, owed, resume
from sayso.turns.decisions import carry_decisions
from sayso.turns.edits import Edits
from sayso.turns.ending import done, finish
from sayso.turns.execution import Unrecorded
from sayso.turns.gate import Outcome
from sayso.turns.interceptors import intercept
from sayso.turns.output import Output, Sink
from sayso.turns.places import place
from sayso.turns.slots import Slot
from sayso.turns.tool_loop import ask_model

if TYPE_CHECKING:
    from sayso.turns.engine import Engine

logger = logging.getLogger("sayso.turn")
T = TypeVar("T")
_TEXTS = ("name", "description", "input_description", "intent")
"""What of a proposal its readers see beside its input."""


class Caller(NamedTuple):
    """How a request came in: over which protocol, from whom, from where.

    `request_fields` are forwarded and echoed on V2 only; None elsewhere (interface.md, rule 1).
    """

    protocol: str
    principal: str | None = None
    address: str | None = None
    client: str | None = None
    request_fields: Mapping[str, Any] | None = None


class RunningTurn:
    """The state of one turn while it runs; the modules of the engine work on it."""

    # As most turns leave them.
    decisions: Sequence[Choice] = ()
    shown: Sequence[str] = ()
    references: Sequence[str] = ()
    conversation = Conversation()
    found = Decided()
    """What the ledger found; nothing, where no call is involved."""
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
        caller: Caller,
        sink: Sink,
        slot: Slot,
        *,
        involved: bool,
    ) -> None:
        messages = request.messages
        platform = platform_of(more) if more else None
        self.engine = engine
        self.request = request
        self.caller = caller
        self.slot = slot
        self.until = time.monotonic() + engine.limits.turn_time
        self.events_on = engine.events_on
        self.secrets = platform.secrets() if platform is not None else []
        self.out = Output(sink, held=engine.holds, secrets=self.secrets)
        self.session = Session(_session_in(more) if more else None, nesting=engine.limits.nesting)
        user = messages[-1].user
        self.who = requester(
            caller,
            platform.tenant_name if platform is not None else None,
            (user.id or user.name or None) if user else None,
        )
        if (engine.intercepts or engine.agent.function) and not isinstance(messages, Texts):
            # As received: who gets the messages may change them in place.
            self.said = said_in(messages)
        self.blank = not messages[-1].content.strip()
        self.involved = involved
        if involved:
            self.decisions = approvals.choices(messages)
            self.shown = approvals.shown(messages)
            self.references = approvals.references(self.said)
            self.found = Decided()
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
    def place(self) -> dict[str, Any]:
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

    async def run(self) -> None:
        """Run the turn to its `done`; a failed continuation is given back.

        Blocked and Silence of user code are another answer in its place.
        """
        answer = None
        try:
            # A callable alone gets the messages in a list of its own; most show no state.
            stateful = self.involved or self.session.stated
            if self.engine.intercepts or (stateful and self.engine.agent.function):
                answer = await intercept(self)
            if answer is not None:
                await self.accepted()
                await self._answer(answer)
            elif not self.involved:
                # Most turns: nothing was decided, and there is nothing to continue.
                if self.empty:
                    raise nothing_to_answer(self.request.messages)
                if self.events_on:
                    await self.accepted()
                await self._answering()
            elif self.engine.agent.function is not None and self.context.has_decision:
                # What carries an approval out itself is not cut off by a client that leaves.
                await self.engine.carried(self._decided(), self.unrecorded)
            else:
                await self._decided()
        except Blocked as error:
            await self._started()
            await self._blocked(error)
        except Silence as error:
            logger.debug("silent: %s", mask(error.reasoning, self.secrets))
            await self._started()
            self.out.drop()
            await self.out.finish([done(self, "silent")])

    async def _decided(self) -> None:
        """Carry the decisions out, then answer."""
        known = await self._releasing(carry_decisions(self))
        rest = self._releasing(self._go_on(known))
        if owed(self):
            # What a callable has yet to carry out may be approved in the history alone.
            await self.engine.carried(rest, self.unrecorded)
        else:
            await rest

    async def _go_on(self, known: set[str]) -> None:
        """Answer, once the decisions are recorded and what may run at once has run."""
        if not await resume(self, known):
            await self.accepted()
            await self._answering()

    def _answering(self) -> Awaitable[None]:
        """The agent's own answer."""
        function = self.engine.agent.function
        return ask_model(self) if function is None else ask_function(self, function)

    async def _releasing(self, work: Awaitable[T]) -> T:
        """The result of `work`; where it fails, the continuation that it claimed is given back."""
        try:
            return await work
        except BaseException:
            self.gone = True
            if self.continuing is not None:
                released = self.engine.keep(self.engine.ledger.release(self.continuing))
                await asyncio.shield(released)
            raise

    async def accepted(self) -> None:
        """Tell the handlers of the message, once, when nothing can refuse it any more."""
        if self.events_on and not self.added:
            await self._started()
            self.added = True
            # As the interceptors left it: what they took out is for no log either.
            await self.fire(MessageAdded(self.seen.messages[-1].model_copy(deep=True)))

    async def _started(self) -> None:
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

    async def _blocked(self, error: Blocked) -> None:
        last = done(self, "blocked")
        last.meta_data["blocked"] = {"code": error.code}
        self.out.drop()
        words = f"\n\n{error.message}" if self.out.text else error.message
        said: list[Event] = [TextDelta(words)] if error.message else []
        await self.out.finish([*said, last])

    async def _answer(self, answer: AgentMessage) -> None:
        """Send an interceptor's own reply; it can propose nothing."""
        data = answer.data.model_copy(update={"tool_calls": [], "cmds": [], "approvals": []})
        reply = answer.model_copy(update={"data": data})
        self.set_session(data.session)
        await self.out.outcomes(data)
        await self.say(reply.content)
        await finish(self, "end_turn", reply=reply)

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
        return proposal(self.who, agent=self.engine.agent.id, context=self.place, **fields)

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


def requester(caller: Caller, tenant: str | None = None, user: str | None = None) -> Requester:
    """Who asks; `tenant` and `user` are what the messages claim."""
    return Requester(caller.principal, tenant, user, caller.protocol, caller.address, caller.client)


def proposal(who: Requester, **fields: Any) -> Proposal:
    """A proposal for `who`; the ledger sets its times when it records it."""
    # Recorded as they are sent: whoever lists what waits could not write them otherwise.
    fields |= {name: fitting(fields[name]) for name in _TEXTS if name in fields}
    own: dict[str, Any] = {"turn": "", "index": 0, "created": 0.0, "expires": 0.0}
    return Proposal(id=secrets.token_hex(16), **own | who._asdict() | fields)


def _session_in(messages: Sequence[Message]) -> dict[str, Any] | None:
    for data in reversed([m.data for m in messages if m.data is not None]):
        if data.session is not None:
            return data.session
    return None
