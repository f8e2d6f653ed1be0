"""The deed of an approval: what a proposal binds, and whether it is still that when its call starts
(design, section 6, "The deed").
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sayso.agent import Agent
from sayso.ledger import Proposal
from sayso.ledger.choices import Starts
from sayso.tools import Tool
from sayso.tools.inputs import recorded


def tool_deed(tool: Tool[..., Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a proposal to call `tool`; raises ToolInputError for wrong input.

    It calls what users wrote: not for an event loop.
    """
    found = recorded(tool, sent)
    return {
        "kind": "tool_call",
        "name": tool.name,
        "input": found.input,
        "sent": None if found.input == sent else dict(sent),
        "description": tool.description,
        "input_description": found.described(tool.input_description),
        "idempotent": tool.idempotent,
        "tool": tool.digest,
        "source": tool.origin,
    }


def starts(agent: Agent) -> Starts:
    """What refuses to start a call that is another deed here than the one that was proposed."""
    return partial(changed, agent)


def changed(agent: Agent, row: Proposal) -> tuple[str, str] | None:
    """Why the call must not start here, as an error type and a message; None where it may."""
    if row.tool and row.kind == "tool_call":
        tool = agent.tools.get(row.name)
        if tool is None or tool.digest != row.tool:
            return "approval_tool_changed", (
                f"the tool {row.name!r} of this service is another one than was proposed; it has "
                "not run, and can be proposed anew"
            )
    return None
