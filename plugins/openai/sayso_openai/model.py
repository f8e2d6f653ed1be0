"""The `openai` model: any endpoint that speaks OpenAI's chat completions, on httpx2."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any

import httpx2

from sayso import Ask, ConfigError, per_loop
from sayso.models.adapters import (
    PLAIN,
    REPLY,
    ModelEvent,
    bounded,
    certificates,
    check_key,
    checked_address,
    cut_off,
    drain,
    failure,
    fault,
    last_events,
    retried,
    sent_names,
    status_fault,
)
from sayso_openai.reply import Accumulator, events
from sayso_openai.request import explain_config, request

OFFICIAL = "https://api.openai.com/v1"


def connect(name: str, settings: Mapping[str, Any]) -> OpenAI:
    """The model `name` at `base_url`, else OPENAI_BASE_URL, else OpenAI's own address.

    `settings`: `base_url`, with `/chat/completions` or without it, with its query if it has one,
    `api_key` (default: OPENAI_API_KEY; needed only at OpenAI's own address), `timeout` in seconds
    between two pieces of an answer (60), `retries` before the first piece (2). Raises ConfigError.
    """
    address = settings.get("base_url") or os.environ.get("OPENAI_BASE_URL") or OFFICIAL
    key = settings.get("api_key") or os.environ.get("OPENAI_API_KEY") or ""
    url = _checked(str(address))
    if not name:
        raise ConfigError("model 'openai' needs a model name, for example 'openai:gpt-4.1'")
    official = url.host == "api.openai.com"
    if official and not key:
        raise ConfigError(
            f"there is no key for model 'openai:{name}'; set OPENAI_API_KEY, or OPENAI_BASE_URL "
            "for another endpoint, or, to do without a language model, SAYSO_MODEL__NAME=offline"
        )
    check_key(key, f"openai:{name}")
    seconds = float(settings.get("timeout", 60.0))
    # Made once here, not on each loop.
    trusted = certificates()

    def client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=PLAIN | ({"authorization": f"Bearer {key}"} if key else {}),
            verify=trusted,
            event_hooks=bounded(int(settings.get("reply", REPLY))),
            timeout=httpx2.Timeout(seconds, connect=min(seconds, 10.0)),
            limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
        )

    return OpenAI(
        name, url, per_loop(client), official=official, retries=int(settings.get("retries", 2))
    )


def _checked(address: str) -> httpx2.URL:
    base, mark, query = address.partition("?")
    path = base.rstrip("/").removesuffix("/chat/completions")
    return checked_address(
        f"{path}/chat/completions{mark}{query}", "openai", "http://127.0.0.1:11434/v1"
    )


class OpenAI:
    """A model behind an OpenAI-compatible endpoint; a `Model`."""

    provider = "openai"
    never_blocks = True

    def __init__(
        self,
        name: str,
        url: httpx2.URL,
        client: Callable[[], httpx2.AsyncClient],
        *,
        official: bool = False,
        retries: int = 2,
    ) -> None:
        self.name = name
        self._url = url
        self._client = client
        self._official = official
        self._retries = retries
        self._explained = False

    def __repr__(self) -> str:
        return f"OpenAI({self.name!r})"

    def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas as they come, then exactly one Reply, last. Raises only ModelError."""
        if not self._explained:
            self._explained = True
            explain_config(ask.config, self.name, official=self._official)
        return retried(lambda: self._events(ask), partial(failure, "openai"), self._retries)

    async def _events(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        names = {sent: tool.name for sent, tool in sent_names(ask.tools).items()}
        whole = Accumulator(names, self.name, hold_text=ask.schema is not None)
        body = json.dumps(request(ask, self.name, official=self._official)).encode()
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        closed = False
        async with self._client().stream(
            "POST", self._url, content=body, headers=headers
        ) as response:
            _check(response)
            chunks = events(response.aiter_bytes())
            async for data in chunks:
                if data.strip() == "[DONE]":
                    closed = True
                    await drain(chunks)
                    break
                for delta in whole.feed(_chunk(data)):
                    yield delta
        reply = whole.whole(closed=closed)
        if reply is None:
            raise cut_off("openai", started=whole.started)
        for event in last_events(reply, ask, "openai"):
            yield event


def _check(response: httpx2.Response) -> None:
    if response.status_code >= 400:
        raise status_fault("openai", response.status_code, response.headers)
    if response.is_redirect:
        way_out = f"status {response.status_code}; set model.base_url to the address it leads to"
        raise fault("openai", "protocol", way_out)
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code != 200 or kind == "application/json":
        raise cut_off("openai", started=False)


def _chunk(data: str) -> dict[str, Any]:
    chunk = json.loads(data)
    if not isinstance(chunk, dict):
        raise TypeError("a chunk that is no object")
    if error := chunk.get("error"):
        raise status_fault("openai", _status(error), {})
    return chunk


def _status(error: Any) -> int:
    # An error within a stream of status 200 gives its kind as a number or a word.
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
