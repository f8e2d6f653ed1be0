"""Turns that a plugin may refuse before they begin (the hook `admit`)."""

from __future__ import annotations

from collections.abc import Sequence

from sayso.context import Caller, Session
from sayso.conversation import approvals
from sayso.decisions.deed import requester
from sayso.engine import Engine
from sayso.errors import InvalidRequest
from sayso.hosting.streams import Sink
from sayso.ledger import OPEN, Proposal
from sayso.ledger.choices import Conversation, Decided, Requester
from sayso.principals import person_of
from sayso.turns.request import session_in, user_of
from sayso.turns.turn import run_turn
from sayso.wire.messages import ChatRequest, Message, platform_of, said_in


async def admitted_turn(
    engine: Engine,
    received: ChatRequest,
    more: Sequence[Message],
    caller: Caller,
    sink: Sink,
    *,
    involved: bool,
    timed: bool,
) -> None:
    """`run_turn`, as soon as every plugin lets it in. Raises TooMany."""
    decides = involved and await _decides(engine, received, more, caller)
    async with engine.admitted(caller, "decision" if decides else "turn"):
        await run_turn(engine, received, more, caller, sink, involved=involved, timed=timed)


async def _decides(
    engine: Engine, received: ChatRequest, more: Sequence[Message], caller: Caller
) -> bool:
    """Whether the request decides a call, or goes on after a decision.

    A decision without an effect makes a turn no decision: it could be added to every message.
    """
    messages = received.messages
    choices = [choice for choice in approvals.choices(messages) if not choice.copy]
    if not choices:
        return False
    session = Session(session_in(more), nesting=engine.limits.nesting)
    conversation = Conversation(session.conversation or "", approvals.References(said_in(messages)))
    who = requester(caller, platform_of(more).tenant_name, user_of(messages))
    try:
        found = await engine.ledger.decide(choices, [], who, conversation, dry=True)
    except InvalidRequest:
        # The turn refuses it as well, unless the decision edits a call that waits for it.
        return True
    blank = not messages[-1].content.strip()
    return any(_counts(row, found, who, blank=blank) for _, row in found.chosen)


def _counts(row: Proposal, found: Decided, who: Requester, *, blank: bool) -> bool:
    if not blank:
        # The model answers the words, so the decision has to be a new one.
        voted = {vote.person for vote in row.votes}
        return row.state == "PENDING" and not (voted and person_of(who.principal) in voted)
    turn = found.turns.get(row.turn)
    goes_on = turn is not None and turn.state != "ENDED"
    return row.state in OPEN or row.state == "EXECUTING" or goes_on
