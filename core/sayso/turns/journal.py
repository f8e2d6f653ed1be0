"""The record of a turn's own steps: the repeat of its request goes on where the turn broke off.

A request that its caller may send again has a journal (`Caller.journal`). Each reply of the model
that asks for tools is noted in it, then the beginning and the end of each call. The repeat goes the
same way: noted replies are not asked for again, noted results are replayed, and a call that began
without a noted end has an unknown outcome. Of a gated call the id of its proposal is noted, since
the ledger has the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sayso.context import Journal
from sayso.conversation.calls import spoken
from sayso.conversation.hidden import hidden_turns
from sayso.decisions.execution import change_of, state_of
from sayso.ledger import OPEN, Proposal
from sayso.ledger.choices import unknown_outcome
from sayso.ledger.claims import CallNotStarted, boottime, margin
from sayso.models import (
    Attachment,
    Call,
    Reply,
    Result,
    Turn,
    bound_to_model,
    dump_turns,
    load_turns,
)
from sayso.tools import Tool
from sayso.turns.request import Request

_STARTED = "started"
_WHY = "an earlier attempt to answer this request began the call, and its end was not recorded"
_NOT_RUN = "Error: not run: the call was rejected, or has expired"
_HIDDEN = "this call was lost with a process, and its input held a secret; ask for it again"


async def reply_of(
    journal: Journal,
    request: Request,
    number: int,
    bound: str,
    ask: Callable[[], Awaitable[Reply]],
) -> tuple[Reply, bool]:
    """The model's reply of this number, by `ask` or from the journal, and whether it is from there.

    `bound` is the digest of everything that the model was given for it.
    """
    name = f"reply {number}"
    if (text := journal.find(name)) is not None:
        return _kept_reply(journal, number, json.loads(text), bound), True
    reply = await ask()
    if reply.stop in ("tool_use", "pause"):
        # The store keeps no secrets.
        (turn,), _ = hidden_turns([reply.turn], request.secrets, request.engine.agent.tools)
        kept = {
            "turn": dump_turns([turn]),
            "stop": reply.stop,
            "bound": bound,
            "hidden": turn is not reply.turn,
        }
        await journal.note(name, json.dumps(kept))
    return reply, False


def _kept_reply(journal: Journal, number: int, kept: dict[str, Any], bound: str) -> Reply:
    (turn,) = load_turns(kept["turn"])
    if kept["bound"] != bound:
        turn = replace(turn, raw=bound_to_model(turn.raw))
    if kept["hidden"]:
        found = {id(c) for i, c in enumerate(_calls(turn)) if journal.find(_name(number, i))}
        blocks = [
            replace(block, error=_HIDDEN)
            if isinstance(block, Call) and id(block) not in found
            else block
            for block in turn.blocks
        ]
        turn = replace(turn, blocks=blocks)
    return Reply(turn, kept["stop"])


Kept = Result | list[Proposal] | None


class Noted:
    """The calls of one reply of the model, in the journal of its turn."""

    def __init__(self, journal: Journal, request: Request, number: int, said: Turn) -> None:
        self._journal = journal
        self._request = request
        self._number = number
        self._calls = _calls(said)

    async def kept(self, call: Call, tool: Tool[..., Any] | None) -> Kept:
        """The result of the call, or its proposals, of an earlier attempt; None if the call is to
        be made. Without a tool it suggests commands."""
        text = self._journal.find(self._name(call))
        if text is None or (text == _STARTED and tool is not None and _repeatable(tool)):
            return None
        if text == _STARTED:
            return Result(call.id, unknown_outcome(_WHY, idempotent=False), True)
        kept = json.loads(text)
        if "ids" in kept:
            return await self._proposals(kept["ids"], call, tool)
        return self._result(kept, call)

    async def proposed(self, call: Call, proposals: Sequence[Proposal]) -> None:
        """Note the ids of the proposals that are recorded next."""
        ids = [proposal.id for proposal in proposals]
        await self._journal.note(self._name(call), json.dumps({"ids": ids}))

    async def run(
        self,
        call: Call,
        tool: Tool[..., Any],
        run: Callable[[Callable[[], None]], Awaitable[Result]],
    ) -> Result:
        """The result of the call by `run`, noted. `run` gets the step before the tool, which raises
        CallNotStarted if another attempt may have reported the outcome as unknown by then."""
        name, request = self._name(call), self._request
        before = state_of(request.session)
        while True:
            until = boottime() + self._journal.lease - margin(self._journal.lease)
            if not _repeatable(tool):
                await self._journal.note(name, _STARTED)
            try:
                result = await run(partial(_begin, math.inf if _repeatable(tool) else until))
                break
            except CallNotStarted:
                continue
        kept = {
            "turn": dump_turns([Turn("user", [replace(result, call_id=""), *result.attachments])]),
            "session": change_of(before, request.session, request.secrets),
        }
        await self._journal.note(name, json.dumps(kept))
        return result

    async def _proposals(self, ids: Sequence[str], call: Call, tool: Tool[..., Any] | None) -> Kept:
        ledger = self._request.engine.ledger
        if not (rows := [*(await ledger.settle(ids)).values()]) or tool is None:
            return rows or None
        if rows[0].state == "EXECUTING":
            rows = [*(await ledger.outcomes(ids, self._request.until)).values()]
        if rows[0].state in OPEN:
            return rows
        return Result(call.id, spoken(rows[0].output or _NOT_RUN), rows[0].state != "DONE")

    def _result(self, kept: dict[str, Any], call: Call) -> Result:
        session, change = self._request.session, kept["session"] or {"set": {}, "delete": []}
        session.update(change["set"])
        for key in change["delete"]:
            session.pop(key, None)
        (turn,) = load_turns(kept["turn"])
        images = [block for block in turn.blocks if isinstance(block, Attachment)]
        result = next(block for block in turn.blocks if isinstance(block, Result))
        return replace(result, call_id=call.id, attachments=images)

    def _name(self, call: Call) -> str:
        # By its place in the reply: its id is the model's text, and may hold a secret.
        return _name(self._number, self._calls.index(call))


def _begin(until: float) -> None:
    if boottime() > until:
        raise CallNotStarted


def _repeatable(tool: Tool[..., Any]) -> bool:
    return tool.idempotent or bool(tool.read_only)


def _calls(turn: Turn) -> list[Call]:
    return [block for block in turn.blocks if isinstance(block, Call)]


def _name(number: int, index: int) -> str:
    return f"call {number} {index}"
