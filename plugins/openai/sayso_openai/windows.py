"""How many tokens the models behind these APIs can read, as their makers say."""

from __future__ import annotations

import re

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
    """Tokens that `model` can read; None where nobody has said."""
    name = model.rpartition("/")[2].lower()
    return next((size for form, size in _WINDOWS if form.match(name)), None)
