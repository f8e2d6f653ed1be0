"""The tokens and prices of a turn's model calls: for the reply, for event handlers, and for the
log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from sayso.models import Reply, Usage
from sayso.wire.events import ModelCalled

log = logging.getLogger("sayso.models")

Price = Callable[[str, str, Usage], float | None]
"""The price of a call in US dollars, by provider, model and usage; None if it is not known."""
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def called(
    provider: str, model: str, reply: Reply, took: float, price: Price | None
) -> ModelCalled:
    """The event for a model call that ended well after `took` seconds."""
    usage = reply.usage
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    call = ModelCalled(
        provider,
        model,
        took,
        input_tokens=read,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        stop=reply.stop,
        price=price(provider, model, usage) if price else None,
    )
    if read or usage.output_tokens:
        log.info(
            "model call %s:%s, %.2f s, %d tokens in (%d cached, %d written), %d out (%d reasoning)",
            *(provider, model, took, read, call.cached_tokens, call.cache_write_tokens),
            *(call.output_tokens, call.reasoning_tokens),
        )
    return call


def counted(calls: Sequence[ModelCalled]) -> dict[str, Any]:
    """`meta_data.usage` of a turn with these calls; empty where no provider counted anything."""
    each = [_shown(call) for call in calls if call.input_tokens or call.output_tokens]
    if not each:
        return {}
    total: dict[str, Any] = {name: sum(one[name] for one in each) for name in _COUNTS}
    if prices := [one["price_usd"] for one in each if "price_usd" in one]:
        total["price_usd"] = round(sum(prices), 9)
    return {**total, "calls": each}


def _shown(call: ModelCalled) -> dict[str, Any]:
    shown: dict[str, Any] = {"model": f"{call.provider}:{call.model}"}
    shown |= {name: getattr(call, name) for name in _COUNTS}
    return shown | ({} if call.price is None else {"price_usd": call.price})
