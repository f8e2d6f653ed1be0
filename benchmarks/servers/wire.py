"""The wire models as written on a first day, for the servers that are compared."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

REPLY = "The pods of the namespace are all running."
DELTAS = [f"word {n} " for n in range(100)]


class Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


class Party(Wire):
    name: str = ""
    id: str = ""


class CommandFile(Wire):
    file_path: str
    file_content: str


class Command(Wire):
    command: str
    execute: bool = False
    files: list[CommandFile] | None = None


class ExecutedCommand(Wire):
    command: str
    output: str


class ToolCall(Wire):
    id: str
    name: str
    input: dict[str, Any]
    execute: bool = False
    tool_description: str = ""
    input_description: dict[str, Any] = Field(default_factory=dict)
    intent: str | None = None
    rejection_reason: str | None = None


class ExecutedToolCall(Wire):
    id: str
    name: str
    input: dict[str, Any]
    output: str


class Data(Wire):
    cmds: list[Command] = Field(default_factory=list)
    executed_cmds: list[ExecutedCommand] = Field(default_factory=list)
    tool_calls: list[ToolCall] = Field(default_factory=list)
    executed_tool_calls: list[ExecutedToolCall] = Field(default_factory=list)
    url_configs: list[dict[str, Any]] = Field(default_factory=list)
    session: dict[str, Any] | None = None


class PlatformContext(Wire):
    user_id: str | None = None
    tenant_name: str | None = None
    k8s_namespace: str | None = None
    platform_base_url: str | None = None
    platform_token: str | None = None
    kubeconfig: str | None = None
    aws_credentials: dict[str, Any] | None = None


class Message(Wire):
    role: Literal["user", "assistant"]
    content: str
    data: Data | None = None
    platform_context: PlatformContext | None = None
    timestamp: datetime | None = None
    user: Party | None = None
    agent: Party | None = None


class ChatRequest(Wire):
    messages: list[Message]
    source: str = "help-desk"


class AgentMessage(Wire):
    role: Literal["assistant"] = "assistant"
    content: str = ""
    data: Data = Field(default_factory=Data)
    meta_data: dict[str, Any] = Field(default_factory=dict)
    timestamp: datetime | None = None
    user: Party | None = None
    agent: Party | None = None


class TextDelta(BaseModel):
    type: Literal["text_delta"] = "text_delta"
    text: str


class Done(BaseModel):
    type: Literal["done"] = "done"
    stop_reason: str = "end_turn"
    meta_data: dict[str, Any] = Field(default_factory=dict)


async def reads(messages: list[Message]) -> str:
    """A whole text, after reading each message."""
    return REPLY if sum(len(m.content) for m in messages if m.role == "user") else ""


async def answer(turns: list[dict[str, str]]) -> str:
    """A stand-in model: reads the texts of the whole history, and answers."""
    return REPLY if sum(len(turn["content"]) for turn in turns) else ""


async def answers(messages: list[Message]) -> str:
    """A whole text of a model that gets each message, and the outcomes, as text."""
    turns = []
    for m in messages:
        turns.append({"role": m.role, "content": m.content})
        if m.data is not None:
            turns += [
                {"role": "tool", "content": call.output} for call in m.data.executed_tool_calls
            ]
    return await answer(turns)


async def lookup(name: str) -> str:
    return f"{name} is fine"


async def ask_model(asked: str, result: str | None) -> dict[str, Any]:
    """A stand-in model: calls its tool once, then answers."""
    if result is None:
        return {"tool": "lookup", "input": {"name": "web"}}
    return {"text": REPLY}


async def tool_turn(request: ChatRequest) -> str:
    """Model, tool, model."""
    result = None
    while "text" not in (step := await ask_model(request.messages[-1].content, result)):
        result = await lookup(**step["input"])
    return str(step["text"])
