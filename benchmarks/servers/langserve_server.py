"""A LangServe chain with a stand-in chat model. `langserve_server.py PORT`."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langserve import add_routes
from listening import listen
from pydantic import BaseModel

REPLY = "The pods of the namespace are all running."
DELTAS = [f"word {n} " for n in range(100)]


class Message(BaseModel):
    role: str
    content: str


class Conversation(BaseModel):
    messages: list[Message]


class StandIn(BaseChatModel):
    """A whole text when asked for a reply, a text in pieces when asked for a stream."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(REPLY))])

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in DELTAS:
            chunk = ChatGenerationChunk(message=AIMessageChunk(piece))
            if run_manager:
                # Like the models of all providers.
                await run_manager.on_llm_new_token(piece, chunk=chunk)
            yield chunk


def history(given: dict[str, list[Message]]) -> list[BaseMessage]:
    """The earlier messages in LangChain's form."""
    return [
        HumanMessage(said.content) if said.role == "user" else AIMessage(said.content)
        for said in given["messages"]
    ]


app = FastAPI()
chain = RunnableLambda(history) | StandIn()
add_routes(app, chain.with_types(input_type=Conversation), path="/chat")


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


if __name__ == "__main__":
    listen(app)
