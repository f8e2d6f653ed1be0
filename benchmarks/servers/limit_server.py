"""The limit: bare ASGI on uvicorn with full pydantic validation. `limit_server.py PORT`.

Without routing, middleware and threads, only HTTP, validation and the answer's bytes are left. Each
event of a stream is sent by itself.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

sys.path.insert(0, str(Path(__file__).parent))

from listening import listen
from wire import DELTAS, REPLY, AgentMessage, ChatRequest, Done, answers, reads, tool_turn

request_adapter = TypeAdapter(ChatRequest)
JSON = [(b"content-type", b"application/json")]
NDJSON = [(b"content-type", b"application/x-ndjson")]
DONE = Done().model_dump_json().encode() + b"\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "websocket":
        await socket(receive, send)
    elif scope["path"] == "/health":
        await whole(send, b'{"status":"ok"}')
    else:
        await chat(scope["path"], await read(receive), send)


async def lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def read(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def chat(path: str, body: bytes, send: Any) -> None:
    request = request_adapter.validate_json(body)
    match path:
        case "/api/chat-stream" | "/paced":
            await stream(send, 0.01 if path == "/paced" else None)
        case "/reads":
            reply = AgentMessage(content=await reads(request.messages))
            await whole(send, reply.__pydantic_serializer__.to_json(reply))
        case "/answers":
            reply = AgentMessage(content=await answers(request.messages))
            await whole(send, reply.__pydantic_serializer__.to_json(reply))
        case "/tools":
            reply = AgentMessage(content=await tool_turn(request))
            await whole(send, reply.__pydantic_serializer__.to_json(reply))
        case _:
            reply = AgentMessage(content=REPLY)
            await whole(send, reply.__pydantic_serializer__.to_json(reply))


async def whole(send: Any, body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [*JSON, length]})
    await send({"type": "http.response.body", "body": body})


async def stream(send: Any, pause: float | None) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": NDJSON})
    for piece in DELTAS:
        if pause is not None:
            await asyncio.sleep(pause)
        line = b'{"type":"text_delta","text":' + to_json(piece) + b"}\n"
        await send({"type": "http.response.body", "body": line, "more_body": True})
    await send({"type": "http.response.body", "body": DONE})


async def socket(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        request_adapter.validate_json(message["text"])
        for piece in DELTAS:
            text = '{"type":"text_delta","text":' + to_json(piece).decode() + "}"
            await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.send", "text": DONE.decode().strip()})


if __name__ == "__main__":
    listen(app, ws_per_message_deflate=False)
