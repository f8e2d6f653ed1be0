"""The parts of a provider's refusal: the reason, the refused parameter and the request id.

Its text may repeat a key or the conversation. Therefore it goes to the log only, without secrets,
and callers read a sentence of Sayso's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sayso.errors import ModelErrorKind
from sayso.wire.json_bytes import encodable
from sayso.wire.masking import MASK, Secrets

LONGEST_REASON = 500
"""Characters of a provider's text that are kept."""
LONGEST_BODY = 64 * 2**10
"""Bytes of a refusal's body that are read."""
_KEYS = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|pplx|hf|key|ghp|glpat)[-_][\w*.-]{6,}|\bAIza[\w-]{20,}"
    r"|\bA(?:KIA|SIA)[0-9A-Z]{12,}|\beyJ[\w-]{10,}\.[\w.-]+|(?i:bearer)\s+[\w.~+/=-]{8,}"
)
"""Forms of known keys: a provider may quote another key than the one that was sent."""
_REQUEST_IDS = ("request-id", "x-request-id", "x-amzn-requestid", "apim-request-id")
_TOO_LONG = re.compile(
    r"context[_ -]?(?:length|window|size|limit)|prompt is too long|too many (?:input )?tokens"
    r"|input is too long|input token count|tokens? .{0,40}exceeds? .{0,30}(?:maximum|limit)"
    r"|string_above_max_length|reduce the length of",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient[_ ]quota|exceeded your current quota|credit balance|billing|out of credits"
    r"|insufficient[_ ](?:balance|credits)|payment required|spend(?:ing)? limit",
    re.IGNORECASE,
)
_UNKNOWN_MODEL = re.compile(
    r"model[^.]{0,80}(?:not found|does not exist|not supported|is invalid)"
    r"|(?:unknown|invalid|no such) model|model identifier is invalid|model_not_found",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"api[_ ]key[^.]{0,40}(?:invalid|not valid|incorrect|expired)|invalid[_ ]api[_ ]key"
    r"|incorrect api key|ExpiredToken|UnrecognizedClient|security token",
    re.IGNORECASE,
)
_ROOM = (
    # Anthropic: "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000".
    re.compile(r"(?P<input>\d+) \+ \d+ > (?P<window>\d+)"),
    # vLLM and older OpenAI models.
    re.compile(
        r"context length is (?P<window>\d+) tokens.{0,80}?\((?P<input>\d+) in the "
        r"(?:messages|prompt)"
    ),
)
_WAIT = re.compile(
    r"(?:retry|try again) in (?:(\d{1,4})h)?(?:(\d{1,4})m)?(\d{1,6}(?:\.\d{1,12})?)(m?)s\b",
    re.IGNORECASE,
)
_KINDS: Mapping[int, ModelErrorKind] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "context",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


@dataclass(frozen=True, slots=True)
class Said:
    """The parts of a refusal's body; a part that it does not state is empty."""

    message: str = ""
    parameter: str = ""
    code: str = ""


def said_in(body: object) -> Said:
    """The parts of a refusal's `body`, which is JSON as text, as bytes or parsed, in any form."""
    if isinstance(body, bytes | str):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            return Said() if text.lstrip().startswith("<") else Said(text)
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return Said(str(body or ""))
    inner = body.get("error")
    if isinstance(inner, str):
        return Said(inner, code=_text(body.get("code")))
    found = inner if isinstance(inner, Mapping) else body
    message = found.get("message") or found.get("Message") or found.get("detail") or ""
    code = found.get("code") or found.get("type") or found.get("status")
    words = message if isinstance(message, str) else json.dumps(message, default=str)
    return Said(words, _text(found.get("param")), f"{_text(code)} {_text(found.get('type'))}")


def kind_of(status: int, said: Said) -> ModelErrorKind:
    """The kind of the refusal; providers use one status for many kinds."""
    words = f"{said.code} {said.message}"
    if status in (400, 402, 403, 413, 422, 429) and _QUOTA.search(words):
        # Gemini speaks of plan and billing also when the limit is one of a minute.
        return "quota" if wait_in(said) is None else "rate_limit"
    if status in (400, 413, 422, 500) and _TOO_LONG.search(words):
        return "context"
    if status in (400, 403) and _BAD_KEY.search(words):
        return "auth"
    of_model = said.parameter in ("", "model")
    if of_model and status in (400, 422) and _UNKNOWN_MODEL.search(words):
        return "not_found"
    return _KINDS.get(status) or ("server" if status >= 500 else "bad_request")


def wait_in(said: Said) -> float | None:
    """The seconds that the refusal's text asks to wait, as Gemini, OpenAI and Groq write them."""
    found = _WAIT.search(said.message)
    if found is None:
        return None
    hours, minutes, seconds, milli = found.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds) / (1000 if milli else 1)


def hidden(text: str, secrets: Sequence[str]) -> str:
    """`text` on one line of bounded length; `secrets` and all that looks like a key is masked."""
    known = [secret for secret in secrets if secret]
    bare = Secrets.of(known).hidden(text) if known else text
    return encodable(" ".join(_KEYS.sub(MASK, bare).split()))[:LONGEST_REASON]


def request_id(headers: Mapping[str, str]) -> str:
    """The provider's id of the request; empty if it sent none."""
    found = next((headers[name] for name in _REQUEST_IDS if headers.get(name)), "")
    return found if re.fullmatch(r"[\w:.=+/-]{1,128}", found) else ""


def room_left(reason: str) -> int | None:
    """The tokens left for an answer, if input and requested answer together were too long."""
    for form in _ROOM:
        if found := form.search(reason):
            return int(found["window"]) - int(found["input"])
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
