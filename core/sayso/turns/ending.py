"""The end of a turn: the reply is altered, recorded, then sent."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sayso.context import Session
from sayso.conversation import approvals
from sayso.conversation.hidden import hidden_reply, hidden_session, hidden_turns
from sayso.decisions.settling import NOTHING_DECIDED, Settled
from sayso.errors import Blocked
from sayso.ledger import RAN, Proposal, SuspendedTurn
from sayso.models import Turn, dump_turns
from sayso.models.usage import counted
from sayso.turns.interceptors import alter, altered_texts
from sayso.turns.output import Output, done_of, executed_events, proposal_events
from sayso.turns.request import Request
from sayso.turns.settle import known_to_reply, outcomes_of
from sayso.wire.events import (
    ApprovalRequested,
    Done,
    Event,
    MessageAdded,
    StopReason,
    TextDelta,
    fold_done,
)
from sayso.wire.json_bytes import dump_json
from sayso.wire.masking import NO_SECRETS, mask
from sayso.wire.messages import AgentMessage

_STATED = (
    "id kind name input turn index call_id created expires description input_description intent"
    " agent source context revision terms"
).split()


class Answer(NamedTuple):
    """The end of a turn, beside the text that it has sent. `reply` is the whole answer of user
    code; `pending` are the calls that wait, and `suspended` says that the turn proposes them
    itself."""

    stop: StopReason
    settled: Settled = NOTHING_DECIDED
    pending: Sequence[Proposal] = ()
    suspended: SuspendedTurn | None = None
    reply: AgentMessage | None = None


async def answer_given(request: Request, given: AgentMessage, out: Output) -> Answer:
    """Send an interceptor's own reply, which can propose nothing."""
    data = given.data.model_copy(update={"tool_calls": [], "cmds": [], "approvals": []})
    reply = given.model_copy(update={"data": data})
    request.set_session(data.session)
    await out.outcomes(data)
    await out.write(reply.content)
    return Answer("end_turn", reply=reply)


async def suspended(
    request: Request,
    settled: Settled,
    proposals: Sequence[Proposal],
    out: Output,
    transcript: Sequence[Turn] = (),
    prefix: str = "",
    reply: AgentMessage | None = None,
) -> Answer:
    """The end of a turn with new proposals, which are recorded before anybody can see them."""
    session = request.session
    if session.conversation is None and any(p.kind == "command" for p in proposals):
        session.conversation = secrets.token_hex(16)
    key, reference = session.conversation or "", request.digests()[-1]
    tools = [tool.name for tool in request.engine.agent.definitions]
    hidden, fresh_ids = hidden_turns(transcript, request.secrets, tools)
    who = request.who
    turn = SuspendedTurn(
        id=secrets.token_hex(16),
        created=0.0,
        conversation=key,
        reference=reference,
        principal=who.principal,
        tenant=who.tenant,
        user=who.user,
        transcript=dump_turns(hidden),
        # The prefix allows the provider's own blocks to be sent again. Providers refuse them once
        # masking has changed anything.
        prefix=prefix if hidden is transcript else "",
        calls=[p.id for p in proposals],
        from_callable=request.engine.agent.function is not None,
    )
    if out.held:
        await alter_texts(request, proposals, descriptions=turn.from_callable)
    for i, p in enumerate(proposals):
        p.turn, p.index = turn.id, i
        p.conversation, p.reference = key, reference
        p.call_id = fresh_ids.get(p.call_id, p.call_id)
        p.intent = mask(p.intent, request.secrets)
        if turn.from_callable:
            # Descriptions of other agents' calls come from their tools and may hold a secret.
            p.description = mask(p.description, request.secrets)
            p.input_description = mask(p.input_description, request.secrets)
    return Answer("approval_required", settled, proposals, turn, reply)


async def alter_texts(
    request: Request, proposals: Sequence[Proposal], *, descriptions: bool
) -> None:
    """Let the response interceptors alter the agent's words about its proposals, as they alter its
    reply: the intents, and the descriptions that a callable states."""
    said = [p.intent for p in proposals]
    said += [p.description for p in proposals if descriptions]
    altered = await altered_texts(request, said)
    for p in proposals:
        p.intent = altered.get(p.intent, p.intent)
        if descriptions:
            p.description = altered.get(p.description, p.description)


async def finish(request: Request, answer: Answer, out: Output) -> None:
    """Alter, record and send the rest of the reply; no event follows."""
    last, pending = done(request, answer.stop, answer.reply), answer.pending
    if out.model_calls and (usage := counted(out.model_calls)):
        last.meta_data["usage"] = usage
    if out.granted:
        _state_grants(last, out)
        await out.write(_words_of_grants(out))
    stated: Sequence[Event] = ()
    if pending:
        tools = request.engine.agent.tools
        stated = proposal_events(pending, tools, plain=request.caller.plain)
    ending: list[Event] = [*stated, last]
    altered = None
    if out.held:
        # Interceptors may change the session in place, and such a change must not be recorded.
        last.session = copy.deepcopy(last.session)
        altered = await alter(request, ending, out)
    if answer.suspended is not None or answer.settled.continuing is not None:
        await _record(request, answer, last, out)
    if answer.suspended is not None:
        await request.fire(ApprovalRequested([approvals.approval(row) for row in pending]))
    if altered is not None:
        _keep_conversation(request, altered)
        if request.caller.request_fields:
            altered.meta_data.setdefault("request_context", last.meta_data["request_context"])
    if request.engine.events_on:
        await request.fire(MessageAdded(_copied(altered or _spoken(ending, out))))
    await out.finish(ending, altered)


def _state_grants(last: Done, out: Output) -> None:
    """State the calls that ran under standing grants."""
    last.meta_data["granted"] = [
        {"id": row.id, "name": row.name, "grant": row.decision.grant, "who": row.decision.who}
        for row in out.granted
        if row.decision is not None
    ]


def _words_of_grants(out: Output) -> str:
    said = dict.fromkeys((r.name, r.decision and r.decision.who) for r in out.granted)
    named = ", ".join(f"{name}, given by {who}" for name, who in said)
    words = f"(Allowed by standing grants: {named}.)"
    return f"\n\n{words}" if out.text else words


async def finish_blocked(request: Request, error: Blocked, out: Output) -> None:
    """End the turn with a guard's text in place of its reply."""
    last = done(request, "blocked")
    last.meta_data["blocked"] = {"code": error.code}
    if out.granted:
        _state_grants(last, out)
    if out.model_calls and (usage := counted(out.model_calls)):
        last.meta_data["usage"] = usage
    out.drop()
    words = f"\n\n{error.message}" if out.text else error.message
    said: list[Event] = [TextDelta(words)] if error.message else []
    await out.finish([*said, last])


async def finish_silently(request: Request, out: Output) -> None:
    """End the turn without a reply."""
    out.drop()
    last = done(request, "silent")
    if out.granted:
        _state_grants(last, out)
    await out.finish([last])


async def report_before_failing(request: Request, out: Output) -> None:
    """Send the outcomes of calls that the failing turn has carried out and not reported. A caller
    who reads only of the failure would ask for these calls again.

    Response interceptors see them as they see a reply; if one fails, they are not sent.
    """
    ran = [row.id for row in out.carried_out.values() if row.state in RAN]
    if not ran or out.decided is None or (out.has_reported and not out.held):
        return
    data = outcomes_of(replace(out.decided, rows=out.decided.rows | out.carried_out), ran)
    if out.held:
        out.drop()
        await out.outcomes(data)
        request = request._replace(seen=out.seen or request.seen)
        data = (await alter(request, [Done()], out)).data
    await out.release(executed_events(data))


def done(request: Request, stop: StopReason, reply: AgentMessage | None = None) -> Done:
    """The turn's `done` event, with the echo of the request fields and the session."""
    last = Done(stop)
    if reply is not None:
        last = done_of(reply, stop)
        last.meta_data = dict(last.meta_data)
    if request.caller.request_fields:
        echo = mask(dict(request.caller.request_fields), request.secrets)
        last.meta_data["request_context"] = echo
    session, hidden = request.session, request.secrets
    last.session = session.dump() if hidden is NO_SECRETS else hidden_session(session, hidden)
    return last


def _keep_conversation(request: Request, reply: AgentMessage) -> None:
    key = request.session.conversation
    if key is not None:
        session = Session(reply.data.session)
        session.conversation = key
        reply.data.session = session.dump()


def _spoken(ending: Sequence[Event], out: Output) -> AgentMessage:
    reply = out.whole(ending)
    reply.content = "".join(out.text)
    return reply


def _copied(reply: AgentMessage) -> AgentMessage:
    """A copy of the reply for handlers: a handler that edits it for a log must not change the reply
    itself."""
    return AgentMessage.model_validate(json.loads(dump_json(reply)))


async def _record(request: Request, answer: Answer, last: Done, out: Output) -> None:
    """Write the proposals and the recorded reply before anybody can see them."""
    recorded, continuing = None, answer.settled.continuing
    if continuing is not None:
        reply = AgentMessage(content="".join(out.text), data=out.reported)
        # Each request gets the echo of its own fields.
        meta_data = {k: v for k, v in last.meta_data.items() if k != "request_context"}
        fold_done(replace(last, meta_data=meta_data), reply)
        turns = [id_ for id_, _ in continuing.turns]
        hidden = hidden_reply(reply, request.secrets)
        if usage := meta_data.get("usage"):
            # The names in it are ours, and any word may be a secret.
            hidden["meta_data"]["usage"] = usage
        recorded = {
            "reply": hidden,
            "stop_reason": answer.stop,
            "answers": request.references[-1],
            "proposals": [_plain(row) for row in answer.pending],
            "known": known_to_reply(answer.settled.decided, turns),
        }
    proposed = list(answer.pending) if answer.suspended else []
    await request.engine.ledger.propose(answer.suspended, proposed, continuing, recorded)


def _plain(row: Proposal) -> dict[str, Any]:
    """The fields of a proposal that a recorded reply needs in order to state it again."""
    return {name: getattr(row, name) for name in _STATED}
