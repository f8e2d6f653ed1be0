"""The text that Prometheus reads: the values of all processes, and what the ledger counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from sayso import Backlog, Host, __version__
from sayso_metrics.folder import ended_processes
from sayso_metrics.values import Values

KEPT = 5.0
"""Seconds for which the numbers of the ledger are kept."""
PATIENCE = 1.0
"""Seconds that a scrape waits for them."""


class Exposition:
    """The metrics of one service, as text."""

    def __init__(self, host: Host, folder: Path | None) -> None:
        self._host = host
        self._folder = folder
        self._own = CollectorRegistry()
        self.values = Values(host, self._own)
        self._read_at = -KEPT
        self._backlog: Backlog | None = None
        self._of_ledger = CollectorRegistry()
        # No gauges of the library: with several workers it would write them into the shared folder,
        # and each would be exposed a second time from there.
        self._of_ledger.register(self)

    def collect(self) -> Iterator[Metric]:
        """The numbers that every process reads from the ledger, or has from the configuration."""
        one = "The same number from all workers and replicas: take the maximum, never the sum."
        if self._backlog is not None:
            state = GaugeMetricFamily("sayso_approvals", f"Calls by state. {one}", labels=["state"])
            state.add_metric(["pending"], self._backlog.pending)
            state.add_metric(["approved"], self._backlog.approved)
            yield state
            yield GaugeMetricFamily(
                "sayso_approval_oldest_pending_seconds",
                f"Age of the oldest pending call. {one}",
                self._backlog.oldest,
            )
        ttl = self._host.config.approvals.ttl
        yield GaugeMetricFamily(
            "sayso_approval_ttl_seconds", "How long a call may wait for its decision.", ttl
        )
        info = GaugeMetricFamily(
            "sayso_build_info",
            "Version and agent of the service; always 1.",
            labels=["version", "agent"],
        )
        info.add_metric([__version__, self._host.agent.name], 1)
        yield info

    async def text(self) -> bytes:
        """All metrics in the text form of Prometheus."""
        await self._read()
        self.values.look()
        return await asyncio.to_thread(self._generated)

    def _generated(self) -> bytes:
        registry = self._own
        if self._folder is not None:
            for process in ended_processes(self._folder):
                # Its counters remain, its gauges do not.
                mark_process_dead(process, str(self._folder))  # type: ignore[no-untyped-call]
            registry = CollectorRegistry()
            MultiProcessCollector(registry, str(self._folder))  # type: ignore[no-untyped-call]
        return generate_latest(registry) + generate_latest(self._of_ledger)

    async def _read(self) -> None:
        """Read the ledger, unless that was done a moment ago or takes too long."""
        if time.monotonic() - self._read_at < KEPT:
            return
        self._read_at = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                self._backlog = await self._host.record.backlog()
        except Exception:
            # The errors of the store have a metric of their own.
            return
