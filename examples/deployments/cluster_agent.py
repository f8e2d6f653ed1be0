"""The agent of the deployments beside this file."""

from __future__ import annotations

from sayso import Agent, tool


@tool
def list_pods(namespace: str = "default") -> str:
    """List the pods of a namespace."""
    return f"{namespace}: web-0, web-1"


@tool(requires_approval=True)
def delete_pod(name: str, namespace: str = "default") -> str:
    """Delete a pod."""
    return f"deleted {namespace}/{name}"


agent = Agent(
    name="kube",
    description="Looks after a cluster",
    tools=[list_pods, delete_pod],
    system_prompt="You look after a cluster. Be brief.",
)
