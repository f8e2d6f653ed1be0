"""Help for tests of agents and plugins: a real service, a scripted model, conformance checks.

    from sayso import Agent, Call, tool
    from sayso.testing import scripted, served

    @tool(requires_approval=True)
    def delete(name: str) -> str:
        return f"deleted {name}"

    def test_delete_waits_for_approval():
        model = scripted([Call("1", "delete", {"name": "a"})], "It is gone.")
        with served(Agent(model=model, tools=[delete])) as service:
            talk = service.conversation()
            assert talk.say("delete a")["data"]["tool_calls"][0]["name"] == "delete"
            assert talk.approve()["content"] == "It is gone."

pytest finds the fixture `sayso_served` by itself: `served` without the `with`.
"""

from __future__ import annotations

from sayso.ledger.conformance import CHECKS as STORE_CHECKS
from sayso.testing.client import Answer, Conversation, Service, user
from sayso.testing.models import MODEL_CHECKS, scripted
from sayso.testing.serving import Served, served

__all__ = [
    "MODEL_CHECKS",
    "STORE_CHECKS",
    "Answer",
    "Conversation",
    "Served",
    "Service",
    "scripted",
    "served",
    "user",
]
