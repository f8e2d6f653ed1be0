"""The calls that a callable's reply proposes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sayso.conversation import approvals
from sayso.conversation.hidden import input_holds_secret
from sayso.errors import AgentError
from sayso.ledger import Proposal
from sayso.turns.replies import INVALID
from sayso.turns.state import RunningTurn
from sayso.wire.messages import AgentMessage, Approval, Command, Data, ToolCall


def proposals_of(reply: AgentMessage, turn: RunningTurn) -> list[Proposal]:
    """What a callable's reply proposes, under ids of Sayso's.

    Raises AgentError for a call whose input no request could send back, or that holds a secret of
    the platform context.
    """
    data = reply.data
    if not (data.tool_calls or data.cmds or data.approvals):
        return []
    found = _proposed(data, turn)
    for row in found:
        if why := approvals.unsendable(row.input, turn.engine.limits.nesting):
            raise AgentError(f"the agent proposed a call with an input that cannot be sent: {why}")
    if any(input_holds_secret(row, turn.secrets) for row in found):
        raise AgentError("the agent proposed a call that holds a secret of the platform context")
    return found


def _proposed(data: Data, turn: RunningTurn) -> list[Proposal]:
    companions = {c.id for c in data.tool_calls} | {c.id for c in data.cmds if c.id}

    def is_new(item: ToolCall | Command | Approval) -> bool:
        return not (item.execute or item.rejection_reason or item.id in turn.found.rows)

    found = [_tool_call(call, turn) for call in data.tool_calls if is_new(call)]
    found += [
        turn.new_command(command, command.id or f"command-{n}", command.intent)
        for n, command in enumerate(data.cmds)
        if is_new(command)
    ]
    others = [item for item in data.approvals if item.id not in companions]
    return found + [_approval(item, turn) for item in others if is_new(item)]


def _tool_call(call: ToolCall, turn: RunningTurn) -> Proposal:
    return turn.new_proposal(
        kind="tool_call",
        name=call.name,
        input=call.input,
        call_id=call.id,
        description=call.tool_description,
        intent=call.intent,
        input_description=call.input_description,
    )


def _approval(item: Approval, turn: RunningTurn) -> Proposal:
    if item.type == "command":
        return turn.new_command(_command(item.input), item.id, item.intent, item.description)
    return turn.new_proposal(
        kind="tool_call",
        name=item.name,
        input=item.input,
        call_id=item.id,
        description=item.description,
        intent=item.intent,
    )


def _command(given: Mapping[str, Any]) -> Command:
    try:
        return Command.model_validate(given)
    except ValidationError as error:
        raise AgentError(INVALID) from error
