"""Approved calls run, and their outcomes are recorded even if their turn fails."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple

from sayso.commands import CommandResult
from sayso.context import RequestContext, Session
from sayso.decisions.deed import acting
from sayso.decisions.starts import Start, hand_back, is_ready, rested
from sayso.engine import Engine, Unrecorded
from sayso.errors import LedgerUnavailable, reasons
from sayso.gate import Late, NotEnded, Outcome
from sayso.ledger import Proposal
from sayso.ledger.claims import CallNotStarted, Continuation, Grant
from sayso.ledger.writes import accepted
from sayso.observing.calls import observed_command
from sayso.policy import forbidden
from sayso.wire.json_bytes import dump_json
from sayso.wire.masking import cut, error_text, hidden_trace, mask
from sayso.wire.messages import CommandFile

logger = logging.getLogger("sayso.turn")
_NOTE = 1024
_AGAIN = "(Run again: the outcome of an earlier run is unknown.)"


class Ended(NamedTuple):
    """A call that was carried out: its row, its outcome, and the continuation of its turn if the
    outcome's transaction claimed that."""

    row: Proposal
    outcome: Outcome
    continuing: Continuation | None = None


_End = Callable[[Outcome], Awaitable[Ended]]


class Recorded(NamedTuple):
    """Whether the outcome was recorded (false if a later claim made this one void), and the
    continuation that the same transaction claimed."""

    kept: bool
    continuing: Continuation | None = None


async def carry_out(
    engine: Engine,
    start: Start,
    context: RequestContext,
    unrecorded: Unrecorded,
    late: Callable[[Ended], Awaitable[None]],
    request: str | None = None,
) -> Ended | None:
    """Run an approved call once, record its outcome and its session change, and return how it
    ended.

    The call is claimed once it has a place, and starts there immediately. Returns None for a call
    that does not start and is handed back: `start` has the reason, or its row shows which process
    runs it. Returns None also for a call that continues after its request has ended; `late` is
    called when it ends. Never raises an error of the tool; see `record` for `unrecorded` and
    `request`.
    """
    while True:
        if not await is_ready(engine, start):
            if await rested(start):
                continue
            return None
        ended = partial(_ended, engine, start, context, state_of(context.session), unrecorded)

        async def end_late(outcome: Outcome, ended: _End = ended) -> None:
            await late(await ended(outcome))

        try:
            outcome = await _outcome(engine, start, acting(start.row, context), end_late)
        except CallNotStarted:
            if await hand_back(engine, start):
                continue
            return None
        except NotEnded:
            assert start.grant is not None
            await engine.ledger.abandon(start.grant)
            return None
        return await ended(outcome, request)


async def _outcome(engine: Engine, start: Start, context: RequestContext, late: Late) -> Outcome:
    row = start.row
    try:
        if row.kind == "command":
            work = _command(engine, start, context)
            return await observed_command(engine.observers, row, context, work)
        return await _tool(engine, start, context, late)
    except (CallNotStarted, NotEnded):
        raise
    except Exception as error:
        secrets = context.platform.secrets()
        logger.error("call %s of %s failed\n%s", row.id, row.name, hidden_trace(error, secrets))
        return Outcome("FAILED", error_text(error, secrets))


async def _ended(
    engine: Engine,
    start: Start,
    context: RequestContext,
    before: dict[str, Any] | None,
    unrecorded: Unrecorded,
    outcome: Outcome,
    request: str | None = None,
) -> Ended:
    """Record the outcome of a call that has ended."""
    row, grant = start.row, start.grant
    assert grant is not None
    if grant.again:
        outcome = _again(row, outcome)
    # A command changes no session; calls that ran at the same time made any change that is seen
    # here.
    hidden = context.platform.secrets()
    change = change_of(before, context.session, hidden) if row.kind == "tool_call" else None
    recorded = await record(engine, grant, outcome, change, request, unrecorded)
    if recorded.kept:
        row = replace(
            row,
            state=outcome.state,
            output=outcome.output,
            duration=outcome.duration,
            session=change,
        )
    else:
        row = (await engine.ledger.outcomes([row.id], time.monotonic() + 30))[row.id]
    return Ended(row, outcome, recorded.continuing)


def _again(row: Proposal, outcome: Outcome) -> Outcome:
    """The outcome of a call that was run again because the outcome of its earlier run is unknown.
    It stays unknown if this run did not start."""
    if not outcome.began:
        unknown = (row.output or "Outcome unknown:").splitlines()[0]
        return Outcome("INDETERMINATE", f"{unknown}\nNot run again: {outcome.output}")
    # Outputs of calls that failed begin with `Error:` or `Outcome unknown:`, so this line comes
    # last there.
    lines = [_AGAIN, outcome.output] if outcome.state == "DONE" else [outcome.output, _AGAIN]
    return replace(outcome, output="\n".join(lines))


async def record(
    engine: Engine,
    grant: Grant,
    outcome: Outcome,
    change: dict[str, Any] | None = None,
    request: str | None = None,
    unrecorded: Unrecorded | None = None,
) -> Recorded:
    """Record the outcome of a call. If it was the only call of its turn, claim the continuation of
    the turn for the message whose digest is `request`.

    Keeps trying while the store is unavailable: an outcome must not be lost, and a row that nobody
    finishes would look alive for as long as this process. If that takes long, `unrecorded` gets the
    error, for the request that waits.
    """
    # Only the first attempt claims the turn, since each one would claim it anew; a request that
    # still waits continues the turn itself.
    tries = chain([request], repeat(None))

    id_ = grant.proposal.id

    def refused(error: LedgerUnavailable) -> None:
        engine.unrecorded.add(id_)
        logger.error("the outcome of call %s is not recorded yet: %s", id_, reasons(error))
        try:
            engine.ledger.check_recorded(id_)
        except LedgerUnavailable as late:
            if unrecorded is not None and not unrecorded.done():
                unrecorded.set_result(late)

    try:
        return await accepted(lambda: _finish(engine, grant, outcome, change, next(tries)), refused)
    finally:
        engine.unrecorded.discard(id_)


async def _finish(
    engine: Engine,
    grant: Grant,
    outcome: Outcome,
    change: dict[str, Any] | None,
    request: str | None,
) -> Recorded:
    ledger, state, output, took = engine.ledger, outcome.state, outcome.output, outcome.duration
    if request is None:
        return Recorded(await ledger.finish(grant, state, output, duration=took, session=change))
    last = await ledger.finish_last(grant, state, output, request, duration=took, session=change)
    return Recorded(*last)


async def _tool(engine: Engine, start: Start, context: RequestContext, late: Late) -> Outcome:
    row, grant = start.row, start.grant
    assert grant is not None
    tool = engine.agent.tools.get(row.name)
    if tool is None:
        text = f"Error: there is no tool {row.name!r} any more"
        return Outcome("FAILED", text, began=False)

    async def known(outcome: Outcome) -> None:
        await record(engine, grant, outcome)

    place, session = start.place, context.session
    # Event handlers already have the event of a call that exceeded its timeout.
    then = late if tool.timeout is None else known
    return await engine.gate.run(
        tool, row.runs, session, context, grant, then, place, until=start.ends
    )


async def _command(engine: Engine, start: Start, context: RequestContext) -> Outcome:
    row, grant, place, shell = start.row, start.grant, start.place, engine.agent.commands
    if shell is None or place is None:
        return Outcome("FAILED", "Error: this agent runs no commands", began=False)
    assert grant is not None
    # A rule may be newer than the approval.
    if engine.gate.policy.forbids(row.name, row.input, context.stated_platform):
        return Outcome("FAILED", f"Error: {forbidden(row.name)}", began=False)
    grant.spend()
    began = time.perf_counter()
    files = [CommandFile.model_validate(f) for f in row.input.get("files") or []]
    # A command that was never proposed may have no conversation id.
    conversation = row.conversation or row.turn

    async def run() -> CommandResult:
        return await shell.run(
            row.input["command"],
            files,
            conversation=conversation,
            context=context.for_call(row.id, grant.fence),
            begin=grant.begin,
        )

    result = await engine.code.in_place(place, run)
    secrets = context.platform.secrets()
    limit = engine.limits.command_output
    if limit >= shell.max_output:
        # The shell truncated the output at the same length, so its last line, which says so, needs
        # this extra room.
        limit += _NOTE
    output = cut(mask(result.output, secrets), limit)
    took = time.perf_counter() - began
    if result.failed:
        output = output if output.startswith("Error:") else f"Error: {output}"
        return Outcome("FAILED", output, took)
    return Outcome("DONE", output, took)


def change_of(
    before: dict[str, Any] | None, session: Session, secrets: Sequence[str]
) -> dict[str, Any] | None:
    """The change of the session since its `state_of` was `before`, without the request's secrets;
    None if it did not change, or if the change cannot be found out."""
    after = state_of(session)
    if before is None or after is None:
        return None
    changed = {k: v for k, v in after.items() if k not in before or before[k] != v}
    gone = [k for k in before if k not in after]
    if not changed and not gone:
        return None
    return {"set": mask(changed, secrets), "delete": mask(gone, secrets)}


def state_of(session: Session) -> dict[str, Any] | None:
    """The session as JSON values; None if it cannot be written as JSON, since user code may have
    changed a value in place."""
    try:
        state: dict[str, Any] = json.loads(dump_json(session.shown() or {}))
    except Exception:
        # The reply fails for the same reason; the outcome of the call must not be lost with it.
        return None
    return state
