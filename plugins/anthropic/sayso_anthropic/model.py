"""A Claude model: the messages API through the official SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import anthropic

from sayso import Ask, ModelError
from sayso.models.adapters import (
    Attempts,
    Connection,
    Key,
    Learned,
    ModelEvent,
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
from sayso_anthropic.models import abilities_of
from sayso_anthropic.platforms import Client, Platform
from sayso_anthropic.reply import Accumulator
from sayso_anthropic.request import (
    LATE,
    LIMITS,
    OPTIONAL,
    adapter_key,
    explain_config,
    keys_of,
    request,
)

_OLD_VERSION = "2023-06-01"
"""Under the SDK's own version of the API temperature and its like are refused, even at their
defaults."""
_SAMPLING = ("temperature", "top_p", "top_k")
_TYPES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "api_error": 500,
    "timeout_error": 504,
    # The names of Bedrock's streams.
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "validationException": 400,
    "modelTimeoutException": 504,
}


class Claude:
    """A Claude model; a `Model`."""

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
        platform: Platform,
        client: Callable[[], Client],
        key: Key,
        connection: Connection,
    ) -> None:
        self.name = name
        self.provider = platform.name
        self.platform = platform
        self.client = client
        self.key = key
        self.connection = connection
        self.context_window = abilities_of(name).window
        self.learned: dict[str, Learned] = {}
        self._explained = False

    def __repr__(self) -> str:
        return f"Claude({self.provider!r}, {self.name!r})"

    def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas as they come, then exactly one Reply, last. Raises only ModelError."""
        call = _Call(self, ask)
        if not self._explained:
            self._explained = True
            explain_config(ask.config, call.name, self.connection.effort)
        return retried(call.events, call.failure, self.connection.retries, call.mended)


class _Call(Attempts["Claude"]):
    """One call of the model, with its retries."""

    def __init__(self, model: Claude, ask: Ask) -> None:
        super().__init__(model, ask, OPTIONAL, LIMITS)

    async def events(self) -> AsyncGenerator[ModelEvent, None]:
        """One attempt."""
        model, ask = self._model, self._ask
        names = {sent: tool.name for sent, tool in sent_names(ask.tools).items()}
        adapter, hold = adapter_key(self.name), ask.schema is not None
        whole = Accumulator(names, keys_of(ask.tools), adapter, hold_text=hold)
        platform, effort = model.platform, model.connection.effort
        self._sent = request(
            ask, self.name, self._learned, effort, late_system=platform.late_system
        )
        messages = self._client().messages
        async with await messages.create(**self._arguments()) as stream:
            events = aiter(stream)
            async for event in events:
                for delta in whole.feed(_plain(event)):
                    yield delta
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
            case anthropic.APIStatusError():
                return self._refusal(error)
            case anthropic.APITimeoutError():
                return fault(provider, "timeout")
            case anthropic.APIConnectionError():
                return lost(provider, error)
            case anthropic.CredentialsError():
                return fault(provider, "auth")
            case anthropic.AnthropicError():
                return fault(provider, "protocol")
        if type(error).__module__.partition(".")[0] in ("botocore", "google"):
            return fault(provider, "auth")
        return failure(provider, error)

    async def mended(self, error: ModelError) -> bool:
        """Whether the next attempt will differ."""
        return self._unplaced(error) or await super().mended(error)

    def _unplaced(self, error: ModelError) -> bool:
        """Learn from a refusal of marks, or of a system message among the others, which stand in
        no place of their own; False if it is of something else."""
        if error.kind != "bad_request" or not self._ask.config.get("cache_system_prompt"):
            return False
        late = any(message["role"] == "system" for message in self._sent.get("messages", ()))
        for name, named in (("cache_control", True), (LATE, late)):
            word = "cache_control" if name == "cache_control" else "system"
            if named and word in error.reason and name not in self._learned.left_out:
                self._learned.left_out.add(name)
                return True
        return False

    def _client(self) -> Client:
        model = self._model
        client = model.client()
        self._key = self._ask.key or model.key.value
        argument = model.platform.key_argument
        if not self._key or self._key == getattr(client, argument):
            return client
        # The copy shares the connections of the first client.
        changed: Any = {argument: self._key}
        if header := model.connection.key_header:
            changed["default_headers"] = {header: self._key}
        return client.copy(**changed)

    def _arguments(self) -> dict[str, Any]:
        """The request as the SDK takes it."""
        body = {**self._sent}
        sampling = {key: body.pop(key) for key in _SAMPLING if key in body}
        extra = {**sampling, **self._model.connection.extra_body}
        if not sampling:
            return body | ({"extra_body": extra} if extra else {})
        if self._model.platform.dates_body:
            return body | {"extra_body": {"anthropic_version": _OLD_VERSION, **extra}}
        headers = {"anthropic-version": _OLD_VERSION}
        return body | {"extra_body": extra, "extra_headers": headers}

    def _refusal(self, error: anthropic.APIStatusError) -> ModelError:
        # An error event within a stream comes with the stream's own status, 200.
        status = error.status_code
        if status < 300:
            status = _TYPES.get(str(error.type or _kind(error.body)), 500)
        body = error.body if error.body is not None else error.response.text
        return status_fault(
            self._model.provider,
            status,
            error.response.headers,
            body,
            secrets=(self._key, self._model.key.value, *self._ask.secrets),
            model=self.name,
        )


def _kind(body: object) -> object:
    inner = body.get("error") if isinstance(body, Mapping) else None
    return inner.get("type") if isinstance(inner, Mapping) else None


def _plain(event: Any) -> dict[str, Any]:
    if not isinstance(event, anthropic.BaseModel):
        raise TypeError("an event that is no object")
    return event.to_dict(warnings=False)
