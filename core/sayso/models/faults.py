"""Failures of a provider as `ModelError`, and the rules for trying a call again.

The messages are sentences of our own that say what to do: a provider's text may repeat a key or
the conversation.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime

import httpx2

from sayso.errors import ModelError, ModelErrorKind
from sayso.models import ModelEvent
from sayso.models.names import nearest_model
from sayso.models.refusals import hidden, kind_of, request_id, said_in, wait_in

log = logging.getLogger("sayso.models")

LONGEST_WAIT = 10.0
"""Seconds. After a provider asks for a longer pause, there is no second try within the turn."""

_SENTENCES: Mapping[ModelErrorKind, str] = {
    "auth": "did not accept the credentials; the service's key for it has to be checked",
    "bad_request": "refused the request",
    "context": "refused the conversation as longer than the model can read; "
    "send less, or begin a new conversation",
    "not_found": "does not know the model or the address; model.name and model.base_url have to be "
    "checked",
    "quota": "says that the quota of the service's account is used up; its plan or billing has to "
    "be looked at",
    "rate_limit": "is limiting the rate of requests",
    "overloaded": "is overloaded",
    "server": "failed",
    "connection": "could not be reached, or the connection was lost",
    "timeout": "did not answer in time",
    "protocol": "sent an answer that could not be read",
}
_RETRYABLE: frozenset[ModelErrorKind] = frozenset(
    {"rate_limit", "overloaded", "server", "connection", "timeout"}
)


def fault(
    provider: str, kind: ModelErrorKind, detail: str = "", *, retry_after: float | None = None
) -> ModelError:
    """A ModelError: `the model provider PROVIDER …`; `detail` must not quote the provider."""
    sentence = f"the model provider {provider!r} {_SENTENCES[kind]}"
    return ModelError(
        kind,
        f"{sentence}: {detail}" if detail else sentence,
        retryable=kind in _RETRYABLE,
        retry_after=retry_after,
    )


def lost(provider: str, error: BaseException) -> ModelError:
    """The error for a connection that failed or broke; the cause is logged."""
    found: BaseException | None = error
    cause: OSError | None = None
    while found is not None:
        cause = found if isinstance(found, OSError) else cause
        found = found.__cause__ or found.__context__
    if cause is not None:
        what = f"{type(cause).__name__}: {cause.strerror or cause}"
        log.info("no connection to the model provider %r: %s", provider, what)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return fault(provider, "connection")
    way_out = "its certificate is not trusted; set SSL_CERT_FILE to a file of those that are"
    return ModelError("connection", f"{fault(provider, 'connection')}: {way_out}")


def status_fault(
    provider: str,
    status: int,
    headers: Mapping[str, str],
    body: object = None,
    *,
    secrets: Sequence[str] = (),
    model: str = "",
) -> ModelError:
    """The error for an HTTP status of 300 and above.

    `body` is the refusal's, as text, bytes or JSON values: what it says is kept as the reason,
    without `secrets`, the key among them. `model` is the id that was asked for.
    """
    if status < 400:
        way_out = "set model.base_url to the address it leads to"
        return fault(provider, "protocol", f"status {status}; {way_out}")
    said = said_in(body)
    kind = kind_of(status, said)
    detail = f"status {status}"
    if kind == "not_found" and (meant := nearest_model(provider, model)):
        detail += f"; did you mean {meant!r}?"
    return ModelError(
        kind,
        f"the model provider {provider!r} {_SENTENCES[kind]}: {detail}",
        retryable=kind in _RETRYABLE,
        retry_after=wait_in(said) if (wait := retry_after(headers)) is None else wait,
        reason=hidden(said.message, secrets),
        parameter=hidden(said.parameter, secrets),
        request_id=request_id(headers),
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait, from `retry-after-ms` or `retry-after`."""
    try:
        seconds = _seconds(headers)
    except (ValueError, OverflowError):
        return None
    return seconds if seconds is not None and math.isfinite(seconds) else None


def _seconds(headers: Mapping[str, str]) -> float | None:
    if (millis := headers.get("retry-after-ms")) is not None:
        return max(0.0, float(millis) / 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        return float(value)
    return _seconds_until(email.utils.parsedate_to_datetime(value))


def _seconds_until(date: datetime) -> float:
    moment = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


async def retried(
    attempt: Callable[[], AsyncGenerator[ModelEvent, None]],
    failure: Callable[[Exception], ModelError],
    retries: int,
    mended: Callable[[ModelError], Awaitable[bool]] | None = None,
) -> AsyncGenerator[ModelEvent, None]:
    """The events of `attempt()`, called again after a temporary fault if nothing was yielded yet.

    `failure` converts each of its errors to a ModelError. `mended` says whether the next attempt
    after that error will differ, by a renewed key or without the refused parameter; such an attempt
    is made at once and is not counted.
    """
    number = 0
    while True:
        started = False
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    started = True
                    yield event
            return
        except Exception as error:
            failed = failure(error)
        if not started and mended is not None and await mended(failed):
            continue
        pause = _pause(failed, number)
        if started or number == retries or pause is None:
            # Raised outside the handler so that it keeps no reference to the client's error, and
            # its request.
            raise failed
        log.info("%s; trying again in %.1f s", failed, pause)
        await asyncio.sleep(pause)
        number += 1


def _pause(error: ModelError, number: int) -> float | None:
    # A call that timed out has already used up the caller's patience.
    if not error.retryable or error.kind == "timeout":
        return None
    wait = error.retry_after if error.retry_after is not None else 0.5 * 2.0**number
    return wait if wait <= LONGEST_WAIT else None


def cut_off(provider: str, *, started: bool) -> ModelError:
    """The error for a stream that ended too early; `started`: after a first event of the format."""
    if started:
        return fault(provider, "connection", "it ended before it was complete")
    return fault(provider, "protocol", "it is no stream of events")


async def drain(rest: AsyncIterator[object]) -> None:
    """Read the rest of a complete message's stream if it is there already.

    The connection can only be reused after that; errors no longer matter here.
    """
    with suppress(Exception):
        async with asyncio.timeout(0.2):
            async for _ in rest:
                pass


def failure(provider: str, error: Exception) -> ModelError:
    """The error for an exception of a provider call; the place of an unforeseen one is logged."""
    match error:
        case ModelError():
            return error
        case httpx2.TimeoutException():
            return fault(provider, "timeout")
        case httpx2.TransportError():
            return lost(provider, error)
        case ValueError() | LookupError() | TypeError() | AttributeError() | httpx2.HTTPError():
            log.info("unreadable answer of the model provider: %s", _where(error))
        case _:
            log.warning("unforeseen failure of a model call: %s", _where(error))
    return fault(provider, "protocol")


def _where(error: BaseException) -> str:
    """The type and place of an error, without its text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
