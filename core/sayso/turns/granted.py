"""Calls that a standing grant approves run within the turn that asks for them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sayso.conversation import approvals
from sayso.decisions.deed import hinders
from sayso.decisions.execution import Ended, carry_out
from sayso.decisions.granting import Grants
from sayso.decisions.starts import Start, latest
from sayso.gate import Outcome
from sayso.ledger import RAN, Proposal
from sayso.ledger.choices import Choice, Decided
from sayso.turns.ending import alter_texts
from sayso.turns.output import Output
from sayso.turns.request import Request
from sayso.wire.events import IntermittentUpdate

_NOT_STARTED = "the call could not be started"


async def run_granted(
    request: Request, proposals: Sequence[Proposal], out: Output
) -> Mapping[str, Outcome]:
    """Run those of the proposals that standing grants approve; returns their outcomes by the ids of
    the proposals. A call that has begun ends even if the client leaves."""
    engine = request.engine
    if not engine.approvals.grants or not proposals:
        return {}
    if out.held:
        await alter_texts(request, proposals, descriptions=False)
    stated = [replace(p, turn=secrets.token_hex(16), reference=_place(request)) for p in proposals]
    platform = request.context.stated_platform
    rows = await Grants(engine).approved(stated, platform)
    running = [engine.carried(_ran(request, row, out), out.unrecorded) for row in rows]
    outcomes = await asyncio.gather(*running)
    return {row.id: outcome for row, outcome in zip(rows, outcomes, strict=True)}


def _place(request: Request) -> str:
    return request.digests()[-1]


async def _ran(request: Request, row: Proposal, out: Output) -> Outcome:
    engine = request.engine
    out.granted.append(row)
    if out.shows_status:
        words = f"Running {row.name} under a standing grant"
        content = {"kind": "tool_call", "tool": row.name, "id": row.id}
        out.update(IntermittentUpdate(words, content), f"Running {row.name}")
    choice = Choice(row.id, row.kind, True, loc=("id",), newest=True, seen=row.seen)
    why = hinders(engine.agent, engine.gate.policy, request.context)
    found = Decided({row.id: row}, hinders=why)
    start = Start(choice, row.id, found, request.who, latest(request.until), request.until)

    async def ended(end: Ended) -> None:
        await request.fire(end.outcome.event(approvals.approval(end.row, execute=True)))

    end = await carry_out(engine, start, request.context, out.unrecorded, ended)
    if end is None:
        return await _of_another(request, start)
    await ended(end)
    return end.outcome


async def _of_another(request: Request, start: Start) -> Outcome:
    """The outcome of a call that this turn has not run to its end: it runs in another process, or
    for too long, or did not start. A call that did not start is rejected, so that it never does
    without anybody who waits for it."""
    ledger = request.engine.ledger
    why = start.why or ledger.freezing.words(start.row) or _NOT_STARTED
    await ledger.reject([start.id], f"not run: {why}", request.who, approved=True)
    row = (await ledger.outcomes([start.id], request.until))[start.id]
    if row.state in RAN:
        return Outcome(row.state, row.output or "", row.duration or 0.0)
    return Outcome("FAILED", f"Error: not run: {why}", began=False)
