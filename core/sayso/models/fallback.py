"""A model with fallbacks, which are asked when it fails before its first event."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sayso.errors import ModelError
from sayso.models import Ask, Model, ModelEvent, never_blocks

log = logging.getLogger("sayso.models")


class Fallback:
    """A `Model` that asks `models` in their order until one answers, named as the first one."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = tuple(models)
        self.provider = models[0].provider
        self.name = models[0].name
        self.never_blocks = all(map(never_blocks, models))

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.models))})"

    @property
    def context_window(self) -> int | None:
        """The smallest context window among them, in tokens; None if none is known."""
        known = [getattr(model, "context_window", None) for model in self.models]
        return min((window for window in known if window), default=None)

    @property
    def takes_attachments(self) -> frozenset[str]:
        """The media types that each of them takes."""
        each = [frozenset(getattr(model, "takes_attachments", ())) for model in self.models]
        return frozenset.intersection(*each)

    async def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """The events of the first model that answers; if none does, raises the first ModelError."""
        first: ModelError | None = None
        for number, model in enumerate(self.models):
            # A hook chose this model or key for the first provider only.
            asked = ask if number == 0 else replace(ask, model="", key="")
            started = False
            try:
                events: Any = model.stream(asked)
                async with aclosing(events):
                    async for event in events:
                        started = True
                        yield event
                return
            except ModelError as error:
                if started:
                    raise
                first = first or error
                more = self.models[number + 1 :]
                then = f"asking {more[0].provider}:{more[0].name}" if more else "none is left"
                log.warning("%s%s; %s", error, f": {error.why}" if error.why else "", then)
        assert first is not None
        raise first
