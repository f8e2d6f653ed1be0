"""Running an approved call and recording its outcome, whatever becomes of the turn."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sayso.commands import CommandResult
from sayso.context import RequestContext
from sayso.decisions.deed import acting
from sayso.decisions.starts import Start, hand_back, is_ready, rested
from sayso.engine import Engine, Unrecorded
from sayso.errors import LedgerUnavailable, reasons
from sayso.gate import NotEnded, Outcome
from sayso.ledger import Proposal
from sayso.ledger.beginnings import NotBegun
from sayso.ledger.choices import Continuation, Grant
from sayso.wire.lenient_json import dump_json
from sayso.wire.masking import mask
from sayso.wire.messages import CommandFile
from sayso.wire.session import Session
from sayso.wire.traces import cut, error_text, hidden_trace

logger = logging.getLogger("sayso.turn")
_NOTE = 1024
_AGAIN = "(Run again: the outcome of an earlier run is unknown.)"

Ran = Callable[[Proposal, Outcome], Awaitable[None]]
Late = Callable[[Outcome], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Resume:
    """The continuation to claim with the outcome of a call, if that was the only one of its turn:
    for the message whose digest is `request`. `take` gets it."""

    request: str
    take: Callable[[Continuation], None]


async def carry_out(
    engine: Engine,
    start: Start,
    context: RequestContext,
    ran: Ran,
    unrecorded: Unrecorded,
    resume: Resume | None = None,
) -> None:
    """Run an approved call once, record its outcome and its session change, and tell `ran`.

    It is claimed in its place and begins there directly behind. One that does not come to that is
    handed back, and `start` tells why; its row tells of one that another request runs. Never raises
    for what the tool does; see `record` for `unrecorded`.
    """
    while True:
        if not await is_ready(engine, start):
            if await rested(start):
                continue
            return
        before = state_of(context.session)
        ended = partial(_ended, engine, start, context, before, ran, unrecorded)
        try:
            outcome = await _outcome(engine, start, acting(start.row, context), ended)
        except NotBegun:
            if await hand_back(engine, start):
                continue
            return
        except NotEnded:
            assert start.grant is not None
            await engine.ledger.abandon(start.grant)
            return
        await ended(outcome, resume)
        return


async def _outcome(engine: Engine, start: Start, context: RequestContext, ended: Late) -> Outcome:
    row = start.row
    try:
        if row.kind == "command":
            return await _command(engine, start, context)
        return await _tool(engine, start, context, ended)
    except (NotBegun, NotEnded):
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
    ran: Ran,
    unrecorded: Unrecorded,
    outcome: Outcome,
    resume: Resume | None = None,
) -> None:
    """Record the outcome of a call that has ended, and tell `ran`."""
    row, grant = start.row, start.grant
    assert grant is not None
    if grant.again:
        outcome = _again(row, outcome)
    # What has changed while a command ran was done by calls beside it.
    hidden = context.platform.secrets()
    change = change_of(before, context.session, hidden) if row.kind == "tool_call" else None
    if await record(engine, grant, outcome, change, resume, unrecorded):
        row = replace(
            row,
            state=outcome.state,
            output=outcome.output,
            duration=outcome.duration,
            session=change,
        )
    else:
        row = (await engine.ledger.outcomes([row.id], time.monotonic() + 30))[row.id]
    await ran(row, outcome)


def _again(row: Proposal, outcome: Outcome) -> Outcome:
    """The outcome of a call that was run again because the outcome of an earlier run is unknown; it
    stays unknown if this run did not begin."""
    if not outcome.began:
        unknown = (row.output or "Outcome unknown:").splitlines()[0]
        return Outcome("INDETERMINATE", f"{unknown}\nNot run again: {outcome.output}")
    # What did not end well begins with what it is: `Error:` or `Outcome unknown:`.
    told = [_AGAIN, outcome.output] if outcome.state == "DONE" else [outcome.output, _AGAIN]
    return replace(outcome, output="\n".join(told))


async def record(
    engine: Engine,
    grant: Grant,
    outcome: Outcome,
    change: dict[str, Any] | None = None,
    resume: Resume | None = None,
    unrecorded: Unrecorded | None = None,
) -> bool:
    """Record the outcome of a call; false when a later claim made ours void.

    Keeps trying while the store is away: an outcome must not be lost, and a row that nobody
    finishes would look alive for as long as this process. If that takes long, `unrecorded` gets the
    error, for the request that waits.
    """
    pause = 0.05
    while True:
        try:
            return await _finish(engine, grant, outcome, change, resume)
        except LedgerUnavailable as error:
            logger.error(
                "the outcome of call %s is not recorded yet: %s", grant.proposal.id, reasons(error)
            )
        # Each try would claim the turn anew; who still waits continues it.
        resume = None
        try:
            engine.ledger.check_recorded(grant.proposal.id)
        except LedgerUnavailable as error:
            if unrecorded is not None and not unrecorded.done():
                unrecorded.set_result(error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, 5.0)


async def _finish(
    engine: Engine,
    grant: Grant,
    outcome: Outcome,
    change: dict[str, Any] | None,
    resume: Resume | None,
) -> bool:
    ledger, state, output, took = engine.ledger, outcome.state, outcome.output, outcome.duration
    if resume is None:
        return await ledger.finish(grant, state, output, duration=took, session=change)
    recorded, continuing = await ledger.finish_last(
        grant, state, output, resume.request, duration=took, session=change
    )
    if continuing is not None:
        resume.take(continuing)
    return recorded


async def _tool(engine: Engine, start: Start, context: RequestContext, ended: Late) -> Outcome:
    row, grant = start.row, start.grant
    assert grant is not None
    tool = engine.agent.tools.get(row.name)
    if tool is None:
        text = f"Error: there is no tool {row.name!r} any more"
        return Outcome("FAILED", text, began=False)

    async def late(outcome: Outcome) -> None:
        await record(engine, grant, outcome)

    place, session = start.place, context.session
    # Of a call that was given up as unknown the handlers have heard already.
    then = ended if tool.timeout is None else late
    return await engine.gate.run(
        tool, row.runs, session, context, grant, then, place, until=start.ends
    )


async def _command(engine: Engine, start: Start, context: RequestContext) -> Outcome:
    row, grant, place, shell = start.row, start.grant, start.place, engine.agent.commands
    if shell is None or place is None:
        return Outcome("FAILED", "Error: this agent runs no commands", began=False)
    assert grant is not None
    grant.spend()
    began = time.perf_counter()
    files = [CommandFile.model_validate(f) for f in row.input.get("files") or []]
    # A command that was never proposed may come without a conversation's id.
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
        # What the shell has cut at the same length keeps the line that says so.
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
    """How the session has changed since its `state_of` was `before`, without the request's secrets;
    None if it has not, or that cannot be told."""
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
        # The reply fails for it, too; the outcome of the call must not be lost with it.
        return None
    return state
