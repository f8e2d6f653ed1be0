"""The agent under `/v1/chat/completions`, for clients and libraries of the OpenAI API.

    client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="…")

The agent's tools run on the service. Pending calls are named in the text and listed in the
message's `data`, as on `/api/chat`; send them back in a message's `data` to decide on them.
"""

import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from sayso import (
    AgentMessage,
    ChatRequest,
    Commands,
    Done,
    ErrorEvent,
    EventStream,
    Failure,
    Host,
    InvalidRequest,
    Plugin,
    RequestContext,
    TextDelta,
    ToolCalls,
    caller_of,
    hookimpl,
    parse_request,
    read_body,
)

PROTOCOL = "openai"
_FINISH = {"max_tokens": "length", "refusal": "content_filter"}


class OpenAIGateway(Plugin):
    """The two routes that such clients need."""

    name = "openai_gateway"

    @hookimpl
    def register_routes(self, host: Host) -> APIRouter:
        """The router; authentication and limits are the service's own."""
        router = APIRouter()

        @router.get("/v1/models")
        async def models() -> dict[str, Any]:
            model = {"id": host.agent.name, "object": "model", "created": 0, "owned_by": "sayso"}
            return {"object": "list", "data": [model]}

        @router.post("/v1/chat/completions")
        async def completions(request: Request) -> Response:
            try:
                raw = await read_body(request.scope, request.receive, host.config.limits.body)
                body, chat = _read(raw, host)
                caller = caller_of(request.scope, PROTOCOL)
                if body.get("stream"):
                    stream = host.stream(chat, caller)
                    return StreamingResponse(_sent(stream, host), media_type="text/event-stream")
                return JSONResponse(_completion(await host.chat(chat, caller), host))
            except Exception as error:
                failure = host.failure(error)
                return JSONResponse(_error(failure), failure.status)

        return router

    @hookimpl
    def intercept_request(self, request: ChatRequest, context: RequestContext) -> None:
        """The caller's system prompt becomes context beside the agent's own."""
        if context.protocol == PROTOCOL:
            for text in (request.model_extra or {}).get("instructions", ()):
                context.add_system_context(text)


def _read(raw: bytes, host: Host) -> tuple[dict[str, Any], ChatRequest]:
    try:
        body = json.loads(raw)
        said = [(m["role"], _text(m.get("content")), m) for m in body["messages"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        message = "the body must be a chat completion request whose messages are texts"
        raise InvalidRequest.at(["body"], "invalid_request", message) from None
    instructions = [text for role, text, _ in said if role in ("system", "developer")]
    messages = [
        {"role": role, "content": text, "data": message.get("data")}
        for role, text, message in said
        if role not in ("system", "developer")
    ]
    limits = host.config.limits
    made = json.dumps({"messages": messages, "instructions": instructions})
    return body, parse_request(made, messages=limits.messages, nesting=limits.nesting)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return content or ""


def _completion(reply: AgentMessage, host: Host) -> dict[str, Any]:
    data = reply.data.model_dump(mode="json")
    waiting = _waiting([(c.name, c.id) for c in reply.data.tool_calls], len(reply.data.cmds))
    message = {"role": "assistant", "content": reply.content + waiting, "data": data}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {**_head("chat.completion", host), "choices": [choice]}


async def _sent(stream: EventStream, host: Host) -> AsyncIterator[bytes]:
    head = _head("chat.completion.chunk", host)

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _line({**head, "choices": [choice]})

    try:
        yield chunk({"role": "assistant", "content": ""})
        async for event in stream:
            match event:
                case TextDelta():
                    yield chunk({"content": event.text})
                case ToolCalls():
                    calls = [call.model_dump(mode="json") for call in event.tool_calls]
                    words = _waiting([(c.name, c.id) for c in event.tool_calls], 0)
                    yield chunk({"content": words, "data": {"tool_calls": calls}})
                case Commands():
                    commands = [command.model_dump(mode="json") for command in event.commands]
                    words = _waiting([], len(commands))
                    yield chunk({"content": words, "data": {"cmds": commands}})
                case Done():
                    yield chunk({}, _FINISH.get(event.stop_reason, "stop"))
                    yield b"data: [DONE]\n\n"
                case ErrorEvent():
                    failure = Failure(500, event.code or "AGENT_ERROR", event.error, event.incident)
                    yield _line(_error(failure))
    finally:
        await stream.aclose()


def _waiting(calls: list[tuple[str, str]], commands: int) -> str:
    lines = [f"\n[waits for approval: {name} ({id_})]" for name, id_ in calls]
    lines += [f"\n[commands that wait for approval: {commands}]"] if commands else []
    return "".join(lines)


def _head(kind: str, host: Host) -> dict[str, Any]:
    id_ = f"chatcmpl-{secrets.token_hex(12)}"
    return {"id": id_, "object": kind, "created": int(time.time()), "model": host.agent.name}


def _line(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _error(failure: Failure) -> dict[str, Any]:
    kind = "invalid_request_error" if failure.status < 500 else "server_error"
    return {
        "error": {"message": failure.message, "type": kind, "param": None, "code": failure.code}
    }
