"""`POST /v1/chat/completions`: for clients that know text and nothing else.

A call that needs a person is a card in the text. A stream is held open while the person decides;
otherwise the turn ends with the card, and the next message continues. No message decides anything.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from sayso import Host, InvalidRequest
from sayso_openai_api.answers import (
    Failed,
    Streamed,
    answered,
    caller_with,
    check_model,
    error_of,
    while_there,
)
from sayso_openai_api.bodies import ChatBody, chat_bodies, conversation, raw_body
from sayso_openai_api.cards import page_of
from sayso_openai_api.chunks import Completion
from sayso_openai_api.store import Store
from sayso_openai_api.talk import Talk

_TASK = "### Task:"
"""The beginning of the hidden requests of Open WebUI: a title, tags, questions to ask next."""
_TASK_HEADER = "x-sayso-task"
_CONVERSATION_HEADER = "x-sayso-conversation"


class Chat:
    """The endpoint."""

    def __init__(self, host: Host, store: Store, settings: Any) -> None:
        self._host = host
        self._store = store
        self._settings = settings

    async def answer(self, request: Request) -> ASGIApp:
        """The completion, whole or as a stream."""
        limits = self._host.config.limits
        body = chat_bodies.read(await raw_body(self._host, request), limits.nesting, limits.values)
        name = check_model(self._host, body.model)
        if body.n is not None and body.n != 1:
            raise InvalidRequest.at(["body", "n"], "unsupported", "only one choice can be made")
        completion = Completion(name, int(time.time()))
        talk = self._talk(request, body)
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            return Streamed(_frames(self._host, completion, talk, usage))
        return await while_there(_whole(completion, talk), request.receive)

    def _talk(self, request: Request, body: ChatBody) -> Talk:
        shown, instructions, reported = conversation(self._host, body)
        task = request.headers.get(_TASK_HEADER) or (
            len(shown) == 1 and shown[0].text.lstrip().startswith(_TASK)
        )
        caller = caller_with(request, instructions, tools=not task)
        key = request.headers.get(_CONVERSATION_HEADER, "")
        return Talk(
            self._host,
            caller,
            shown,
            reported,
            page=page_of(self._host, self._settings.page),
            hold=self._settings.hold if body.stream else 0.0,
            store=self._store,
            conversation="" if task else key[:200],
        )


async def _frames(
    host: Host, completion: Completion, talk: Talk, usage: bool
) -> AsyncGenerator[bytes, None]:
    yield completion.begin()
    try:
        async with aclosing(talk.pieces()) as pieces:
            async for piece in pieces:
                yield completion.text(piece)
    except Exception as error:
        failure = error.failure if isinstance(error, Failed) else host.failure(error)
        yield completion.failed(error_of(failure))
        return
    yield completion.end(talk.stop, talk.tokens.of_chat(), with_usage=usage)


async def _whole(completion: Completion, talk: Talk) -> ASGIApp:
    async with aclosing(talk.pieces()) as pieces:
        text = "".join([piece async for piece in pieces])
    return answered(completion.whole(text, talk.stop, talk.tokens.of_chat()))
