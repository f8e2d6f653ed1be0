"""A pydantic-ai agent with a stand-in model behind FastAPI. `pydantic_ai_server.py PORT`."""

from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from listening import listen
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

REPLY = "The pods of the namespace are all running."
DELTAS = [f"word {n} " for n in range(100)]


class Message(BaseModel):
    role: str
    content: str


class ChatRequest(BaseModel):
    messages: list[Message]


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(REPLY)])


async def stream_answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for piece in DELTAS:
        yield piece


async def call_tool(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("lookup", {"name": "web"})])
    return ModelResponse(parts=[TextPart(REPLY)])


async def lookup(name: str) -> str:
    """Look a name up."""
    return f"{name} is fine"


def history(messages: list[Message]) -> list[ModelMessage]:
    """The earlier messages in pydantic-ai's form."""
    return [
        ModelRequest(parts=[UserPromptPart(said.content)])
        if said.role == "user"
        else ModelResponse(parts=[TextPart(said.content)])
        for said in messages
    ]


agent = Agent(FunctionModel(answer, stream_function=stream_answer))
tool_agent = Agent(FunctionModel(call_tool), tools=[lookup])
app = FastAPI()


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/api/chat")
async def chat(request: ChatRequest) -> Message:
    *before, last = request.messages
    result = await agent.run(last.content, message_history=history(before))
    return Message(role="assistant", content=result.output)


@app.post("/tools")
async def tools(request: ChatRequest) -> Message:
    result = await tool_agent.run(request.messages[-1].content)
    return Message(role="assistant", content=result.output)


async def lines(request: ChatRequest) -> AsyncIterator[str]:
    async with agent.run_stream(request.messages[-1].content) as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            yield Message(role="assistant", content=piece).model_dump_json() + "\n"


@app.post("/api/chat-stream")
async def stream(request: ChatRequest) -> StreamingResponse:
    return StreamingResponse(lines(request), media_type="application/x-ndjson")


if __name__ == "__main__":
    listen(app)
