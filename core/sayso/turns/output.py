"""The events of a turn on their way to the client; a reply is taken apart into events and put
together again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic_core import from_json

from sayso.context import hidden_line
from sayso.conversation.approvals import approval, command, tool_call
from sayso.engine import Unrecorded
from sayso.errors import ReplyTooLarge
from sayso.gate import Outcome
from sayso.hosting.streams import Sink
from sayso.ledger import Proposal
from sayso.ledger.choices import Decided
from sayso.tools import Tool
from sayso.wire.events import (
    Approvals,
    Commands,
    Done,
    Event,
    ExecutedApprovals,
    ExecutedCommands,
    ExecutedToolCalls,
    IntermittentUpdate,
    ModelCalled,
    StopReason,
    TextDelta,
    ToolCalls,
    fold,
)
from sayso.wire.json_bytes import dump_json
from sayso.wire.masking import NO_SECRETS, Secrets
from sayso.wire.messages import AgentMessage, Approval, ChatRequest, Data

OUTCOMES = ("executed_tool_calls", "executed_cmds", "executed_approvals")
"""The lists of `Data` that hold outcomes."""
_IN_EVENTS = {*OUTCOMES, "tool_calls", "cmds", "approvals", "session"}

_ID = re.compile("[0-9a-f]{32}")
"""The id of a call."""


class Gathered:
    """A sink that keeps the events, for a synchronous reply, which has no status lines.

    Pieces of text are kept as strings: as objects of their own, those of long replies would slow
    down every run of the garbage collector.
    """

    shows_status = False

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._pieces: list[str] = []

    @property
    def events(self) -> list[Event]:
        """The events so far; consecutive pieces of text are one."""
        if self._pieces:
            self._events.append(TextDelta("".join(self._pieces)))
            self._pieces.clear()
        return self._events

    def put_nowait(self, item: Event, /) -> bool:
        """Keep the event."""
        if type(item) is TextDelta:
            self._pieces.append(item.text)
        elif type(item) is not IntermittentUpdate:
            self.events.append(item)
        return False

    def say(self, piece: str, /) -> bool:
        """Keep the piece."""
        self._pieces.append(piece)
        return False

    async def space(self) -> None:
        """Return at once, since no reader has to catch up."""

    def failed(self, error: BaseException) -> None:
        """Attach to `error`, with which the turn failed, the outcomes that were sent before it."""
        # Without the pieces: the turn may have failed because one of them is no text.
        data = fold(self._events).data
        if any(getattr(data, name) for name in OUTCOMES):
            error.__dict__["sayso_outcomes"] = data


class Output:
    """The events of one turn on their way out.

    With a response interceptor installed everything but status lines is `held` until the reply
    is whole, and status lines say fixed words only (design, section 5, "Response interceptors").
    """

    model_calls: Sequence[ModelCalled] = ()
    """The model calls of this turn."""
    announced = False
    """Whether the event handlers have the event of the user's message."""
    decided: Decided | None = None
    """The decisions of the request as they were recorded last."""
    seen: ChatRequest | None = None
    """The request that user code saw last, if it differs from the received one."""

    def __init__(
        self, sink: Sink, *, held: bool, limit: int, secrets: Secrets = NO_SECRETS
    ) -> None:
        self._sink = sink
        self._limit = self._room = limit
        self.secrets = secrets
        self._say = self._hold if held else sink.say
        self._held: list[Event] | None = [] if held else None
        self._outcomes: dict[type[Event], Event] = {}
        self._closed = False
        self.shows_status = getattr(sink, "shows_status", True)
        """Whether anybody can see a status line; if not, none need be made."""
        self.text: list[str] = []
        self.granted: list[Proposal] = []
        """The calls that this turn has run under standing grants."""

    @cached_property
    def carried_out(self) -> dict[str, Proposal]:
        """The calls that the turn has carried out, with their outcomes."""
        return {}

    def model_called(self, call: ModelCalled) -> None:
        """Note a model call, for the usage that the reply states."""
        self.model_calls = [*self.model_calls, call]

    def ran(self, row: Proposal, outcome: Outcome) -> None:
        """Note a call that the turn has carried out, for its report if the turn fails."""
        self.carried_out[row.id] = row

    @cached_property
    def unrecorded(self) -> Unrecorded:
        """Set when the store has refused for long to record an outcome for which this turn
        waits."""
        return asyncio.get_running_loop().create_future()

    @property
    def held(self) -> bool:
        """Whether events wait for the whole reply."""
        return self._held is not None

    async def send(self, event: Event) -> None:
        """Send or hold one event."""
        if type(event) is TextDelta:
            self.take(event.text)
            self.text.append(event.text)
        if self._held is not None and type(event) is not IntermittentUpdate:
            self._held.append(event)
        elif not self._closed and self._sink.put_nowait(event):
            await self._sink.space()

    def say(self, piece: str) -> bool:
        """Send or hold a piece of text, as `send` does; if it returns True, await `caught_up`.

        It does not await anything itself: a turn may have a thousand pieces.
        """
        self.take(piece)
        self.text.append(piece)
        return self._say(piece)

    def take(self, piece: str) -> None:
        """Count a piece of the reply; raises ReplyTooLarge if the reply exceeds its limit."""
        self._room -= len(piece)
        if self._room < 0:
            raise ReplyTooLarge(self._limit)

    async def caught_up(self) -> None:
        """Return when a slow reader has caught up."""
        await self._sink.space()

    def update(self, event: IntermittentUpdate, words: str) -> None:
        """Send a status line at once, from any thread; if events are held, `words` are sent in its
        place."""
        if not self._closed:
            shown = event if self._held is None else IntermittentUpdate(words)
            self._sink.put_nowait(shown)

    def working(self, event: IntermittentUpdate) -> None:
        """Send a status line of the agent's code, as `update` does, without the request's
        secrets. If events are held, only the id of a call that it waits for is sent: nobody could
        decide on the call otherwise."""
        call = event.content.get("approval")
        if self.held and isinstance(call, str) and _ID.fullmatch(call):
            waits = IntermittentUpdate(f"a person decides on {call}", {"approval": call})
            if not self._closed:
                self._sink.put_nowait(waits)
        else:
            self.update(hidden_line(event, self.secrets), "Working")

    async def write(self, text: str) -> None:
        """Send or hold a text, if there is any."""
        if text:
            await self.send(TextDelta(text))

    async def outcomes(self, data: Data) -> None:
        """Send or hold the outcomes of `data`, which holds all outcomes of each kind so far. If a
        kind has no new ones, it was reported before."""
        for event in executed_events(data):
            if self._outcomes.get(type(event)) != event:
                self._outcomes[type(event)] = event
                await self.send(event)

    @property
    def reported(self) -> Data:
        """The outcomes that were sent, or held."""
        return fold(self._outcomes.values()).data

    @property
    def has_reported(self) -> bool:
        """Whether any outcomes were sent or held."""
        return bool(self._outcomes)

    async def release(self, events: Sequence[Event]) -> None:
        """Send these events even if others are held."""
        for event in events:
            if not self._closed and self._sink.put_nowait(event):
                await self._sink.space()

    def whole(self, ending: Sequence[Event]) -> AgentMessage:
        """The reply that `ending` ends; it has the text only if that was held."""
        events = self._outcomes.values() if self._held is None else self._held
        # The `done` event has the stop reason in a field of its own.
        return fold([*events, *ending], stop_reason=False)

    def drop(self) -> None:
        """Drop the held events: another answer replaces them."""
        if self._held:
            self._held.clear()
            self._outcomes.clear()
            self.text.clear()

    async def finish(self, ending: Sequence[Event], altered: AgentMessage | None = None) -> None:
        """Send what was held, as altered, and the last events; nothing follows."""
        events = [*self._held, *ending] if self._held else ending
        if altered is not None:
            events = unfold(altered, events)
        *before, last = events
        await self.release(before)
        if not self._closed:
            # Close first, since a tool that outlives its turn may continue to send status lines.
            self.close()
            self._sink.put_nowait(last)

    def close(self) -> None:
        """Drop all events from now on."""
        self._closed = True
        self._say = _unheard

    def _hold(self, piece: str) -> bool:
        assert self._held is not None
        self._held.append(TextDelta(piece))
        return False


def _unheard(piece: str) -> bool:
    return False


def proposal_events(
    rows: Sequence[Proposal], tools: Mapping[str, Tool[..., Any]], *, plain: bool = False
) -> list[Event]:
    """The events that state these proposals in their order, at least one event; `plain` ones have
    the form of V1."""

    def stated(row: Proposal) -> Approval:
        tool = tools.get(row.name) if row.kind == "tool_call" else None
        return approval(row, plain=plain, editable=tool is not None and tool.editable)

    events: list[Event] = [Approvals([stated(row) for row in rows])]
    if calls := [tool_call(row) for row in rows if row.kind == "tool_call"]:
        events.append(ToolCalls(calls))
    if commands := [command(row) for row in rows if row.kind == "command"]:
        events.append(Commands(commands))
    return events


def leftover(data: Data) -> dict[str, Any] | None:
    """The part of a reply's data that no event carries."""
    if not data.url_configs and not data.model_extra:
        return None
    rest = {
        name: value
        for name, value in from_json(dump_json(data)).items()
        if name not in _IN_EVENTS and not (name == "url_configs" and not value)
    }
    return rest or None


def executed_events(data: Data) -> list[Event]:
    """The events that carry the outcomes of `data`, without empty ones."""
    events: list[Event] = []
    if data.executed_tool_calls:
        events.append(ExecutedToolCalls([*data.executed_tool_calls]))
    if data.executed_cmds:
        events.append(ExecutedCommands([*data.executed_cmds]))
    if data.executed_approvals:
        events.append(ExecutedApprovals([*data.executed_approvals]))
    return events


def unfold(reply: AgentMessage, events: Sequence[Event]) -> list[Event]:
    """The events of an altered reply: its text and outcomes, the proposals of `events` unchanged,
    and one `done`."""
    done = next(e for e in reversed(events) if isinstance(e, Done))
    deltas = [e for e in events if isinstance(e, TextDelta)]
    if reply.content != "".join(e.text for e in deltas):
        deltas = [TextDelta(reply.content)] if reply.content else []
    proposals = [e for e in events if isinstance(e, (Approvals, ToolCalls, Commands))]
    last = done_of(reply, done.stop_reason)
    return [*executed_events(reply.data), *deltas, *proposals, last]


def done_of(reply: AgentMessage, stop: StopReason) -> Done:
    """The `done` event that carries the rest of `reply`."""
    return Done(
        stop_reason=stop,
        meta_data=reply.meta_data,
        session=reply.data.session,
        data=leftover(reply.data),
        timestamp=reply.timestamp,
        user=reply.user,
        agent=reply.agent,
    )
