"""Plain FastAPI doing the same work: model in, model out. `plain_server.py PORT`.

Everything runs on the request loop, so a tool that blocks stops `/health`.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

sys.path.insert(0, str(Path(__file__).parent))

from listening import listen
from wire import (
    DELTAS,
    REPLY,
    AgentMessage,
    ChatRequest,
    Done,
    TextDelta,
    answers,
    reads,
    tool_turn,
)

app = FastAPI()


async def reply(request: ChatRequest) -> str:
    return REPLY


async def deltas(request: ChatRequest) -> AsyncIterator[str]:
    for piece in DELTAS:
        yield piece


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/api/chat")
async def chat(request: ChatRequest) -> AgentMessage:
    return AgentMessage(content=await reply(request))


@app.post("/reads")
async def read(request: ChatRequest) -> AgentMessage:
    return AgentMessage(content=await reads(request.messages))


@app.post("/answers")
async def answer(request: ChatRequest) -> AgentMessage:
    return AgentMessage(content=await answers(request.messages))


@app.post("/tools")
async def tools(request: ChatRequest) -> AgentMessage:
    return AgentMessage(content=await tool_turn(request))


@app.post("/block_async")
async def block_async(request: ChatRequest) -> AgentMessage:
    time.sleep(2)  # noqa: ASYNC251
    return AgentMessage(content=REPLY)


@app.post("/block")
def block(request: ChatRequest) -> AgentMessage:
    time.sleep(2)
    return AgentMessage(content=REPLY)


async def events(request: ChatRequest) -> AsyncIterator[str]:
    async for piece in deltas(request):
        yield TextDelta(text=piece).model_dump_json() + "\n"
    yield Done().model_dump_json() + "\n"


@app.post("/api/chat-stream")
async def stream(request: ChatRequest) -> StreamingResponse:
    return StreamingResponse(events(request), media_type="application/x-ndjson")


async def paced_events(request: ChatRequest) -> AsyncIterator[str]:
    async for piece in deltas(request):
        await asyncio.sleep(0.01)
        yield TextDelta(text=piece).model_dump_json() + "\n"
    yield Done().model_dump_json() + "\n"


@app.post("/paced")
async def paced(request: ChatRequest) -> StreamingResponse:
    return StreamingResponse(paced_events(request), media_type="application/x-ndjson")


@app.websocket("/api/chat-ws")
async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            request = ChatRequest.model_validate_json(await websocket.receive_text())
            async for piece in deltas(request):
                await websocket.send_text(TextDelta(text=piece).model_dump_json())
            await websocket.send_text(Done().model_dump_json())
    except WebSocketDisconnect:
        return


if __name__ == "__main__":
    listen(app)
