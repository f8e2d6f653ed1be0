"""The prices of model calls, from the offline table of `genai-prices`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso.errors import ConfigError
from sayso.models import Usage
from sayso.models.usage import Price

_NAMES: Mapping[str, str] = {
    "bedrock": "aws",
    "bedrock-compatible": "aws",
    "vertex": "google",
    "gemini": "google",
    "foundry": "anthropic",
    "xai": "x-ai",
}
"""Our names of providers that the table calls otherwise."""


def price_table() -> Price:
    """The price function; raises ConfigError if the table is not installed."""
    try:
        import genai_prices
    except ImportError:
        raise ConfigError(
            "model.prices needs a table of prices; try: pip install 'genai-prices>=0.2,<0.3'"
        ) from None

    def price(provider: str, model: str, usage: Usage) -> float | None:
        given: Any = genai_prices.Usage(
            input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        try:
            found = genai_prices.calc_price(
                given, model, provider_id=_NAMES.get(provider, provider)
            )
        except (LookupError, ValueError):
            return None
        return float(found.total_price)

    return price
