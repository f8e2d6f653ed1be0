"""The Responses API, through the official SDK, which takes seconds to import."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import openai
from httpx2 import URL

from sayso import Ask, ModelError, per_loop
from sayso.models.adapters import (
    Attempts,
    Connection,
    Key,
    Learned,
    ModelEvent,
    certificates,
    cut_off,
    drain,
    failure,
    fault,
    last_events,
    lost,
    retried,
    sent_names,
    status_fault,
)
from sayso_openai.dialects import Dialect, dialect_of
from sayso_openai.presets import Preset
from sayso_openai.request import explain_config
from sayso_openai.responses_reply import Accumulator
from sayso_openai.responses_request import LIMITS, OPTIONAL, request
from sayso_openai.windows import window_of

_CODES = {"rate_limit_exceeded": 429, "insufficient_quota": 429, "server_error": 500}


class ResponsesModel:
    """A model behind the Responses API; a `Model`."""

    never_blocks = True
    takes_attachments = (
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "application/pdf",
    )

    def __init__(
        self,
        name: str,
        client: Callable[[], openai.AsyncOpenAI],
        preset: Preset,
        key: Key,
        connection: Connection,
    ) -> None:
        self.name = name
        self.provider = preset.name
        self.context_window = window_of(name)
        self.client = client
        self.key = key
        self.connection = connection
        self.key_header = (connection.key_header or preset.key_header).lower()
        self.learned: dict[str, Learned] = {}
        self._explained = False

    @classmethod
    def at(
        cls, address: str, name: str, preset: Preset, key: Key, connection: Connection
    ) -> ResponsesModel:
        """The model at a base URL, which may have a query, or name the whole address."""
        url = URL(address)
        path = url.path.rstrip("/").removesuffix("/responses")
        if preset.name == "azure" and "/openai/" not in f"{path}/":
            path += "/openai/v1"
        query = {**dict(url.params), **connection.query}
        base = url.copy_with(path=path or "/", query=None)
        trusted = certificates()

        def client() -> openai.AsyncOpenAI:
            http = openai.DefaultAsyncHttpxClient(**connection.client(trusted))
            return openai.AsyncOpenAI(
                # The key goes with each call, since it may change.
                api_key=key.value or "none",
                base_url=base,
                # The SDK would wait for minutes if a provider asked for it.
                max_retries=0,
                timeout=http.timeout,
                default_headers=dict(connection.headers),
                default_query=query,
                http_client=http,
            )

        return cls(name, per_loop(client), preset, key, connection)

    def __repr__(self) -> str:
        return f"ResponsesModel({self.provider!r}, {self.name!r})"

    def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas as they come, then exactly one Reply, last. Raises only ModelError."""
        call = _Call(self, ask)
        if not self._explained:
            self._explained = True
            explain_config(ask.config, call.dialect, call.name)
        return retried(call.events, call.failure, self.connection.retries, call.mended)


class _Call(Attempts["ResponsesModel"]):
    """One call of the model, with its retries."""

    def __init__(self, model: ResponsesModel, ask: Ask) -> None:
        super().__init__(model, ask, (*OPTIONAL, *LIMITS), LIMITS)
        self.dialect: Dialect = dialect_of("openai", self.name)

    async def events(self) -> AsyncGenerator[ModelEvent, None]:
        """One attempt."""
        model, ask = self._model, self._ask
        names = {sent: tool.name for sent, tool in sent_names(ask.tools).items()}
        whole = Accumulator(names, self.name, hold_text=ask.schema is not None)
        self._sent = request(ask, self.name, self.dialect, self._learned, model.connection)
        self._key = ask.key or model.key.value
        body: Any = dict(self._sent)
        responses = model.client().responses
        async with await responses.create(
            **{name: body.pop(name) for name in ("model", "input", "stream")},
            extra_body=body,
            extra_headers=self._headers(),
        ) as stream:
            events = aiter(stream)
            async for event in events:
                for delta in whole.feed(_plain(event)):
                    yield delta
                if whole.failed is not None:
                    raise self._failed(_status(whole.failed), {"error": whole.failed})
                if whole.reply is not None:
                    await drain(events)
        if whole.reply is None:
            raise cut_off(model.provider, started=whole.started)
        for last in last_events(whole.reply, ask, model.provider):
            yield last

    def failure(self, error: Exception) -> ModelError:
        """The ModelError for what an attempt raised."""
        provider = self._model.provider
        match error:
            case openai.APIStatusError():
                body = error.body if error.body is not None else error.response.text
                return self._failed(error.status_code, {"error": body}, error.response.headers)
            case openai.APITimeoutError():
                return fault(provider, "timeout")
            case openai.APIConnectionError():
                return lost(provider, error)
            case openai.APIError() if isinstance(error.body, Mapping):
                return self._failed(_status(error.body), {"error": error.body})
            case openai.OpenAIError():
                return fault(provider, "protocol")
        return failure(provider, error)

    def _headers(self) -> dict[str, Any]:
        if self._model.key_header == "authorization":
            return {"authorization": f"Bearer {self._key}"} if self._key else {}
        return {"authorization": openai.Omit(), self._model.key_header: self._key}

    def _failed(
        self, status: int, body: object, headers: Mapping[str, str] | None = None
    ) -> ModelError:
        secrets = (self._key, self._model.key.value, *self._ask.secrets)
        provider = self._model.provider
        return status_fault(provider, status, headers or {}, body, secrets=secrets, model=self.name)


def _plain(event: Any) -> dict[str, Any]:
    if not isinstance(event, openai.BaseModel):
        raise TypeError("an event that is no object")
    return event.to_dict(warnings=False)


def _status(error: Mapping[str, Any]) -> int:
    # An error within a stream of status 200 says its kind by a word.
    code = str(error.get("code") or error.get("type"))
    return _CODES.get(code) or (400 if "invalid" in code or "policy" in code else 500)
