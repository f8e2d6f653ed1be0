"""The calls that a reply proposes."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from pydantic import ValidationError

from sayso.commands.identity import shell_deed
from sayso.conversation import approvals
from sayso.conversation.hidden import input_holds_secret
from sayso.decisions.deed import place, proposal, stands_alone
from sayso.errors import AgentError
from sayso.ledger import Proposal
from sayso.policy import forbidden
from sayso.turns.replies import INVALID
from sayso.turns.request import Request
from sayso.wire.json_bytes import unsendable
from sayso.wire.masking import mask
from sayso.wire.messages import AgentMessage, Approval, Command, Data, ToolCall


class Proposing:
    """The proposals of one reply, not yet recorded."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._place = place(request.context.stated_platform)

    def call(self, **fields: Any) -> Proposal:
        """A proposal of the request with these fields."""
        request = self._request
        # Mask before truncating: half a secret would not be recognised.
        for name in ("intent", "preview"):
            fields[name] = mask(fields.get(name), request.secrets)
        agent, platform = request.engine.agent, request.context.stated_platform
        kind, name, given = fields["kind"], fields["name"], fields["input"]
        tool = None if kind == "command" else agent.tools.get(name)
        policy, sent = request.engine.gate.policy, fields.get("sent") or given
        return proposal(
            request.who,
            agent=agent.id,
            context=self._place,
            terms=policy.terms(name, tool, sent, given, platform),
            unattended=stands_alone(agent, kind, name, platform, request.context.request_fields),
            **fields,
        )

    def forbids(self, row: Proposal) -> bool:
        """Whether a rule refuses the call, which no tool carries out."""
        request = self._request
        platform = request.context.stated_platform
        return request.engine.gate.policy.forbids(row.name, row.input, platform)

    def command(
        self,
        command: Command,
        call_id: str,
        intent: str | None,
        description: str = "A terminal command",
    ) -> Proposal:
        """A proposal of the request to run a terminal command."""
        return self.call(
            kind="command",
            name="command",
            input=approvals.command_input(command),
            call_id=call_id,
            description=description,
            intent=intent,
            **shell_deed(self._request.engine.agent.commands),
        )


def proposals_of(reply: AgentMessage, request: Request, known: Container[str]) -> list[Proposal]:
    """The proposals of a callable's reply, with ids that Sayso makes. `known` are calls that the
    reply only states again.

    Raises AgentError for a call that a rule forbids, whose input no request could send back, or
    that holds a secret of the platform context.
    """
    data = reply.data
    if not (data.tool_calls or data.cmds or data.approvals):
        return []
    proposing = Proposing(request)
    found = _proposed(data, proposing, known)
    for row in found:
        if proposing.forbids(row):
            raise AgentError(f"the agent proposed a call: {forbidden(row.name)}")
        if why := unsendable(row.input, request.engine.limits.nesting):
            raise AgentError(f"the agent proposed a call with an input that cannot be sent: {why}")
    if any(input_holds_secret(row, request.secrets) for row in found):
        raise AgentError("the agent proposed a call that holds a secret of the platform context")
    return found


def _proposed(data: Data, proposing: Proposing, known: Container[str]) -> list[Proposal]:
    companions = {c.id for c in data.tool_calls} | {c.id for c in data.cmds if c.id}

    def is_new(item: ToolCall | Command | Approval) -> bool:
        return not (item.execute or item.rejection_reason or item.id in known)

    found = [_tool_call(call, proposing) for call in data.tool_calls if is_new(call)]
    found += [
        proposing.command(command, command.id or f"command-{n}", command.intent)
        for n, command in enumerate(data.cmds)
        if is_new(command)
    ]
    others = [item for item in data.approvals if item.id not in companions]
    return found + [_approval(item, proposing) for item in others if is_new(item)]


def _tool_call(call: ToolCall, proposing: Proposing) -> Proposal:
    return proposing.call(
        kind="tool_call",
        name=call.name,
        input=call.input,
        call_id=call.id,
        description=call.tool_description,
        intent=call.intent,
        input_description=call.input_description,
    )


def _approval(item: Approval, proposing: Proposing) -> Proposal:
    if item.type == "command":
        return proposing.command(_command(item.input), item.id, item.intent, item.description)
    return proposing.call(
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
