"""The agent that the pods serve; put yours in its place."""

from __future__ import annotations

from sayso import Agent, tool


@tool(requires_approval=True)
def restart(service: str) -> str:
    """Restart a service."""
    return f"restarted {service}"


agent = Agent(name="ops", tools=[restart], system_prompt="You look after services.")
