"""A LangServe runnable without a model. `langserve_server.py PORT`."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langserve import add_routes
from pydantic import BaseModel

REPLY = "The pods of the namespace are all running."
DELTAS = [f"word {n} " for n in range(100)]


class Message(BaseModel):
    role: str
    content: str


class Conversation(BaseModel):
    messages: list[Message]


async def reply(given: Any) -> str:
    return REPLY


async def deltas(given: AsyncIterator[Any]) -> AsyncIterator[str]:
    async for _ in given:
        for piece in DELTAS:
            yield piece


app = FastAPI()
add_routes(app, RunnableLambda(reply).with_types(input_type=Conversation), path="/reply")
add_routes(app, RunnableGenerator(deltas).with_types(input_type=Conversation), path="/deltas")


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        access_log=False,
        loop="uvloop",
        http="httptools",
        backlog=2048,
    )
