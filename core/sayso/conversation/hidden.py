"""A turn's stored data without the secrets of its request (design, section 6).

A secret may be any text, even `text` itself in an AWS profile. Therefore only data from outside is
masked: the records' own names, kinds and ids stay, or nobody could read them again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Any

from pydantic_core import from_json

from sayso.context import RESERVED, Session
from sayso.ledger import Proposal
from sayso.models import Attachment, Block, Call, Result, Text, Turn, bound_to_model, dump_turns
from sayso.trees import rebuilt
from sayso.wire.json_bytes import dump_json
from sayso.wire.masking import holds_secret, mask, mask_sent
from sayso.wire.messages import (
    AgentMessage,
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
    Party,
    URLConfig,
    Wire,
)

_OWN: Mapping[type[Wire], frozenset[str]] = {
    AgentMessage: frozenset({"role", "timestamp"}),
    Data: frozenset({"session"}),
    ExecutedToolCall: frozenset({"id", "name"}),
    ExecutedCommand: frozenset({"id"}),
    ExecutedApproval: frozenset({"id", "type", "name"}),
}
"""Fields of a reply whose values stay; its session is masked before."""
_WITHIN: Mapping[str, type[Wire]] = {
    "data": Data,
    "executed_tool_calls": ExecutedToolCall,
    "executed_cmds": ExecutedCommand,
    "executed_approvals": ExecutedApproval,
    "url_configs": URLConfig,
    "user": Party,
    "agent": Party,
}
"""The models of a reply's fields that have fields of their own."""
_WIRE = frozenset(
    """
    reasoning_content reasoning_details tool_calls extra_content google thought_signature
    type id index format text summary data signature
    reasoning.text reasoning.summary reasoning.encrypted
    unknown google-gemini-v1 openai-responses-v1 xai-responses-v1
    """.split()
)
"""Words of the chat completions format in data bound to a model; its servers check them."""


def input_holds_secret(row: Proposal, secrets: Sequence[str]) -> bool:
    """Whether the input of a proposal contains a secret; the names in a command's input are
    ours."""
    given: Any = [row.input, row.sent]
    if row.kind == "command":
        files = row.input["files"] or ()
        given = [row.input["command"], *([*file.values()] for file in files)]
    return holds_secret(given, secrets)


def hidden_turns(
    turns: Sequence[Turn], secrets: Sequence[str], tools: Collection[str]
) -> tuple[Sequence[Turn], Mapping[str, str]]:
    """The turns as they are stored, `turns` itself if they contain no secret, and the new ids of
    calls whose ids contained one. The names of `tools` stay.

    If anything is masked, blocks are removed that a provider takes back only unchanged.
    """
    if not secrets:
        return turns, {}
    calls = {b.id for turn in turns for b in turn.blocks if isinstance(b, Call)}
    fresh = {id_: f"call_{token_hex(8)}" for id_ in calls if holds_secret(id_, secrets)}

    def hidden(block: Block) -> Block:
        match block:
            case Text():
                return replace(block, text=mask(block.text, secrets))
            case Call():
                return Call(
                    fresh.get(block.id, block.id),
                    block.name if block.name in tools else mask(block.name, secrets),
                    mask(dict(block.input), secrets),
                    mask(block.error, secrets),
                )
            case Result():
                id_ = fresh.get(block.call_id, block.call_id)
                return replace(block, call_id=id_, output=mask(block.output, secrets))
            case Attachment():
                return block

    shown = [
        Turn(
            turn.role,
            [hidden(block) for block in turn.blocks],
            turn.raw and {key: _provided(value, secrets) for key, value in turn.raw.items()},
        )
        for turn in turns
    ]
    if dump_turns(shown) == dump_turns(turns):
        return turns, fresh
    return [replace(turn, raw=bound_to_model(turn.raw)) for turn in shown], fresh


def _provided(value: Any, secrets: Sequence[str]) -> Any:
    def masked(leaf: Any) -> Any:
        return leaf if isinstance(leaf, str) and leaf in _WIRE else mask(leaf, secrets)

    return rebuilt(value, masked, masked)


def hidden_reply(reply: AgentMessage, secrets: Sequence[str]) -> Any:
    """The reply as JSON values, in its recorded form."""
    dumped = from_json(dump_json(reply))
    return _fields(AgentMessage, dumped, secrets) if secrets else dumped


def _fields(kind: type[Wire], value: Any, secrets: Sequence[str]) -> Any:
    """The dump of a `kind`, or of a list of them. A key that is no field of it is masked with its
    value."""
    match value:
        case list():
            return [_fields(kind, item, secrets) for item in value]
        case dict():
            return dict(_field(kind, name, item, secrets) for name, item in value.items())
    return value


def _field(kind: type[Wire], name: str, value: Any, secrets: Sequence[str]) -> tuple[str, Any]:
    if name not in kind.model_fields:
        return mask(name, secrets), mask(value, secrets)
    if name in _WITHIN:
        return name, _fields(_WITHIN[name], value, secrets)
    return name, value if name in _OWN.get(kind, ()) else mask(value, secrets)


def hidden_session(session: Session, secrets: Sequence[str]) -> Any:
    """The session as it is sent and recorded; the conversation's id in it stays."""
    if (key := session.conversation) is None:
        state = session.dump()
        return state if state is None else mask_sent(state, secrets)
    return {**mask_sent(session.shown() or {}, secrets), RESERVED: key}
