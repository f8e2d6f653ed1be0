"""The end of a turn: the reply is altered, recorded, then sent."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from assent import approvals
from assent.errors import AgentError
from assent.events import ApprovalRequested, Done, Event, MessageAdded, StopReason, fold_done
from assent.ledger import Proposal, SuspendedTurn
from assent.lenient_json import dump_json
from assent.masking import mask, mask_sent
from assent.messages import AgentMessage, Data
from assent.models import Turn, dump_turns
from assent.session import Session
from assent.turns.execution import change_of, state_of
from assent.turns.output import done_of, proposal_events

if TYPE_CHECKING:
    from assent.turns.turn import RunningTurn

_STATED = (
    "id kind name input turn index call_id created expires description input_description intent"
).split()
# They leave as recorded, whatever stands here.
_PROPOSALS = {"data": {"tool_calls", "cmds", "approvals"}}


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
    dumped = dump_turns(transcript)
    masked = mask(dumped, turn.secrets)
    suspended = SuspendedTurn(
        id=secrets.token_hex(16),
        created=0.0,
        conversation=key,
        reference=references[-1],
        principal=turn.who.principal,
        tenant=turn.who.tenant,
        user=turn.who.user,
        transcript=masked,
        # A provider refuses blocks of its own that read otherwise.
        prefix=prefix if masked == dumped else "",
        calls=[p.id for p in proposals],
        from_callable=turn.engine.agent.function is not None,
    )
    for i, p in enumerate(proposals):
        p.turn, p.index = suspended.id, i
        p.conversation, p.reference = key, references[-1]
        p.description = mask(p.description, turn.secrets)
        p.input_description = mask(p.input_description, turn.secrets)
        p.intent = mask(p.intent, turn.secrets)
    await finish(turn, "approval_required", pending=proposals, suspended=suspended, reply=reply)


async def finish(
    turn: RunningTurn,
    stop: StopReason,
    *,
    pending: Sequence[Proposal] = (),
    suspended: SuspendedTurn | None = None,
    reply: AgentMessage | None = None,
    record: bool = True,
) -> None:
    """Alter, record and send the rest of the reply; no event follows."""
    last = done(turn, stop, reply)
    ending: list[Event] = [*proposal_events(pending), last] if pending else [last]
    altered = None
    if turn.out.held:
        # What interceptors do to the session in place is no part of what is recorded.
        last.session = copy.deepcopy(last.session)
        altered = await _alter(turn, ending)
    if suspended is not None or (record and turn.continuing is not None):
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


def done(turn: RunningTurn, stop: StopReason, reply: AgentMessage | None = None) -> Done:
    """The turn's `done` event, with the echo of the request fields and the session."""
    last = Done(stop)
    if reply is not None:
        last = done_of(reply, stop)
        last.meta_data = dict(last.meta_data)
    if turn.caller.request_fields:
        echo = mask(dict(turn.caller.request_fields), turn.secrets)
        last.meta_data["request_context"] = echo
    last.session = mask_sent(turn.session.dump(), turn.secrets)
    return last


async def _alter(turn: RunningTurn, ending: Sequence[Event]) -> AgentMessage:
    """The reply after the response interceptors, one strictly after another."""
    # A copy: what interceptors do to it in place must not reach the proposals.
    reply = turn.out.whole(ending).model_copy(deep=True)
    reply.data.session = Session(reply.data.session).shown()
    for impl in turn.hooks("intercept_response"):
        shown, before = copy.deepcopy(reply.data.session), state_of(turn.session)
        bound = impl.bound(
            response=reply, request=turn.seen, context=turn.context, host=turn.engine.host
        )
        given = await turn.user_code(bound, impl.plugin)
        if isinstance(given, str):
            reply.content = given
        elif isinstance(given, AgentMessage):
            # They may keep it for all callers; it gets this one's session.
            reply = given if given is reply else given.model_copy(deep=True)
        elif given is not None:
            raise AgentError(
                f"a response interceptor returned what is no message: plugin {impl.plugin!r}"
            )
        if not isinstance(reply.data, Data) or not isinstance(reply.data.session, Mapping | None):
            raise AgentError(f"a response interceptor left no valid message, of {impl.plugin!r}")
        _keep_session(turn, reply, shown, before)
    try:
        if not isinstance(reply.content, str):
            # Pydantic takes bytes for text, where no event does.
            raise TypeError(f"a content of {type(reply.content).__name__}")
        AgentMessage.model_validate(reply.model_dump(exclude=_PROPOSALS, warnings=False))
    except (TypeError, ValueError) as error:
        among = ", ".join(repr(impl.plugin) for impl in turn.hooks("intercept_response"))
        raise AgentError(f"a response interceptor left no valid message, of {among}") from error
    return reply


def _keep_session(
    turn: RunningTurn,
    reply: AgentMessage,
    shown: dict[str, Any] | None,
    before: dict[str, Any] | None,
) -> None:
    """Make the reply state what an interceptor did to the session, in the reply and in its context.

    The interceptor was shown `shown` in the reply; `before` was the state of the context's session.
    """
    stated = shown if reply.data.session is None else dict(reply.data.session)
    change = change_of(before, turn.session)
    if change is not None:
        merged = {**(stated or {}), **mask(change["set"], turn.secrets)}
        stated = {k: v for k, v in merged.items() if k not in change["delete"]}
    # What the interceptor holds may change in place.
    reply.data.session = copy.deepcopy(stated)


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
        recorded = mask(
            {
                "reply": from_json(dump_json(reply)),
                "stop_reason": stop,
                "proposals": [_plain(row) for row in pending],
            },
            turn.secrets,
        )
    await turn.engine.ledger.propose(
        suspended, list(pending) if suspended else [], turn.continuing, recorded
    )


def _plain(row: Proposal) -> dict[str, Any]:
    """The fields of a proposal that a recorded reply needs to state it again."""
    return {name: getattr(row, name) for name in _STATED}
