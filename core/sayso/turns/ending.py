"""The end of a turn: the reply is altered, recorded, then sent."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sayso.conversation import approvals
from sayso.conversation.hidden import hidden_reply, hidden_session, hidden_turns
from sayso.ledger import RAN, Proposal, SuspendedTurn
from sayso.models import Turn, dump_turns
from sayso.turns.interceptors import alter, altered_texts
from sayso.turns.outcomes import collect_outcomes, decided_calls
from sayso.turns.output import done_of, executed_events, proposal_events
from sayso.turns.state import RunningTurn
from sayso.wire.events import ApprovalRequested, Done, Event, MessageAdded, StopReason, fold_done
from sayso.wire.lenient_json import dump_json
from sayso.wire.masking import mask
from sayso.wire.messages import AgentMessage, Data
from sayso.wire.session import Session

_STATED = (
    "id kind name input turn index call_id created expires description input_description intent"
    " agent source context"
).split()


async def suspend(
    turn: RunningTurn,
    proposals: Sequence[Proposal],
    transcript: Sequence[Turn],
    prefix: str,
    reply: AgentMessage | None = None,
) -> None:
    """End the turn with new proposals, recorded before anybody can see them."""
    if turn.session.conversation is None and any(p.kind == "command" for p in proposals):
        turn.session.conversation = secrets.token_hex(16)
    key = turn.session.conversation or ""
    references = turn.references or approvals.references(turn.said)
    tools = [tool.name for tool in turn.engine.agent.definitions]
    hidden, fresh_ids = hidden_turns(transcript, turn.secrets, tools)
    suspended = SuspendedTurn(
        id=secrets.token_hex(16),
        created=0.0,
        conversation=key,
        reference=references[-1],
        principal=turn.who.principal,
        tenant=turn.who.tenant,
        user=turn.who.user,
        transcript=dump_turns(hidden),
        # A provider refuses blocks of its own that read otherwise.
        prefix=prefix if hidden is transcript else "",
        calls=[p.id for p in proposals],
        from_callable=turn.engine.agent.function is not None,
    )
    if turn.out.held:
        await _alter_texts(turn, proposals, descriptions=suspended.from_callable)
    for i, p in enumerate(proposals):
        p.turn, p.index = suspended.id, i
        p.conversation, p.reference = key, references[-1]
        p.call_id = fresh_ids.get(p.call_id, p.call_id)
        p.intent = mask(p.intent, turn.secrets)
        if suspended.from_callable:
            # Of any other agent they are its tools' own.
            p.description = mask(p.description, turn.secrets)
            p.input_description = mask(p.input_description, turn.secrets)
    await finish(turn, "approval_required", pending=proposals, suspended=suspended, reply=reply)


async def _alter_texts(
    turn: RunningTurn, proposals: Sequence[Proposal], *, descriptions: bool
) -> None:
    """Have the response interceptors see what the agent says of its proposals, as they see its
    reply: intents are its words, and so are the descriptions that a callable gives."""
    said = [p.intent for p in proposals]
    said += [p.description for p in proposals if descriptions]
    altered = await altered_texts(turn, said)
    for p in proposals:
        p.intent = altered.get(p.intent, p.intent)
        if descriptions:
            p.description = altered.get(p.description, p.description)


async def finish(
    turn: RunningTurn,
    stop: StopReason,
    *,
    pending: Sequence[Proposal] = (),
    suspended: SuspendedTurn | None = None,
    reply: AgentMessage | None = None,
) -> None:
    """Alter, record and send the rest of the reply; no event follows."""
    last = done(turn, stop, reply)
    stated = proposal_events(pending, plain=turn.caller.plain) if pending else []
    ending: list[Event] = [*stated, last]
    altered = None
    if turn.out.held:
        # What interceptors do to the session in place is no part of what is recorded.
        last.session = copy.deepcopy(last.session)
        altered = await alter(turn, ending)
    if suspended is not None or turn.continuing is not None:
        await _record(turn, stop, pending, suspended, last)
        turn.continuing = None
    if suspended is not None and turn.events_on:
        await turn.fire(ApprovalRequested([approvals.approval(row) for row in pending]))
    if altered is not None:
        _keep_conversation(turn, altered)
        if turn.caller.request_fields:
            altered.meta_data.setdefault("request_context", last.meta_data["request_context"])
    if turn.events_on:
        await turn.fire(MessageAdded(_copied(altered or _spoken(turn, ending))))
    await turn.out.finish(ending, altered)


async def report_before_failing(turn: RunningTurn) -> None:
    """Send the outcomes of calls that the turn has carried out and not reported: it fails now, and
    a caller who reads of the failure alone would ask for them again.

    Response interceptors see them as they see a reply; where one fails, they are not sent.
    """
    rows = turn.found.rows
    ran = {g.proposal.id for g in turn.found.grants if rows[g.proposal.id].state in RAN}
    if not ran or (turn.out.reported and not turn.out.held):
        return
    data = turn.data = Data()
    collect_outcomes(turn, ran)
    if turn.out.held:
        turn.out.drop()
        await turn.out.outcomes(data)
        data = (await alter(turn, [Done()])).data
    await turn.out.release(executed_events(data))


def done(turn: RunningTurn, stop: StopReason, reply: AgentMessage | None = None) -> Done:
    """The turn's `done` event, with the echo of the request fields and the session."""
    last = Done(stop)
    if reply is not None:
        last = done_of(reply, stop)
        last.meta_data = dict(last.meta_data)
    if turn.caller.request_fields:
        echo = mask(dict(turn.caller.request_fields), turn.secrets)
        last.meta_data["request_context"] = echo
    last.session = hidden_session(turn.session, turn.secrets)
    return last


def _keep_conversation(turn: RunningTurn, reply: AgentMessage) -> None:
    key = turn.session.conversation
    if key is not None:
        session = Session(reply.data.session)
        session.conversation = key
        reply.data.session = session.dump()


def _spoken(turn: RunningTurn, ending: Sequence[Event]) -> AgentMessage:
    reply = turn.out.whole(ending)
    reply.content = "".join(turn.out.text)
    return reply


def _copied(reply: AgentMessage) -> AgentMessage:
    """A copy of the reply for handlers: one that edits it for a log must change no reply."""
    return AgentMessage.model_validate(json.loads(dump_json(reply)))


async def _record(
    turn: RunningTurn,
    stop: StopReason,
    pending: Sequence[Proposal],
    suspended: SuspendedTurn | None,
    last: Done,
) -> None:
    """Write proposals and the recorded reply before anybody can see them."""
    recorded = None
    if turn.continuing is not None:
        reply = AgentMessage(content="".join(turn.out.text), data=turn.data.model_copy())
        # The echo is of each request's own fields.
        meta_data = {k: v for k, v in last.meta_data.items() if k != "request_context"}
        fold_done(replace(last, meta_data=meta_data), reply)
        recorded = {
            "reply": hidden_reply(reply, turn.secrets),
            "stop_reason": stop,
            "answers": turn.references[-1],
            "proposals": [_plain(row) for row in pending],
            "known": decided_calls(turn, [id_ for id_, _ in turn.continuing.turns]),
        }
    await turn.engine.ledger.propose(
        suspended, list(pending) if suspended else [], turn.continuing, recorded
    )


def _plain(row: Proposal) -> dict[str, Any]:
    """The fields of a proposal that a recorded reply needs to state it again."""
    return {name: getattr(row, name) for name in _STATED}
