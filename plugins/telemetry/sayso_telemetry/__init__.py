"""Traces and metrics for Sayso, by OpenTelemetry's conventions for generative AI.

It needs the API of OpenTelemetry alone. The user sets up an SDK that exports, as
`opentelemetry-instrument sayso serve` does; without one it observes nothing.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.metrics import get_meter, get_meter_provider
from opentelemetry.trace import get_tracer, get_tracer_provider

from sayso import Host, Observer, Plugin, hookimpl
from sayso_telemetry.backlog import Backlogs
from sayso_telemetry.metrics import Metrics
from sayso_telemetry.spans import Spans

__all__ = ["Telemetry"]
_SCOPE = "sayso"


class Telemetry(Plugin):
    """Spans and metrics; active where the configuration names it."""

    name = "telemetry"
    active_by_default = False

    class Settings(Plugin.Settings):
        """The keys of `[plugin.telemetry]`."""

        traces: bool = True
        """Whether spans are made."""
        metrics: bool = True
        """Whether metrics are recorded."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._backlogs = Backlogs()
        # A span of ours stands for each model call; back ends that add up tokens would count both.
        os.environ.setdefault("ANTHROPIC_OPEN_TELEMETRY", "false")

    @hookimpl
    def observe(self, host: Host) -> list[Observer]:
        """The observers for spans and metrics."""
        parts: list[Observer] = []
        if self.settings.traces:
            parts.append(Spans(host, get_tracer(_SCOPE)))
        if self.settings.metrics:
            parts.append(Metrics(host, get_meter(_SCOPE), self._backlogs))
        return parts

    @hookimpl
    @asynccontextmanager
    async def resources(self, host: Host) -> AsyncIterator[None]:
        """Count the calls that wait; at the end send what has not been sent, for two seconds."""
        async with self._backlogs.reading(host):
            yield
        for provider in (get_tracer_provider(), get_meter_provider()):
            if (flush := getattr(provider, "force_flush", None)) is not None:
                await host.code.call(flush, 2_000)
