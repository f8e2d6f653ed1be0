"""`/ready` knows what keeps a service from recording an approval, and says so within a second."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import DEADLINE, until
from sayso.http import ready
from sayso.ledger import sqlite_connection
from sayso.ledger.memory import MemoryStore
from sayso.testing.client import Service
from sayso.testing.serving import served


def answer(messages: object, context: object) -> str:
    return "fine"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service over an SQLite store, which is looked through each time that it is asked."""
    monkeypatch.setattr(ready, "KEPT", 0.0)
    monkeypatch.setattr(sqlite_connection, "_EVERY", 0.0)
    monkeypatch.setattr(sqlite_connection, "_SHARE", 1e9)
    config = f'[approvals]\nledger = "sqlite:///{tmp_path}/approvals.db"\n'
    with served(answer, config=config, ready=True) as running:
        assert said(running) == (200, "")
        yield running


def said(service: Service) -> tuple[int, str]:
    reply = service.get("/ready")
    return reply.status, reply.json().get("detail", "")


def test_a_full_disk_is_no_ready_service(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        status, detail = said(service)
    assert status == 503
    assert detail == ("the approvals store cannot grow: No space left on device; free some space")
    assert said(service) == (200, "")


def test_a_damaged_file_is_no_ready_service(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "approvals.db"
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xa5" * (size - 8192))
    status, detail = said(service)
    assert status == 503
    assert detail.startswith("the approvals store is damaged; restore it")
    assert said(service)[0] == 503, "it does not heal"
    assert service.get("/health").status == 200


def test_a_store_that_hangs_is_no_ready_service_within_a_second(service: Service) -> None:
    started, free = threading.Event(), threading.Event()

    def stick(tx: object) -> None:
        started.set()
        free.wait(DEADLINE)

    store = service.host.ledger.store
    stuck = threading.Thread(target=lambda: asyncio.run(store.run(stick)))
    stuck.start()
    assert started.wait(DEADLINE)
    asked = time.monotonic()
    assert said(service) == (503, ready.SILENT)
    assert time.monotonic() - asked < 1 + 1, "a second, and one for a busy machine"
    free.set()
    stuck.join()
    until(lambda: said(service) == (200, ""))


def test_who_asks_without_end_does_not_keep_the_store_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ready, "KEPT", 3600.0)
    checks: list[float] = []
    check = MemoryStore.check

    async def counted(self: MemoryStore) -> None:
        checks.append(time.monotonic())
        await check(self)

    monkeypatch.setattr(MemoryStore, "check", counted)
    with served(answer, ready=True) as running:
        assert {said(running)[0] for _ in range(20)} == {200}
    assert len(checks) == 1
