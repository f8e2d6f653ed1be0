"""The deed of an approval: what a proposal binds, and whether its call is still the same when it
starts (design, section 6, "The deed").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sayso.agent import Agent
from sayso.commands.identity import shell_deed
from sayso.context import RequestContext
from sayso.decisions import places
from sayso.ledger import Proposal
from sayso.ledger.choices import WAITS, Hinders
from sayso.tools import Tool
from sayso.tools.inputs import recorded
from sayso.wire.messages import PlatformContext

_TOOL_CHANGED = (
    "the tool {!r} of this service is another one than was proposed; it has not run, and can be "
    "proposed anew"
)
_SHELL_CHANGED = (
    "commands run here with other settings, or in another folder, than where this one was "
    "proposed; it has not run, and can be proposed anew"
)


def tool_deed(tool: Tool[..., Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a proposal to call `tool`; raises ToolInputError for wrong input.

    It calls validators, which are user code, so no event loop may call it.
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
        "preview": tool.previewed(found.input),
    }


def hinders(agent: Agent, context: RequestContext) -> Hinders:
    """The check that keeps this request from starting a call if the call would do something else
    here than was proposed, or if the request lacks something that the call needs."""

    @cache
    def now() -> Mapping[str, Any]:
        # Most requests start nothing, and reading a kubeconfig takes as long as a small turn.
        return places.place(context.stated_platform)

    return lambda row: changed(agent, now(), row)


def changed(agent: Agent, now: Mapping[str, Any], row: Proposal) -> tuple[str, str] | None:
    """The reason why the call must not start here and now, as an error type, or WAITS, and a
    message; None if it may start. `now` is the place of this request."""
    if _is_another(agent, row):
        text = _SHELL_CHANGED if row.kind == "command" else _TOOL_CHANGED.format(row.name)
        return "approval_tool_changed", text
    if row.context is None:
        return None
    if names := places.differs(row.context, now):
        return "approval_context_changed", (
            f"the request states another {_listed(names)} than the one in which {row.name!r} was "
            "proposed; it has not run"
        )
    needed = [name for name in places.missing(row.context, now) if _needs(agent, row, name)]
    if needed:
        return WAITS, (
            f"{row.name!r} has not run: it needs {_listed(needed)} of the platform context again; "
            "send it once more with the decision."
        )
    return None


def acting(row: Proposal, context: RequestContext) -> RequestContext:
    """The context that the call of `row` gets: the approved values, in the request that starts
    it."""
    return context if row.context is None else _acting(row.context, context)


def carrying_out(rows: Iterable[Proposal], context: RequestContext) -> RequestContext:
    """The context of a callable that carries out all these calls. It has the approved values that
    are the same for all of them; for the others, each call has its own context
    (`DecidedCall.platform`)."""
    found = [row.context for row in rows if row.context is not None]
    if not found:
        return context
    first, *others = found
    shared = {n: value for n, value in first.items() if all(o.get(n) == value for o in others)}
    return _acting(shared, context)


def platform_of_call(row: Proposal, context: RequestContext) -> PlatformContext | None:
    """The platform context that was approved with the call."""
    stated = context.stated_platform
    if row.context is None:
        return stated
    return places.restored(row.context, stated or PlatformContext())


def _acting(recorded: Mapping[str, Any], context: RequestContext) -> RequestContext:
    stated = context.stated_platform or PlatformContext()
    platform = places.restored(recorded, stated)
    if platform is stated:
        return context
    made = RequestContext(
        platform=platform,
        request_fields=context.request_fields,
        source=context.source,
        session=context.session,
        principal=context.principal,
        protocol=context.protocol,
        decisions=context.decisions,
        has_decision=context.has_decision,
        _send=context._send,
    )
    made._additions = context._additions
    return made


def _is_another(agent: Agent, row: Proposal) -> bool:
    if not row.tool:
        return False
    if row.kind == "command":
        return shell_deed(agent.commands).get("tool") != row.tool
    tool = agent.tools.get(row.name)
    return tool is None or tool.digest != row.tool


def _needs(agent: Agent, row: Proposal, credential: str) -> bool:
    """Whether the call can read the credential; a request need not send one that the call cannot
    read."""
    if row.kind == "command":
        shell = agent.commands
        return shell is not None and (shell.reads_context or credential == "kubeconfig")
    if agent.function is not None:
        return agent.argument_count > 1
    tool = agent.tools.get(row.name)
    return tool is not None and tool.reads_context


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)
