"""The record of a turn's own steps: the repeat of its request goes on where the turn broke off.

A request that its caller may send again has a journal (`Caller.journal`). Each reply of the model
that asks for tools is noted in it, then the beginning and the end of each call. The repeat goes the
same way: noted replies are not asked for again, noted results are replayed, and a call that began
without a noted end has an unknown outcome. Gated calls are not in it: they have the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from sayso.context import Journal
from sayso.conversation.hidden import hidden_turns
from sayso.decisions.execution import change_of, state_of
from sayso.ledger.choices import unknown_outcome
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
        lost = {
            call.id
            for index, call in enumerate(_calls(turn))
            if journal.find(_name(number, index)) is None
        }
        blocks = [
            replace(block, error=_HIDDEN) if isinstance(block, Call) and block.id in lost else block
            for block in turn.blocks
        ]
        turn = replace(turn, blocks=blocks)
    return Reply(turn, kept["stop"])


async def result_of(
    journal: Journal,
    request: Request,
    number: int,
    said: Turn,
    call: Call,
    tool: Tool[..., Any],
    run: Callable[[], Awaitable[Result]],
) -> Result:
    """The result of a call in the reply `said` of this number: by `run`, from the journal, or
    unknown."""
    # By its place in the reply: its id is the model's text, and may hold a secret.
    name = _name(number, _calls(said).index(call))
    again = tool.idempotent or bool(tool.read_only)
    text = journal.find(name)
    if text is not None and text != _STARTED:
        return _kept_result(request, call, json.loads(text))
    if text is not None and not again:
        return Result(call.id, unknown_outcome(_WHY, idempotent=False), True)
    if not again:
        await journal.note(name, _STARTED)
    before = state_of(request.session)
    result = await run()
    kept = {
        "turn": dump_turns([Turn("user", [replace(result, call_id=""), *result.attachments])]),
        "session": change_of(before, request.session, request.secrets),
    }
    await journal.note(name, json.dumps(kept))
    return result


def _kept_result(request: Request, call: Call, kept: dict[str, Any]) -> Result:
    change = kept["session"] or {"set": {}, "delete": []}
    request.session.update(change["set"])
    for key in change["delete"]:
        request.session.pop(key, None)
    (turn,) = load_turns(kept["turn"])
    images = [block for block in turn.blocks if isinstance(block, Attachment)]
    result = next(block for block in turn.blocks if isinstance(block, Result))
    return replace(result, call_id=call.id, attachments=images)


def _calls(turn: Turn) -> list[Call]:
    return [block for block in turn.blocks if isinstance(block, Call)]


def _name(number: int, index: int) -> str:
    return f"result {number} {index}"
