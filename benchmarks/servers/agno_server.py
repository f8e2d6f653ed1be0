"""An agno AgentOS with stand-in models. `agno_server.py PORT`."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from listening import listen

REPLY = "The pods of the namespace are all running."
DELTAS = [f"word {n} " for n in range(100)]
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "lookup", "arguments": '{"name": "web"}'},
}


class StandIn(Model):
    """Answers at once, without a network."""

    def answer(self, messages: Any) -> ModelResponse:
        return ModelResponse(role="assistant", content=REPLY)

    def invoke(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.answer(messages)

    async def ainvoke(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.answer(messages)

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        for piece in DELTAS:
            yield ModelResponse(role="assistant", content=piece)

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        for piece in DELTAS:
            yield ModelResponse(role="assistant", content=piece)

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


class ToolStandIn(StandIn):
    """Calls its tool once, then answers."""

    def answer(self, messages: Any) -> ModelResponse:
        if messages[-1].role == "user":
            return ModelResponse(role="assistant", tool_calls=[dict(CALL)])
        return ModelResponse(role="assistant", content=REPLY)


async def lookup(name: str) -> str:
    """Look a name up."""
    return f"{name} is fine"


agents = [
    Agent(id="stand-in", name="stand-in", model=StandIn(id="stand-in"), telemetry=False),
    Agent(id="tools", name="tools", model=ToolStandIn(id="tools"), tools=[lookup], telemetry=False),
]
app = AgentOS(agents=agents, telemetry=False).get_app()

if __name__ == "__main__":
    listen(app)
