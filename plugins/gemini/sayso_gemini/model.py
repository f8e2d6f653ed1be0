"""The `gemini` model: Google's API through the official SDK.

The module imports the SDK, which takes seconds; it is itself imported only when a Gemini model is
configured, at start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

import httpx2
from google import genai
from google.genai import errors, types

from sayso import Ask, ConfigError, ModelError, per_loop
from sayso.models.adapters import (
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
    key_for,
    last_events,
    retried,
    status_fault,
)
from sayso_gemini.abilities import abilities_of
from sayso_gemini.reply import Accumulator
from sayso_gemini.request import (
    LIMITS,
    OPTIONAL,
    config_of,
    contents,
    explain_config,
    names_of,
)

DEFAULT_MODEL = "gemini-3.8-flash"
_ADDRESS = "https://generativelanguage.googleapis.com"
_KEY_HEADER = "x-goog-api-key"


def connect(name: str, settings: Mapping[str, Any]) -> Gemini:
    """The model `name`, `gemini-3.8-flash` when empty, with GEMINI_API_KEY or GOOGLE_API_KEY.

    Raises ConfigError when there is no key.
    """
    model = name or DEFAULT_MODEL
    spec = f"gemini:{model}"
    given = str(settings.get("base_url") or os.environ.get("GOOGLE_GEMINI_BASE_URL") or "")
    address = given.rstrip("/").removesuffix("/v1beta").removesuffix("/v1")
    checked_address(address or _ADDRESS, "gemini", _ADDRESS)
    key = key_for(spec, settings, "GEMINI_API_KEY", "GOOGLE_API_KEY")
    if not key.value:
        raise ConfigError(
            f"there is no key for model {spec!r}; set GEMINI_API_KEY, or model.options.key, or, to "
            "do without a language model, SAYSO_MODEL__NAME=offline"
        )
    connection = Connection.of({**settings, "base_url": address})
    # Loaded once here, since loading certificates on each loop would take long.
    arguments = connection.client(certificates())
    return Gemini(model, per_loop(lambda: _Client(connection, arguments)), key, connection)


class _Client:
    """The SDK's client of one event loop, and the HTTP client below it."""

    def __init__(self, connection: Connection, arguments: Mapping[str, Any]) -> None:
        self._http = httpx2.AsyncClient(**arguments, params=dict(connection.query))
        self._http.event_hooks["response"].append(self._note)
        self._answers: WeakKeyDictionary[asyncio.Task[Any], httpx2.Response] = WeakKeyDictionary()
        options = types.HttpOptions(
            base_url=connection.base_url or None,
            headers=dict(connection.headers),
            httpx_async_client=self._http,
        )
        # The key goes with each call, since it may change.
        client = genai.Client(api_key="none", vertexai=False, http_options=options)
        self.models = client.aio.models

    async def _note(self, response: httpx2.Response) -> None:
        if task := asyncio.current_task():
            self._answers[task] = response

    async def close_answer(self) -> None:
        """Close the responses of this task: the SDK leaves one open when it raises."""
        task = asyncio.current_task()
        if task is not None and (response := self._answers.pop(task, None)) is not None:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class Gemini:
    """A Gemini model; a `Model`."""

    provider = "gemini"
    never_blocks = True
    takes_attachments = ("image/jpeg", "image/png", "image/webp", "application/pdf")

    def __init__(
        self, name: str, client: Callable[[], _Client], key: Key, connection: Connection
    ) -> None:
        self.name = name
        self.client = client
        self.key = key
        self.connection = connection
        self.context_window = abilities_of(name).window
        self.learned: dict[str, Learned] = {}
        self._explained = False

    def __repr__(self) -> str:
        return f"Gemini({self.name!r})"

    def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas as they come, then exactly one Reply, last. Raises only ModelError."""
        call = _Call(self, ask)
        if not self._explained:
            self._explained = True
            explain_config(ask.config, call.name)
        return retried(call.events, call.failure, self.connection.retries, call.mended)


class _Call(Attempts["Gemini"]):
    """One call of the model, with its retries."""

    def __init__(self, model: Gemini, ask: Ask) -> None:
        super().__init__(model, ask, OPTIONAL, LIMITS)

    async def events(self) -> AsyncGenerator[ModelEvent, None]:
        """One attempt."""
        model, ask = self._model, self._ask
        names = {name: tool.name for name, tool in names_of(ask.tools).items()}
        whole = Accumulator(names, self.name, hold_text=ask.schema is not None)
        self._sent = config_of(ask, self.name, self._learned, model.connection)
        config = types.GenerateContentConfig.model_validate({**self._sent, **self._transport()})
        client = model.client()
        try:
            stream: Any = await client.models.generate_content_stream(
                model=self.name, contents=_read(contents(ask, self.name)), config=config
            )
            async with aclosing(stream):
                async for chunk in stream:
                    for delta in whole.feed(chunk.model_dump(mode="json", exclude_none=True)):
                        yield delta
                    if whole.ended:
                        await drain(stream)
                        break
        finally:
            await client.close_answer()
        reply = whole.whole()
        if reply is None:
            raise cut_off("gemini", started=whole.started)
        for last in last_events(reply, ask, "gemini"):
            yield last

    def failure(self, error: Exception) -> ModelError:
        """The ModelError for what an attempt raised."""
        if not isinstance(error, errors.APIError):
            return failure("gemini", error)
        headers = getattr(error.response, "headers", None) or {}
        return status_fault(
            "gemini",
            error.code if isinstance(error.code, int) else 500,
            headers,
            error.details,
            secrets=(self._key, self._model.key.value, *self._ask.secrets),
            model=self.name,
        )

    def _transport(self) -> dict[str, Any]:
        connection = self._model.connection
        self._key = self._ask.key or self._model.key.value
        headers = {**connection.headers, connection.key_header or _KEY_HEADER: self._key}
        # In milliseconds; without a timeout the SDK would wait for ever.
        longest = max(connection.timeout, connection.first_byte_timeout)
        options: dict[str, Any] = {"headers": headers, "timeout": int(longest * 1000)}
        if connection.extra_body:
            options["extra_body"] = dict(connection.extra_body)
        return {
            "http_options": options,
            # Only the engine runs tools.
            "automatic_function_calling": {"disable": True},
            "automatic_continuation": False,
        }


def _read(sent: list[dict[str, Any]]) -> Any:
    return [types.Content.model_validate(content) for content in sent]
