"""The api server of google-adk with stand-in models: `google_adk_server.py PORT SESSIONS`.

Each turn needs a session. This number of them is made before the server answers, so that they are
in no measured time, and hidden from the garbage collector, which would examine all of them.
"""

import asyncio
import gc
import logging
import sys
import tempfile
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import Agent
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.cli.service_registry import get_service_registry
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from listening import listen

REPLY = "The pods of the namespace are all running."
DELTAS = [f"word {n} " for n in range(100)]


def said(text: str, partial: bool = False) -> LlmResponse:
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return LlmResponse(content=content, partial=partial)


class StandIn(BaseLlm):
    """Answers at once, whole or in pieces."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        if stream:
            for piece in DELTAS:
                yield said(piece, partial=True)
            yield said("".join(DELTAS))
        else:
            yield said(REPLY)


class ToolStandIn(BaseLlm):
    """Calls its tool once, then answers."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts = llm_request.contents[-1].parts or []
        if any(part.function_response for part in parts):
            yield said(REPLY)
            return
        call = types.FunctionCall(name="lookup", args={"name": "web"})
        content = types.Content(role="model", parts=[types.Part(function_call=call)])
        yield LlmResponse(content=content)


async def lookup(name: str) -> str:
    """Look a name up."""
    return f"{name} is fine"


AGENTS = {
    "reply": Agent(name="reply", model=StandIn(model="stand-in")),
    "tools": Agent(name="tools", model=ToolStandIn(model="stand-in"), tools=[lookup]),
}


class Loader(BaseAgentLoader):
    def load_agent(self, agent_name: str) -> Any:
        return AGENTS[agent_name]

    def list_agents(self) -> list[str]:
        return list(AGENTS)


sessions = InMemorySessionService()


async def make_sessions(count: int) -> None:
    for name in AGENTS:
        for n in range(count):
            await sessions.create_session(app_name=name, user_id="me", session_id=f"{n:06d}")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(make_sessions(int(sys.argv[2])))
    gc.freeze()
    get_service_registry().register_session_service("given", lambda uri, **kwargs: sessions)
    app = get_fast_api_app(
        agents_dir=tempfile.mkdtemp(dir="."),
        agent_loader=Loader(),
        session_service_uri="given://",
        artifact_service_uri="memory://",
        memory_service_uri="memory://",
        web=False,
    )
    listen(app)
