"""Names of models: `provider:id`, or an id alone if its form tells the provider."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sayso.errors import nearest

EXTRAS: Mapping[str, str] = {
    "offline": "demo",
    **dict.fromkeys(("anthropic", "bedrock", "foundry", "vertex"), "anthropic"),
    **dict.fromkeys(
        (
            "azure",
            "bedrock-compatible",
            "deepseek",
            "groq",
            "llamacpp",
            "mistral",
            "ollama",
            "openai",
            "openai-chat",
            "openai-responses",
            "openrouter",
            "vllm",
            "xai",
        ),
        "openai",
    ),
    "gemini": "gemini",
}
"""The providers of this repository, each with the extra that installs it."""

_BARE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gpt-|chatgpt-|o\d(-|$)|ft:gpt-"), "openai"),
    (re.compile(r"gemini-"), "gemini"),
)
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "anthropic": (
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-opus-5",
        "claude-sonnet-5",
        "claude-opus-4-8",
        "claude-sonnet-4-6",
        "claude-haiku-4-5",
    ),
    "openai": ("gpt-6-sol", "gpt-6.1-terra", "gpt-5.5", "gpt-5.4-mini", "gpt-5", "gpt-4.1"),
    "gemini": ("gemini-3.8-flash", "gemini-4-argon", "gemini-3.1-pro-preview", "gemini-2.5-pro"),
}
"""Ids of widely used models, for suggestions after a typing error."""


def split(spec: str) -> tuple[str, str]:
    """The provider and the id in `spec`; the form of an id alone tells its provider."""
    text = spec.strip()
    for form, provider in _BARE:
        if form.match(text):
            return provider, text
    provider, _, name = text.partition(":")
    return provider, name


def suggestion(spec: str, providers: Iterable[str]) -> str:
    """A question for the end of an error, with the name that `spec` probably means; or empty."""
    provider, _, name = spec.strip().partition(":")
    if name and (meant := nearest(provider, providers)):
        return f"; did you mean '{meant}:{name}'?"
    names = {model: f"{of}:{model}" for of, models in _KNOWN.items() for model in models}
    meant = nearest(name or provider, [*providers, *names], 0.7)
    return f"; did you mean {names.get(meant, meant)!r}?" if meant else ""


def nearest_model(provider: str, name: str) -> str:
    """The id of a known model that was probably meant by `name`; empty if none is near."""
    known = _KNOWN.get(provider, ())
    return "" if name in known else nearest(name, known, 0.8) or ""
