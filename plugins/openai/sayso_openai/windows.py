"""How many tokens the models behind these APIs can read, as their makers say."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic_core import from_json

logger = logging.getLogger("sayso.models")

_WINDOWS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(form), size)
    for form, size in (
        (r"gpt-(5\.[4-9](?!-(mini|nano))|[6-9]|\d\d)", 1_000_000),
        (r"gpt-5\.3(?!-codex)", 128_000),
        (r"gpt-5.*-chat", 128_000),
        (r"gpt-5", 400_000),
        (r"gpt-4\.1", 1_000_000),
        (r"gpt-oss", 131_072),
        (r"gpt-4(o|-turbo|-1106|-0125|-vision)|chatgpt-4o|o1-(mini|preview)", 128_000),
        (r"gpt-4-32k", 32_000),
        (r"gpt-4", 8_192),
        (r"gpt-3\.5", 16_385),
        (r"o\d(-|$)", 200_000),
        (r"deepseek-(v4|flash)", 1_000_000),
        (r"deepseek-v3", 128_000),
        (r"deepseek-(chat|reasoner)", 64_000),
        (r"mistral-large-4", 1_000_000),
        (r"mistral-(large|medium|small)|ministral|devstral|codestral|magistral", 128_000),
        (r"grok-4(\.20|\.3|-1?-?fast)", 1_000_000),
        (r"grok-4", 256_000),
        (r"grok-", 131_072),
    )
)


def window_of(model: str) -> int | None:
    """Tokens that `model` can read; None if that is not known."""
    name = model.rpartition("/")[2].lower()
    return next((size for form, size in _WINDOWS if form.match(name)), None)


_STATED = (
    *("max_model_len", "context_window", "context_length", "max_context_length"),
    *("n_ctx", "max_input_tokens"),
)
"""The fields in which servers list what a model can read: vLLM, Groq, OpenRouter, Mistral,
llama.cpp (there within `meta`), LiteLLM."""
_PATIENCE = 5.0
_LARGEST = 4 * 2**20


async def listed_window(
    client: httpx2.AsyncClient, url: httpx2.URL, headers: Mapping[str, str], model: str
) -> int | None:
    """Tokens that `model` can read, as the server lists it at `/models`; None if it does not."""
    try:
        async with client.stream("GET", url, headers=headers, timeout=_PATIENCE) as response:
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _LARGEST:
                    return None
            response.raise_for_status()
        return _window_in(from_json(body), model)
    except (httpx2.HTTPError, ValueError) as error:
        logger.debug("the windows of models are not listed: %s", type(error).__name__)
        return None


def _window_in(listed: Any, model: str) -> int | None:
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list):
        return None
    found = [entry for entry in entries if isinstance(entry, dict)]
    # A server with a single model, such as llama.cpp's, answers by it whatever name is asked for.
    named = [e for e in found if e.get("id") == model] or (found if len(found) == 1 else [])
    for entry in named[:1]:
        meta = entry.get("meta")
        stated = entry | meta if isinstance(meta, dict) else entry
        sizes = [stated.get(name) for name in _STATED]
        return next((size for size in sizes if type(size) is int and size > 0), None)
    return None
