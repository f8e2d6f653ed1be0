"""The memory that a turn needs at its peak, of a body as real clients send it."""

from __future__ import annotations

import http.client
import sys
import tracemalloc
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sayso import Agent
from sayso.testing import served

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.scenarios import NUMBER, OUTCOMES
from benchmarks.servers.sayso_server import AnswerModel, reads

MOST = 1_500_000
"""Bytes that a turn of 62 KB may allocate at its peak; its client in this process included."""


@pytest.mark.parametrize("agent", [reads, Agent(model=AnswerModel())], ids=["callable", "Agent"])
def test_turn_of_62_kb_allocates_at_most_a_megabyte_and_a_half(agent: Any) -> None:
    with served(agent) as server:
        client = http.client.HTTPConnection(urlsplit(server.url).netloc)

        numbers = count()

        def turn() -> None:
            body = OUTCOMES.replace(NUMBER, b"%06d" % next(numbers))
            client.request("POST", "/api/chat", body, {"content-type": "application/json"})
            reply = client.getresponse()
            assert b"all running" in reply.read() and reply.status == 200

        for _ in range(5):
            turn()
        tracemalloc.start()
        try:
            turn()
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            turn()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            client.close()
    print(f"a turn allocates {peak - before} bytes at its peak")
    assert len(OUTCOMES) > 60_000
    assert peak - before <= MOST
