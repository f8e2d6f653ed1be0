"""Chat Completions: any endpoint that speaks them, on httpx2."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import httpx2

from sayso import Ask, ModelError, per_loop
from sayso.models.adapters import (
    LONGEST_BODY,
    Attempts,
    Connection,
    Key,
    Learned,
    ModelEvent,
    certificates,
    checked_address,
    cut_off,
    drain,
    failure,
    last_events,
    retried,
    sent_names,
    status_fault,
)
from sayso_openai.dialects import dialect_of
from sayso_openai.events import events
from sayso_openai.presets import Preset
from sayso_openai.reply import Accumulator
from sayso_openai.request import OPTIONAL, explain_config, request
from sayso_openai.windows import listed_window, window_of

_REFUSAL_SECONDS = 10.0


class ChatModel:
    """A model behind Chat Completions; a `Model`."""

    never_blocks = True
    takes_attachments = ("image/gif", "image/jpeg", "image/png", "image/webp")

    def __init__(
        self,
        name: str,
        url: httpx2.URL,
        client: Callable[[], httpx2.AsyncClient],
        preset: Preset,
        key: Key,
        connection: Connection,
    ) -> None:
        self.name = name
        self.provider = preset.name
        self.context_window = window_of(name)
        self.url = url
        self.client = client
        self.preset = preset
        self.key = key
        self.connection = connection
        self.learned: dict[str, Learned] = {}
        self._explained = False
        self._asking: asyncio.Task[None] | None = None

    @classmethod
    def at(
        cls, address: str, name: str, preset: Preset, key: Key, connection: Connection
    ) -> ChatModel:
        """The model at a base URL, which may have a query, or name the whole address."""
        base, mark, query = address.partition("?")
        path = base.rstrip("/").removesuffix("/chat/completions")
        if preset.name == "azure" and "/openai/" not in f"{path}/":
            path += "/openai/v1"
        whole = f"{path}/chat/completions{mark}{query}"
        url = checked_address(whole, preset.name, preset.example)
        # Loaded once here, since loading certificates on each loop would take long.
        arguments = connection.client(certificates())

        def client() -> httpx2.AsyncClient:
            return httpx2.AsyncClient(**arguments)

        url = url.copy_merge_params(dict(connection.query)) if connection.query else url
        return cls(name, url, per_loop(client), preset, key, connection)

    def __repr__(self) -> str:
        return f"ChatModel({self.provider!r}, {self.name!r})"

    def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas as they come, then exactly one Reply, last. Raises only ModelError."""
        call = _Call(self, ask)
        if self.preset.lists_windows and self.context_window is None and self._asking is None:
            # Not awaited: this call needs the window only if it is too long, and learns it from the
            # refusal then.
            self._asking = asyncio.ensure_future(self._ask_window(call.headers()))
        if not self._explained:
            self._explained = True
            explain_config(ask.config, call.dialect, call.name)
        return retried(call.events, call.failure, self.connection.retries, call.mended)

    async def _ask_window(self, headers: Mapping[str, str]) -> None:
        """Read how many tokens the model can read from the server's list, for later calls."""
        path = self.url.path.removesuffix("/chat/completions") + "/models"
        url = self.url.copy_with(path=path)
        self.context_window = await listed_window(self.client(), url, headers, self.name)


class _Call(Attempts["ChatModel"]):
    """One call of the model, with its retries."""

    def __init__(self, model: ChatModel, ask: Ask) -> None:
        dialect = self.dialect = dialect_of(model.provider, ask.model or model.name)
        super().__init__(model, ask, (*OPTIONAL, *dialect.limits), dialect.limits)

    async def events(self) -> AsyncGenerator[ModelEvent, None]:
        """One attempt."""
        model, ask = self._model, self._ask
        names = {sent: tool.name for sent, tool in sent_names(ask.tools).items()}
        whole = Accumulator(
            names,
            self.name,
            hold_text=ask.schema is not None,
            thinks_first=self.dialect.thinks_first,
        )
        closed = False
        async with model.client().stream(
            "POST", model.url, content=self._body(), headers=self.headers()
        ) as response:
            if at_once := await self._answered_whole(response):
                for delta in whole.feed(_chunk(await response.aread(), self._failed)):
                    yield delta
                closed = True
            else:
                chunks = events(response.aiter_bytes())
                async for data in chunks:
                    if data.strip() == "[DONE]":
                        closed = True
                        await drain(chunks)
                        break
                    for delta in whole.feed(_chunk(data, self._failed)):
                        yield delta
        for delta in whole.rest():
            yield delta
        reply = whole.whole(closed=closed)
        if reply is None:
            raise cut_off(model.provider, started=whole.started and not at_once)
        for event in last_events(reply, ask, model.provider):
            yield event

    def failure(self, error: Exception) -> ModelError:
        """The ModelError for what an attempt raised."""
        return failure(self._model.provider, error)

    def _body(self) -> bytes:
        full = request(self._ask, self.name, self.dialect, self._learned, self._model.connection)
        self._sent = full
        return json.dumps(full).encode()

    def headers(self) -> dict[str, str]:
        """The headers of an attempt."""
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        self._key = self._ask.key or self._model.key.value
        name = (self._model.connection.key_header or self._model.preset.key_header).lower()
        if self._key:
            headers[name] = f"Bearer {self._key}" if name == "authorization" else self._key
        return headers

    async def _answered_whole(self, response: httpx2.Response) -> bool:
        """Whether the answer is one JSON document; raises ModelError for a refusal."""
        if response.status_code >= 300:
            body = await _refusal(response)
            raise self._failed(response.status_code, body, response.headers)
        if response.status_code != 200:
            raise cut_off(self._model.provider, started=False)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return bool(kind == "application/json")

    def _failed(
        self, status: int, body: object, headers: Mapping[str, str] | None = None
    ) -> ModelError:
        secrets = (self._key, self._model.key.value, *self._ask.secrets)
        provider = self._model.provider
        return status_fault(provider, status, headers or {}, body, secrets=secrets, model=self.name)


async def _refusal(response: httpx2.Response) -> bytes:
    """The part of a refusal's text that arrives soon."""
    body = b""
    try:
        async with asyncio.timeout(_REFUSAL_SECONDS):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > LONGEST_BODY:
                    break
    except (TimeoutError, httpx2.HTTPError, ModelError):
        pass
    return body[:LONGEST_BODY]


def _chunk(data: str | bytes, failed: Callable[[int, object], ModelError]) -> dict[str, Any]:
    chunk = json.loads(data)
    if not isinstance(chunk, dict):
        raise TypeError("a chunk that is no object")
    if error := chunk.get("error"):
        raise failed(_status(error), {"error": error})
    return chunk


def _status(error: Any) -> int:
    # An error within a stream of status 200 says its kind by a number or a word.
    if not isinstance(error, dict):
        return 500
    code = str(error.get("code"))
    if code.isdecimal() and 400 <= int(code) < 600:
        return int(code)
    words = f"{code} {error.get('type')}".lower()
    table = {
        "rate_limit": 429,
        "quota": 429,
        "overloaded": 503,
        "unavailable": 503,
        "auth": 401,
        "api_key": 401,
        "permission": 403,
        "not_found": 404,
        "invalid_request": 400,
        "timeout": 504,
    }
    return next((status for word, status in table.items() if word in words), 500)
