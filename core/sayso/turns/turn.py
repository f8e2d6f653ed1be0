"""The turn engine: one ChatRequest in, its events out (design, section 5).

The order of a turn: request interceptors, decisions (`decisions`), the model and its tools
(`tool_loop`) or a plain callable (`callables`), response interceptors and the record (`ending`).
The steps work on one `RunningTurn` (`state`). Everything that users wrote is called through
`UserCode`, never on the engine's own loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from sayso.context import Caller
from sayso.engine import Engine
from sayso.errors import Blocked, Busy, Silence, TurnTimeout
from sayso.hosting.streams import Sink
from sayso.turns.callables import ask_function
from sayso.turns.continuation import next_step, resume
from sayso.turns.decisions import carry_decisions
from sayso.turns.ending import done, finish, report_before_failing
from sayso.turns.interceptors import intercept
from sayso.turns.plan import GoOn, Restate, nothing_to_answer
from sayso.turns.state import RunningTurn
from sayso.turns.tool_loop import ask_model
from sayso.wire.events import Event, TextDelta
from sayso.wire.masking import mask
from sayso.wire.messages import AgentMessage, ChatRequest, Message
from sayso.wire.traces import hidden_trace, hide

logger = logging.getLogger("sayso.turn")
T = TypeVar("T")


async def run_turn(
    engine: Engine,
    request: ChatRequest,
    more: Sequence[Message],
    caller: Caller,
    sink: Sink,
    *,
    involved: bool,
    timed: bool,
) -> None:
    """Run one turn into `sink`, ending with one `done`; `timed` enforces its time limit here.

    `more` are the request's messages that carry more than text (`beyond_text`); `involved` says
    that one of them shows or decides a call (`carries_calls`).

    Raises RequestError when the request is refused, TurnError and whatever user code raised
    when the turn failed; then the caller sends the terminal `error`.
    """
    if engine.host.stopping:
        raise Busy("the service is stopping")
    # With as few coroutines as can be: each takes its part of every piece of a stream.
    slot = engine.slots.take_now() or await engine.slots.take()
    try:
        turn = RunningTurn(engine, request, more, caller, sink, slot, involved=involved)
        try:
            if not timed:
                await answered(turn)
                return
            at = asyncio.get_running_loop().time() + turn.left() + 0.5
            async with asyncio.timeout_at(at):
                await answered(turn)
        except TimeoutError:
            await failing(turn)
            raise TurnTimeout(engine.limits.turn_time) from None
        except Exception as error:
            hide(error, turn.secrets)
            raise
        finally:
            turn.out.close()
    finally:
        slot.end()


async def answered(turn: RunningTurn) -> None:
    """Run the turn to its `done`; a failed continuation is given back.

    Blocked and Silence of user code are another answer in its place.
    """
    answer = None
    try:
        # A callable alone gets the messages in a list of its own; most show no state.
        stateful = turn.involved or turn.session.stated
        if turn.engine.intercepts or (stateful and turn.engine.agent.function):
            answer = await intercept(turn)
        if answer is not None:
            await turn.accepted()
            await _answer(turn, answer)
        elif not turn.involved:
            # Most turns: nothing was decided, and there is nothing to continue.
            if turn.empty:
                raise nothing_to_answer(turn.request.messages)
            if turn.events_on:
                await turn.accepted()
            await _answering(turn)
        elif turn.engine.agent.function is not None and turn.context.has_decision:
            # What carries an approval out itself is not cut off by a client that leaves.
            await turn.engine.carried(_decided(turn), turn.unrecorded)
        else:
            await _decided(turn)
    except Blocked as error:
        await turn.started()
        await _blocked(turn, error)
    except Silence as error:
        logger.debug("silent: %s", mask(error.reasoning, turn.secrets))
        await turn.started()
        turn.out.drop()
        await turn.out.finish([done(turn, "silent")])
    except Exception:
        await failing(turn)
        raise


async def failing(turn: RunningTurn) -> None:
    """Report what was carried out before the turn fails; another failure changes nothing."""
    try:
        await report_before_failing(turn)
    except Exception as error:
        trace = hidden_trace(error, turn.secrets)
        logger.warning("outcomes could not be reported with a failure\n%s", trace)


async def _decided(turn: RunningTurn) -> None:
    """Carry the decisions out, then answer."""
    known = await _releasing(turn, carry_decisions(turn))
    step = next_step(turn)
    rest = _releasing(turn, _go_on(turn, step, known))
    if isinstance(step, GoOn) and step.unacknowledged:
        # The calls that a callable has yet to carry out may be approved in the history alone.
        await turn.engine.carried(rest, turn.unrecorded)
    else:
        await rest


async def _go_on(turn: RunningTurn, step: Restate | GoOn, known: set[str]) -> None:
    """Answer, once the decisions are recorded and what may run at once has run."""
    if not await resume(turn, step, known):
        await turn.accepted()
        await _answering(turn)


def _answering(turn: RunningTurn) -> Awaitable[None]:
    """The agent's own answer."""
    function = turn.engine.agent.function
    return ask_model(turn) if function is None else ask_function(turn, function)


async def _releasing(turn: RunningTurn, work: Awaitable[T]) -> T:
    """The result of `work`; where it fails, the continuation that it claimed is given back."""
    try:
        return await work
    except BaseException:
        turn.gone = True
        if turn.continuing is not None:
            released = turn.engine.keep(turn.engine.ledger.release(turn.continuing))
            await asyncio.shield(released)
        raise


async def _blocked(turn: RunningTurn, error: Blocked) -> None:
    last = done(turn, "blocked")
    last.meta_data["blocked"] = {"code": error.code}
    turn.out.drop()
    words = f"\n\n{error.message}" if turn.out.text else error.message
    said: list[Event] = [TextDelta(words)] if error.message else []
    await turn.out.finish([*said, last])


async def _answer(turn: RunningTurn, answer: AgentMessage) -> None:
    """Send an interceptor's own reply; it can propose nothing."""
    data = answer.data.model_copy(update={"tool_calls": [], "cmds": [], "approvals": []})
    reply = answer.model_copy(update={"data": data})
    turn.set_session(data.session)
    await turn.out.outcomes(data)
    await turn.say(reply.content)
    await finish(turn, "end_turn", reply=reply)
