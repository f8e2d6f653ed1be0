"""The official agent card (A2A 1.0, section 8), which 0.3 clients can read too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from a2a.types import AgentCard
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from sayso import ConfigError, Host, Tool, __version__
from sayso_a2a.settings import Settings

RPC = "/a2a/rpc"
REST = "/a2a/rest"


def generated_card(host: Host, settings: Settings) -> dict[str, Any]:
    """The card's fields except for the interfaces, from the agent and the configuration."""
    agent = host.agent
    offered = [tool for tool in agent.tools.values() if tool.offered]
    skills = [_skill(tool) for tool in offered] or [_conversation(host)]
    card: dict[str, Any] = {
        "name": agent.name,
        "description": agent.description or agent.name,
        "version": agent.version or __version__,
        "capabilities": {
            "streaming": True,
            "pushNotifications": settings.push_notifications,
            "extendedAgentCard": settings.extended_card is not None,
        },
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": skills,
    }
    if host.config.auth.scheme == "bearer":
        scheme = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
        card["securitySchemes"] = {"bearer": scheme}
        card["securityRequirements"] = [{"schemes": {"bearer": {"list": []}}}]
    return card


def _skill(tool: Tool) -> dict[str, Any]:
    tags = ["tool", "requires-approval"] if tool.requires_approval else ["tool"]
    return {
        "id": tool.name,
        "name": tool.title or tool.name,
        "description": tool.description or tool.name,
        "tags": tags,
    }


def _conversation(host: Host) -> dict[str, Any]:
    return {
        "id": "chat",
        "name": "chat",
        "tags": ["chat"],
        "description": host.agent.description or f"Talk to {host.agent.name}",
    }


def official_card(generated: Mapping[str, Any], custom: Mapping[str, Any], url: str) -> AgentCard:
    """The card with its addresses below `url`; `custom` fields override the generated ones.

    Fields that only the contract's card has are left out. Raises ConfigError for an invalid one.
    """
    fields = {**generated, **_translated(custom)}
    fields.setdefault(
        "supportedInterfaces",
        [
            {"url": url + path, "protocolBinding": binding, "protocolVersion": version}
            for version in ("1.0", "0.3")
            for path, binding in ((RPC, "JSONRPC"), (REST, "HTTP+JSON"))
        ],
    )
    try:
        card: AgentCard = ParseDict(fields, AgentCard(), ignore_unknown_fields=True)
    except (ParseError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the agent card is wrong: {error}") from error
    return card


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


def card_json(card: AgentCard, *, legacy: bool) -> dict[str, Any]:
    """The card as JSON; with `legacy` also the fields that 0.3 clients read.

    The schema of 1.0 allows no other fields, so a strict 1.0 reader refuses a card with them.
    """
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict

    shown: dict[str, Any] = agent_card_to_dict(card) if legacy else MessageToDict(card)
    return shown
