"""The `anthropic` model: the messages API through the official SDK.

The module imports the SDK, which takes seconds; it is itself imported only when an Anthropic model
is configured, at start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import anthropic
import httpx2

from sayso import Ask, ConfigError, ModelError, per_loop
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
    lost,
    retried,
    sent_names,
    status_fault,
)
from sayso_anthropic.reply import Accumulator
from sayso_anthropic.request import explain_config, keys_of, request

log = logging.getLogger("sayso.models")

DEFAULT_MODEL = "claude-sonnet-5-5"

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
}


def connect(name: str, settings: Mapping[str, Any]) -> Anthropic:
    """The model `name`, `claude-sonnet-5-5` when empty.

    `settings`: `api_key` and `base_url` (default: as the SDK finds them), `timeout` in seconds
    between two pieces of an answer (60), `retries` before the first piece (2). Raises ConfigError
    when there are no credentials.
    """
    model = name or DEFAULT_MODEL
    address = _root(str(settings.get("base_url") or os.environ.get("ANTHROPIC_BASE_URL") or ""))
    if address:
        checked_address(address, "anthropic", "https://api.anthropic.com")
    seconds = float(settings.get("timeout", 60.0))
    timeout = httpx2.Timeout(seconds, connect=min(seconds, 10.0))
    limit = int(settings.get("reply", REPLY))
    # Made once here, not on each loop.
    trusted = certificates()

    def client() -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(
            api_key=settings.get("api_key") or None,
            base_url=address or None,
            timeout=timeout,
            # The SDK would wait for hours if a provider asks for it.
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(
                verify=trusted, timeout=timeout, headers=PLAIN, event_hooks=bounded(limit)
            ),
        )

    _check_credentials(client, model)
    return Anthropic(model, per_loop(client), retries=int(settings.get("retries", 2)))


def _root(address: str) -> str:
    # The SDK adds both itself; for other clients, the address includes the version or the whole
    # path.
    return address.rstrip("/").removesuffix("/v1/messages").removesuffix("/v1")


class Anthropic:
    """A Claude model; a `Model`."""

    provider = "anthropic"
    never_blocks = True

    def __init__(
        self, name: str, client: Callable[[], anthropic.AsyncAnthropic], *, retries: int = 2
    ) -> None:
        self.name = name
        self._client = client
        self._retries = retries
        self._explained = False

    def __repr__(self) -> str:
        return f"Anthropic({self.name!r})"

    def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Deltas as they come, then exactly one Reply, last. Raises only ModelError."""
        if not self._explained:
            self._explained = True
            explain_config(ask.config, self.name)
        return retried(lambda: self._events(ask), _failure, self._retries)

    async def _events(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        names = {sent: tool.name for sent, tool in sent_names(ask.tools).items()}
        whole = Accumulator(names, keys_of(ask.tools), hold_text=ask.schema is not None)
        async with await self._client().messages.create(**request(ask, self.name)) as stream:
            events = aiter(stream)
            async for event in events:
                for delta in whole.feed(_plain(event)):
                    yield delta
                if whole.reply is not None:
                    await drain(events)
        if whole.reply is None:
            raise cut_off("anthropic", started=whole.started)
        for last in last_events(whole.reply, ask, "anthropic"):
            yield last


def _plain(event: Any) -> dict[str, Any]:
    if not isinstance(event, anthropic.BaseModel):
        raise TypeError("an event that is no object")
    return event.to_dict(warnings=False)


def _check_credentials(client: Callable[[], anthropic.AsyncAnthropic], model: str) -> None:
    way_out = (
        "set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN, or a profile), or, to do without a "
        "language model, SAYSO_MODEL__NAME=offline"
    )
    try:
        probe = client()
    except (anthropic.AnthropicError, ValueError, TypeError, OSError) as error:
        kind = type(error).__name__
        raise ConfigError(
            f"the credentials or address for model 'anthropic:{model}' cannot be read ({kind}); "
            f"{way_out}"
        ) from None
    header = "authorization" in os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").lower()
    if not (probe.api_key or probe.auth_token or probe.credentials or header):
        raise ConfigError(f"there are no credentials for model 'anthropic:{model}'; {way_out}")
    check_key(probe.api_key or probe.auth_token or "", f"anthropic:{model}")


def _failure(error: Exception) -> ModelError:
    match error:
        case anthropic.APIStatusError():
            return _status_failure(error)
        case anthropic.APITimeoutError():
            return fault("anthropic", "timeout")
        case anthropic.APIConnectionError():
            return lost("anthropic", error)
        case anthropic.CredentialsError():
            return fault("anthropic", "auth")
        case anthropic.AnthropicError():
            return fault("anthropic", "protocol")
    return failure("anthropic", error)


def _status_failure(error: anthropic.APIStatusError) -> ModelError:
    # An error event within a stream has the stream's own status, 200.
    status, kind = error.status_code, _token(error.type)
    if status < 400:
        status = _TYPES.get(kind, 500)
    log.info("model provider 'anthropic': status %d, type %s", status, kind)
    return status_fault("anthropic", status, error.response.headers)


def _token(value: object) -> str:
    return value if isinstance(value, str) and value.replace("_", "").isalnum() else "unknown"
