"""The official agent card (A2A 1.0, section 8), which clients of 0.3 can read too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from a2a.types import AgentCard
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from sayso import ConfigError, Host, PlatformContext, Tool, __version__
from sayso_a2a.settings import Settings

RPC = "/a2a/rpc"
REST = "/a2a/rest"
EXTENSION = "urn:sayso:a2a:approvals:1"
"""The name of the form of proposals and decisions as data parts; another form gets another name."""

_MODES = ["text/plain", "application/json"]
_BOTH = {"inputModes": _MODES, "outputModes": _MODES}
"""Optional if they equal those of the card, and yet needed by some readers (fasta2a)."""
_MERGED = ("capabilities", "securitySchemes")
"""Tables of the card that keep entries which their author does not state."""
_PROPOSAL = {
    "type": "object",
    "description": "A data part of the status message of a task in the state input-required.",
    "required": ["id", "type", "name", "input", "execute"],
    "properties": {
        "id": {"type": "string"},
        "type": {"enum": ["tool_call", "command"]},
        "name": {"type": "string"},
        "input": {"type": "object"},
        "execute": {"const": False},
        "description": {"type": "string"},
        "intent": {"type": "string"},
    },
}
_DECISION = {
    "type": "object",
    "description": "A data part of a message on the same task: execute approves, a reason rejects.",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "execute": {"const": True},
        "rejection_reason": {"type": "string"},
    },
}


def generated_card(host: Host, settings: Settings) -> dict[str, Any]:
    """The card's fields except for the interfaces, from the agent and the configuration."""
    agent = host.agent
    verdicts = [(t, host.policy.verdict(t, None, PlatformContext())) for t in agent.tools.values()]
    shown = ("allow",) if settings.approvals == "deny" else ("allow", "require")
    offered = [(tool, said) for tool, said in verdicts if tool.offered and said in shown]
    skills = [_skill(tool, gated=said == "require") for tool, said in offered]
    card: dict[str, Any] = {
        "name": agent.name,
        "description": agent.description or agent.name,
        "version": agent.version or __version__,
        "capabilities": {
            "streaming": True,
            "pushNotifications": settings.push_notifications,
            "extendedAgentCard": settings.extended_card is not None,
            "extensions": [] if settings.approvals == "deny" else [_extension(settings)],
        },
        "defaultInputModes": _MODES,
        "defaultOutputModes": _MODES,
        "skills": skills or [_conversation(host)],
    }
    if host.config.auth.scheme == "bearer":
        scheme = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
        card["securitySchemes"] = {"bearer": scheme}
        card["securityRequirements"] = [{"schemes": {"bearer": {"list": []}}}]
    return card


def _extension(settings: Settings) -> dict[str, Any]:
    here = settings.approvals == "client"
    words = "a message on the task with a data part" if here else "a person where the service runs"
    shapes = {"proposal": _PROPOSAL} | ({"decision": _DECISION} if here else {})
    return {
        "uri": EXTENSION,
        "description": f"Calls that wait for approval are data parts; {words} decides each.",
        "required": False,
        "params": shapes,
    }


def _skill(tool: Tool, *, gated: bool) -> dict[str, Any]:
    tags = ["tool", "requires-approval"] if gated else ["tool"]
    return {
        "id": tool.name,
        "name": tool.title or tool.name,
        "description": tool.description or tool.name,
        "tags": tags,
        **_BOTH,
    }


def _conversation(host: Host) -> dict[str, Any]:
    return {
        "id": "chat",
        "name": "chat",
        "tags": ["chat"],
        **_BOTH,
        "description": host.agent.description or f"Talk to {host.agent.name}",
    }


def official_card(
    generated: Mapping[str, Any], custom: Mapping[str, Any], url: str, grpc: str = ""
) -> AgentCard:
    """The card with its addresses below `url`, and at `grpc`; `custom` fields override the
    generated ones.

    Fields that only the contract's card has are left out. Raises ConfigError for an invalid one.
    """
    fields = {**generated, **_translated(custom)}
    for name in _MERGED:
        if isinstance(fields.get(name), Mapping):
            fields[name] = {**generated.get(name, {}), **fields[name]}
    _declare(fields, generated)
    addresses = {"JSONRPC": url + RPC, "HTTP+JSON": url + REST}
    spoken = [("1.0", addresses | ({"GRPC": grpc} if grpc else {})), ("0.3", addresses)]
    fields.setdefault(
        "supportedInterfaces",
        [
            {"url": address, "protocolBinding": binding, "protocolVersion": version}
            for version, known in spoken
            for binding, address in known.items()
        ],
    )
    try:
        card: AgentCard = ParseDict(fields, AgentCard(), ignore_unknown_fields=True)
    except (ParseError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the agent card is wrong: {error}") from error
    return card


def _declare(fields: dict[str, Any], generated: Mapping[str, Any]) -> None:
    """Keep this service's extensions among those of the card."""
    own, stated = (f.get("capabilities", {}).get("extensions", []) for f in (generated, fields))
    known = [each.get("uri") for each in stated if isinstance(each, Mapping)]
    missing = [each for each in own if each["uri"] not in known]
    if missing:
        more = {"extensions": [*stated, *missing]}
        fields["capabilities"] = {**fields.get("capabilities", {}), **more}


def _translated(custom: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(custom)
    if "skills" in fields:
        fields["skills"] = [
            {"id": skill, "name": skill, "description": skill, "tags": ["tool"]}
            if isinstance(skill, str)
            else skill
            for skill in fields["skills"]
        ]
    # The contract's `url` names the service; here each interface has its own.
    for name in ("url", "metadata"):
        fields.pop(name, None)
    return fields


def card_json(card: AgentCard, *, version: str) -> dict[str, Any]:
    """The card as JSON, for a caller that states this version, or none.

    It also has the fields that clients of 0.3 read: most of these state no version, and clients of
    1.0 ignore further fields. A caller that states 1.0 gets the fields of 1.0 only.
    """
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict

    strict = version.strip().startswith("1")
    shown: dict[str, Any] = MessageToDict(card) if strict else agent_card_to_dict(card)
    return shown
