"""The agent as the page introduces it: its tools, example prompts, and who the caller is."""

from typing import Any

from sayso import Caller, Host, Principal, Tool


def about(host: Host, caller: Caller) -> dict[str, Any]:
    """`{name, description, examples, tools, inbox, grants, login, you, guarded, developer}`.

    - `tools`: `{name: {title, read_only, destructive, editable, defaults, schema}}`; `schema` is
      the input schema of an editable tool, for the form that changes an input.
    - `inbox`: whether the plugin `approvals` is active; `login`: whether `oidc` is;
      `grants`: whether standing grants are on.
    - `you`: `{name, person, kind, groups}` of an authenticated caller, else null; `guarded` says
      whether callers are authenticated.
    - `developer`: null, unless `server.docs` is on, as in `sayso dev`: the model, the system prompt
      and the definitions of the tools.
    """
    agent = host.agent
    return {
        "name": agent.name,
        "description": agent.description,
        "examples": agent.examples,
        "tools": {name: _tool(tool) for name, tool in agent.tools.items()},
        "inbox": host.plugins.get("approvals") is not None,
        "grants": host.config.approvals.grants,
        "login": host.plugins.get("oidc") is not None,
        "you": _you(caller),
        "guarded": host.guarded,
        "developer": _developer(host) if host.config.server.docs else None,
    }


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "title": tool.title,
        "read_only": tool.read_only,
        "destructive": tool.destructive,
        "editable": tool.editable,
        "defaults": {
            name: part["default"]
            for name, part in tool.input_schema["properties"].items()
            if isinstance(part, dict) and "default" in part and name not in tool.write_only
        },
        "schema": tool.input_schema if tool.editable else None,
    }


def _you(caller: Caller) -> dict[str, Any] | None:
    who = caller.principal
    if who is None:
        return None
    if not isinstance(who, Principal):
        return {"name": who, "person": None, "kind": "unknown", "groups": []}
    return {"name": who, "person": who.person, "kind": who.kind, "groups": sorted(who.groups)}


def _developer(host: Host) -> dict[str, Any]:
    agent = host.agent
    return {
        "model": getattr(host.model, "name", type(host.model).__name__),
        "system_prompt": agent.system_prompt,
        "system_context": "computed" if callable(agent.system_context) else agent.system_context,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "requires_approval": tool.requires_approval,
                "input_schema": tool.input_schema,
            }
            for tool in agent.tools.values()
        ],
    }
