"""The turn engine: it takes one ChatRequest and sends events, with one `done` at the end (design,
section 5).

A turn gets a place and a time limit, is intercepted or answered, and is finished. The steps that
make a choice are pure functions of values (`plan`, `outcomes_of`). Every step gets the `Request`,
which never changes, and the `Output`, which belongs to the turn. `UserCode` calls what users wrote,
never on the engine's own loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from sayso.context import Caller
from sayso.decisions.settling import NOTHING_DECIDED, Settled
from sayso.engine import Engine
from sayso.errors import Blocked, Busy, Silence, TurnTimeout
from sayso.hosting.streams import Sink
from sayso.turns.callables import ask_function
from sayso.turns.continuation import Given, give, replay, restate
from sayso.turns.ending import (
    Answer,
    answer_given,
    finish,
    finish_blocked,
    finish_silently,
    report_before_failing,
)
from sayso.turns.interceptors import intercept
from sayso.turns.output import Output
from sayso.turns.plan import AskFunction, AskModel, Replay, Restate, Step, nothing_to_answer, plan
from sayso.turns.request import Request, accepted, platform_in, request_of, started
from sayso.turns.settle import continuing, outcomes_of, settle
from sayso.turns.tool_loop import ask_model
from sayso.wire.masking import NO_SECRETS, hidden_trace, hide, mask
from sayso.wire.messages import ChatRequest, Message

logger = logging.getLogger("sayso.turn")


async def run_turn(
    engine: Engine,
    received: ChatRequest,
    more: Sequence[Message],
    caller: Caller,
    sink: Sink,
    *,
    involved: bool,
    timed: bool,
) -> None:
    """Run one turn into `sink`, ending with one `done`; `timed` applies its time limit here.

    `more` are the request's messages that carry more than text (`beyond_text`); `involved` says
    that one of them may concern a recorded call (`concerns_calls`).

    Raises RequestError if the request is refused, and TurnError or any error of user code if the
    turn fails; then the caller sends the terminal `error`.
    """
    if engine.host.stopping:
        raise Busy("the service is stopping")
    # Keep the await chain short: every level is resumed once per streamed chunk.
    slot = engine.slots.take_now() or await engine.slots.take()
    try:
        platform = await platform_in(engine, received, more) if more else None
        secrets = platform.secrets() if platform is not None else NO_SECRETS
        out = Output(sink, held=engine.holds, secrets=secrets, limit=engine.limits.reply)
        request = request_of(engine, received, more, platform, caller, slot, out, involved=involved)
        try:
            if not timed:
                await answered(request, out)
                return
            at = asyncio.get_running_loop().time() + request.left + 0.5
            async with asyncio.timeout_at(at):
                await answered(request, out)
        except TimeoutError:
            await _report(request, out)
            raise TurnTimeout(engine.limits.turn_time) from None
        except Exception as error:
            hide(error, request.secrets)
            raise
        finally:
            out.close()
    finally:
        slot.end()


async def answered(request: Request, out: Output) -> None:
    """Intercept or answer, then finish. If user code raises Blocked or Silence, that replaces the
    answer."""
    engine = request.engine
    given = None
    try:
        # A callable without interceptors needs no copy of the messages unless they have state.
        stateful = request.involved or request.session.stated
        if engine.intercepts or (stateful and engine.agent.function):
            request, given = await intercept(request, out)
            out.seen = request.seen
        if given is not None:
            await accepted(request, out)
            await finish(request, await answer_given(request, given, out), out)
        elif engine.agent.function is not None and request.context.has_decision:
            # A callable that carries out approved calls itself continues when the client leaves.
            await engine.carried(_decided(request, out), out.unrecorded)
        elif request.involved and (settled := await settle(request, out)) is not NOTHING_DECIDED:
            await _planned(request, settled, out)
        else:
            # Most turns decide nothing and have nothing to continue.
            if request.empty:
                raise nothing_to_answer(request.received.messages)
            if engine.events_on:
                await accepted(request, out)
            await finish(request, await _asked(request, out), out)
    except Blocked as error:
        await started(request, out)
        await finish_blocked(request, error, out)
    except Silence as error:
        logger.debug("silent: %s", mask(error.reasoning, request.secrets))
        await started(request, out)
        await finish_silently(request, out)
    except Exception:
        await _report(request, out)
        raise


def _asked(request: Request, out: Output) -> Awaitable[Answer]:
    """The agent's own answer to a request that decides nothing."""
    if request.engine.agent.function is not None:
        return ask_function(Given(request, NOTHING_DECIDED), out)
    return ask_model(request, NOTHING_DECIDED, out)


async def _decided(request: Request, out: Output) -> None:
    await _planned(request, await settle(request, out), out)


async def _planned(request: Request, settled: Settled, out: Output) -> None:
    """Plan what follows the decisions of the request, then take the step."""
    step = plan(request.asking(settled.decided))
    taken = _taken(request, settled, step, out)
    if isinstance(step, AskFunction) and step.unacknowledged:
        # The callable carries out calls that earlier requests approved, so it also continues when
        # the client leaves.
        await request.engine.carried(taken, out.unrecorded)
    else:
        await taken


async def _taken(request: Request, settled: Settled, planned: Step, out: Output) -> None:
    await accepted(request, out)
    async with continuing(request, settled, planned) as (settled, step):
        match step:
            case Restate():
                answer = await restate(request, settled, step, out)
            case Replay():
                request, answer = await replay(request, settled, step, out)
            case AskFunction():
                given = await give(request, settled, step, out)
                request, answer = given.request, await ask_function(given, out)
            case AskModel():
                await out.outcomes(outcomes_of(settled.decided, settled.ran))
                answer = await ask_model(request, settled, out)
        await finish(request, answer, out)


async def _report(request: Request, out: Output) -> None:
    """Report the calls that were carried out before the turn fails; another failure does not change
    its error."""
    try:
        await report_before_failing(request, out)
    except Exception as error:
        trace = hidden_trace(error, request.secrets)
        logger.warning("outcomes could not be reported with a failure\n%s", trace)
