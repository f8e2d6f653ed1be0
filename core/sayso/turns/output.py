"""Where a turn's events go, and how a reply is taken apart and put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
from sayso.wire.events import (
    Approvals,
    Commands,
    Done,
    Event,
    ExecutedApprovals,
    ExecutedCommands,
    ExecutedToolCalls,
    IntermittentUpdate,
    StopReason,
    TextDelta,
    ToolCalls,
    fold,
)
from sayso.wire.lenient_json import dump_json
from sayso.wire.masking import NO_SECRETS, Secrets
from sayso.wire.messages import AgentMessage, ChatRequest, Data

OUTCOMES = ("executed_tool_calls", "executed_cmds", "executed_approvals")
"""The lists of `Data` that hold outcomes."""
_IN_EVENTS = {*OUTCOMES, "tool_calls", "cmds", "approvals", "session"}


class Gathered:
    """A sink that keeps the events, for a synchronous reply, which has no status lines.

    Pieces of text are kept as strings: as objects of their own, those of long replies would slow
    down every run of the garbage collector.
    """

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
        """Nobody waits for a reader."""

    def failed(self, error: BaseException) -> None:
        """Attach to `error`, with which the turn failed, the outcomes that came before it."""
        data = fold(self.events).data
        if any(getattr(data, name) for name in OUTCOMES):
            error.__dict__["sayso_outcomes"] = data


class Output:
    """The events of one turn on their way out.

    With a response interceptor installed everything but status lines is `held` until the reply
    is whole, and status lines say fixed words only (design, section 5, "Response interceptors").
    """

    announced = False
    """Whether the event handlers know of the user's message."""
    decided: Decided | None = None
    """The decisions of the request as they were recorded last."""
    seen: ChatRequest | None = None
    """The request as user code has seen it last, if that is not as it was received."""

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
        self.shows_status = not isinstance(sink, Gathered)
        """Whether anybody can see a status line, so that it is worth while to make one."""
        self.text: list[str] = []

    @cached_property
    def carried_out(self) -> dict[str, Proposal]:
        """The calls that the turn has carried out, with their outcomes."""
        return {}

    def ran(self, row: Proposal, outcome: Outcome) -> None:
        """Note a call that the turn has carried out, for its report should the turn fail."""
        self.carried_out[row.id] = row

    @cached_property
    def unrecorded(self) -> Unrecorded:
        """Set when the store has long refused to record an outcome that this turn waits for."""
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
        """Send or hold a piece of text, as `send` does; True asks to await `caught_up`.

        Without an await of its own: a turn may have a thousand pieces.
        """
        self.take(piece)
        self.text.append(piece)
        return self._say(piece)

    def take(self, piece: str) -> None:
        """Count a piece of the reply; raises ReplyTooLarge where it becomes one without an end."""
        self._room -= len(piece)
        if self._room < 0:
            raise ReplyTooLarge(self._limit)

    async def caught_up(self) -> None:
        """Return when a slow reader has caught up."""
        await self._sink.space()

    def update(self, event: IntermittentUpdate, words: str) -> None:
        """Send a status line at once, from any thread; `words` stand for it when held."""
        if not self._closed:
            shown = event if self._held is None else IntermittentUpdate(words)
            self._sink.put_nowait(shown)

    def working(self, event: IntermittentUpdate) -> None:
        """Send a status line of the agent's code, as `update`, without the request's secrets."""
        self.update(hidden_line(event, self.secrets), "Working")

    async def write(self, text: str) -> None:
        """Send or hold a text, if there is any."""
        if text:
            await self.send(TextDelta(text))

    async def outcomes(self, data: Data) -> None:
        """Send or hold the outcomes of `data`, all that there are of a kind; a kind that has not
        grown was reported before."""
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
        """Whether there are any."""
        return bool(self._outcomes)

    async def release(self, events: Sequence[Event]) -> None:
        """Send these events whatever is held."""
        for event in events:
            if not self._closed and self._sink.put_nowait(event):
                await self._sink.space()

    def whole(self, ending: Sequence[Event]) -> AgentMessage:
        """The reply that `ending` ends; its text is there only where it was held."""
        events = self._outcomes.values() if self._held is None else self._held
        # The `done` event has the stop reason in a field of its own.
        return fold([*events, *ending], stop_reason=False)

    def drop(self) -> None:
        """Forget what is held: another answer replaces it."""
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
            # Close first: a tool that outlives its turn may go on sending status lines.
            self.close()
            self._sink.put_nowait(last)

    def close(self) -> None:
        """Drop whatever comes from now on."""
        self._closed = True
        self._say = _unheard

    def _hold(self, piece: str) -> bool:
        assert self._held is not None
        self._held.append(TextDelta(piece))
        return False


def _unheard(piece: str) -> bool:
    return False


def proposal_events(rows: Sequence[Proposal], *, plain: bool = False) -> list[Event]:
    """The events that state these proposals, at least one, in their order; `plain` ones as V1 has
    them."""
    events: list[Event] = [Approvals([approval(row, plain=plain) for row in rows])]
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
    """The events that carry the outcomes of `data`, only those not empty."""
    events: list[Event] = []
    if data.executed_tool_calls:
        events.append(ExecutedToolCalls([*data.executed_tool_calls]))
    if data.executed_cmds:
        events.append(ExecutedCommands([*data.executed_cmds]))
    if data.executed_approvals:
        events.append(ExecutedApprovals([*data.executed_approvals]))
    return events


def unfold(reply: AgentMessage, events: Sequence[Event]) -> list[Event]:
    """The events of an altered reply: its text and outcomes, the proposals of `events` as they
    are, one `done`."""
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
