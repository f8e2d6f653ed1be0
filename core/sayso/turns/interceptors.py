"""The interceptors of requests and replies, run strictly one after another (design, section 4)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sayso.context import Session
from sayso.conversation import approvals
from sayso.decisions.execution import change_of, state_of
from sayso.decisions.settling import look
from sayso.errors import AgentError, Blocked, Exhausted, InvalidRequest, Silence
from sayso.ledger import OPEN, Proposal
from sayso.ledger.choices import Choice
from sayso.plugins.implementations import Impl
from sayso.turns.output import Output
from sayso.turns.request import Request
from sayso.turns.settle import deciding
from sayso.wire.chat import check_messages
from sayso.wire.events import Event
from sayso.wire.messages import (
    AgentMessage,
    ChatRequest,
    Data,
    Message,
    beyond_text,
)

# Proposals are sent as they were recorded; the changes that an interceptor makes to these fields
# have no effect.
_PROPOSALS = {"data": {"tool_calls", "cmds", "approvals"}}


async def intercept(request: Request, out: Output) -> tuple[Request, AgentMessage | None]:
    """Run the request interceptors, one strictly after another; an answer ends the turn."""
    implementations = request.engine.plugins.implementations("intercept_request")
    if implementations or any(
        m.data is not None and approvals.has_state(m.data)
        for m in beyond_text(request.received.messages)
    ):
        request = await _shown(request, out)
    answer = None
    for impl in implementations:
        bound = impl.bound(request=request.seen, context=request.context, host=request.engine.host)
        given = await _call(request, bound, impl.plugin)
        if isinstance(given, AgentMessage):
            answer = given
            break
        if isinstance(given, ChatRequest):
            request = request._replace(seen=given)
        elif given is not None:
            failure = f"a request interceptor returned no request: plugin {impl.plugin!r}"
            raise AgentError(failure) from _wrong(given, "a ChatRequest, an AgentMessage or None")
    if implementations:
        _check_request(request, implementations)
    return request, answer


def _wrong(given: object, wanted: str) -> TypeError:
    """The cause that the log shows for a result of the wrong type."""
    return TypeError(f"it gave {type(given).__name__}; return {wanted}")


def _check_request(request: Request, implementations: Sequence[Impl]) -> None:
    """Raise AgentError if the interceptors left no valid request; at this point nothing has run
    yet."""
    failure = f"a request interceptor left no valid request, of {_among(implementations)}"
    # Authors may return dicts by mistake, so check the types.
    messages = request.seen.messages or []
    if not all(isinstance(m, Message) and isinstance(m.content, str) for m in messages):
        raise AgentError(f"{failure}: each message is a Message")
    try:
        check_messages(request.seen)
    except InvalidRequest as error:
        raise AgentError(failure) from error


async def _shown(request: Request, out: Output) -> Request:
    """The request that user code sees. A request that would be refused later is refused here."""
    live: set[str] = set()
    states: dict[str, str] = {}
    decided: Sequence[tuple[Choice, Proposal]] = ()
    if request.involved:
        looked = await look(deciding(request, out))
        decided = looked.chosen
        live = {row.id for c, row in looked.chosen if c.approved and row.state in OPEN}
        states = {row.id: row.state for row in looked.rows.values()}
        # Without a decision or a recorded call this is a turn like most.
        request = request._replace(involved=bool(request.choices or looked.rows))
    seen = approvals.as_seen(request.received, live, states, decided)
    return request._replace(seen=seen)


async def alter(request: Request, ending: Sequence[Event], out: Output) -> AgentMessage:
    """The reply after the response interceptors, one strictly after another."""
    # Interceptors change a copy, since their changes must not reach the proposals.
    reply = out.whole(ending).model_copy(deep=True)
    reply.data.session = Session(reply.data.session).shown()
    return await _altered(request, reply)


async def altered_texts(request: Request, texts: Iterable[str | None]) -> dict[str | None, str]:
    """Each text of the agent that is sent beside its reply, such as the intent of a call, after the
    response interceptors; they get it as the content of a message of its own."""
    altered: dict[str | None, str] = {}
    for text in dict.fromkeys(texts):
        if text:
            altered[text] = (await _altered(request, AgentMessage(content=text))).content
    return altered


async def _altered(request: Request, reply: AgentMessage) -> AgentMessage:
    for impl in request.engine.plugins.implementations("intercept_response"):
        shown, before = copy.deepcopy(reply.data.session), state_of(request.session)
        bound = impl.bound(
            response=reply, request=request.seen, context=request.context, host=request.engine.host
        )
        given = await _call(request, bound, impl.plugin)
        if isinstance(given, str):
            reply.content = given
        elif isinstance(given, AgentMessage):
            # The interceptor may keep this message for all callers, so the session of this caller
            # goes into a copy.
            reply = given if given is reply else given.model_copy(deep=True)
        elif given is not None:
            failure = f"a response interceptor returned no message: plugin {impl.plugin!r}"
            raise AgentError(failure) from _wrong(given, "an AgentMessage, a str or None")
        if not isinstance(reply.data, Data) or not isinstance(reply.data.session, Mapping | None):
            raise AgentError(f"a response interceptor left no valid message, of {impl.plugin!r}")
        _keep_session(request, reply, shown, before)
    _check_reply(request, reply)
    return reply


def _check_reply(request: Request, reply: AgentMessage) -> None:
    """Raise AgentError if the interceptors left no valid message."""
    try:
        if not isinstance(reply.content, str):
            # Pydantic accepts bytes as text; events do not.
            raise TypeError(f"a content of {type(reply.content).__name__}")
        AgentMessage.model_validate(reply.model_dump(exclude=_PROPOSALS, warnings=False))
    except (TypeError, ValueError) as error:
        among = _among(request.engine.plugins.implementations("intercept_response"))
        raise AgentError(f"a response interceptor left no valid message, of {among}") from error


def _among(implementations: Sequence[Impl]) -> str:
    # An agent may have several interceptors, and the plugin of all of them is `agent`.
    return ", ".join(repr(name) for name in dict.fromkeys(impl.plugin for impl in implementations))


def _keep_session(
    request: Request,
    reply: AgentMessage,
    shown: dict[str, Any] | None,
    before: dict[str, Any] | None,
) -> None:
    """Make the reply state the changes that an interceptor made to the session, in the reply and in
    its context.

    `shown` is the session that the reply showed to the interceptor; `before` was the state of the
    context's session.
    """
    stated = shown if reply.data.session is None else dict(reply.data.session)
    change = change_of(before, request.session, request.secrets)
    if change is not None:
        merged = {**(stated or {}), **change["set"]}
        stated = {k: v for k, v in merged.items() if k not in change["delete"]}
    # The interceptor may keep this object and change it.
    reply.data.session = copy.deepcopy(stated)


async def _call(request: Request, bound: Callable[[], Any], plugin: str) -> Any:
    """The result of an interceptor; each error that it raises, except for Blocked and Silence,
    becomes an AgentError. Raises Exhausted if too many of its calls never end."""
    try:
        return await request.engine.call_hook(bound, plugin)
    except (Blocked, Silence, AgentError, Exhausted):
        raise
    except Exception as error:
        raise AgentError(f"an interceptor of plugin {plugin!r} failed") from error
