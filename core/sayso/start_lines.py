"""The operator's lines at the start: a description of the service, and possible mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

from sayso.agent import Agent
from sayso.config import Config, origin_of_option
from sayso.config.layers import Origin, canonical
from sayso.errors import counted
from sayso.installing import install_line
from sayso.ledger.record import Ledger
from sayso.models import Model
from sayso.plugins import Plugins
from sayso.plugins.discovery import SWITCHES
from sayso.policy import Policy
from sayso.principals import Principal
from sayso.tools.identity import unsteady


class Served(Protocol):
    """The attributes that the lines are made of: the service host's, before it is started."""

    agent: Agent
    config: Config
    extras: dict[str, Any]
    ledger: Ledger
    model: Model
    plugins: Plugins
    policy: Policy
    tokens: dict[Principal, bytes]

    @property
    def guarded(self) -> bool:
        """Whether callers must authenticate."""
        ...


def start_lines(host: Served) -> list[str]:
    """The service of `host`, then notes and warnings on its configuration, a line each."""
    return [
        _summary(host),
        *_setup(host),
        *_variables(host),
        *_idle(host),
        *_rules(host),
        *_access(host),
    ]


def _summary(host: Served) -> str:
    agent, model = host.agent, host.model
    # The offline model is its own provider.
    named = ":".join(dict.fromkeys(part for part in (model.provider, model.name) if part))
    what = "a callable" if agent.function else f"model {named}"
    return (
        f"agent {agent.name!r} with {what}, {counted(len(agent.tools), 'tool')}; "
        f"plugins: {', '.join(host.plugins.names) or 'none'}; ledger: {host.ledger.store.url}"
    )


def _setup(host: Served) -> Iterator[str]:
    if not (host.config.model.name or host.agent.model or host.agent.function):
        yield (
            "no model is configured: the offline responder answers; set model.name "
            "or Agent(model=...), for example 'anthropic:claude-sonnet-5-5'"
        )
    hooks = ("register_routes", "lifespan")
    doors = {impl.plugin for hook in hooks for impl in host.plugins.implementations(hook)}
    # The console is a page, which uses the endpoints of V2 or V1.
    if doors <= {"console"}:
        way = install_line("sayso[v1,v2]")
        yield f"no protocol plugin is active; name one in plugins, or try: {way}"


def _variables(host: Served) -> Iterator[str]:
    for name, line in host.config.unread.items():
        # The name of a variable with a caller's token is in [auth], or in its file.
        if os.environ.get(name, "").strip().encode() not in host.tokens.values():
            yield f"warning: {line}"


def _idle(host: Served) -> Iterator[str]:
    """The settings of plugins that have no effect, since they activate none."""
    config = host.config
    given = {key: config.origin(key) for key in config.origins if key.startswith("plugin.")}
    if "a2a_agent_card" in host.extras:
        given["plugin.a2a.agent_card"] = origin_of_option("plugin.a2a.agent_card", "keyword")
    active = {canonical(name) for name in host.plugins.names}
    for key, origin in given.items():
        name = key.split(".")[1]
        if origin.kind == "file" or name in active or _switched_off(config, name):
            continue
        way = (
            f"switch it on by {_switch(name, origin)}" if name in SWITCHES else "name it in plugins"
        )
        yield f"warning: {origin.text} is not used: plugin {name!r} is not active; {way}"


def _switched_off(config: Config, name: str) -> bool:
    return name in SWITCHES and getattr(config.server, name) is False


def _switch(name: str, origin: Origin) -> str:
    """The setting that switches the plugin on, in the form of `origin`."""
    match origin.kind:
        case "flag":
            return f"--{name}"
        case "environment":
            return f"SAYSO_SERVER__{name.upper()}=true"
    return f"{name}=True"


def _rules(host: Served) -> Iterator[str]:
    tools = list(host.agent.tools.values())
    if loosened := host.policy.loosened(tools):
        yield f"warning: rules let run without approval: {', '.join(loosened)}"
    if misnamed := host.policy.misnamed(tools):
        named = ", ".join(f"{name!r} of {tool!r}" for name, tool in misnamed)
        yield f"warning: approvals.rules name arguments that none of a rule's tools has: {named}"
    if unmet := host.policy.unmet():
        yield (
            "warning: approvals.rules allow by fields of the platform context, which callers only "
            f"claim; with authentication they allow nothing: {', '.join(map(repr, unmet))}"
        )
    gated = [tool for tool in tools if host.policy.may_gate(tool)]
    if loose := [f"{name!r} of {tool.name!r}" for tool in gated for name in unsteady(tool)]:
        yield (
            f"warning: defaults differ from process to process, and no approval binds them: "
            f"{', '.join(loose)}; state a version: @tool(version=...)"
        )
    if secret := [f"{n!r} of {t.name!r}" for t in gated for n in sorted(t.secret_defaults)]:
        yield f"set by the service, and not shown to approvers: {', '.join(secret)}"
    if host.config.approvals.accept_unissued:
        yield "warning: approvals.accept_unissued lets callers run what they like"


def _access(host: Served) -> Iterator[str]:
    if host.guarded:
        return
    everyone = "everyone who reaches this address may call"
    if host.config.auth.tokens or host.config.auth.tokens_file:
        unasked = 'although [auth] has tokens; set auth.scheme = "bearer"'
        yield f"warning: {everyone}, {unasked}"
    else:
        yield f"{everyone}; see [auth]"
