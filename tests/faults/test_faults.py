"""No call runs twice, and each caller gets a true answer, whatever fails at any time.

`make faults` runs it for hours (`SECONDS`), from a seed of the day (`SEED`); a failure names its
own. Without it, `make test-all` tries each fault a few times.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from faulty import Fault, Link, fill, freeze, kill, part, rounds
from links import Cuttable
from processes import Nursery

from sayso.ledger import Store
from sayso.ledger.log import verify_store
from sayso.ledger.sqlite import SqliteStore
from sayso_postgres.store import PostgresStore

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("SECONDS", "12"))
"""Seconds that each store is tested."""
SEED = int(os.environ.get("SEED", "1"))
CALLS = 6
CONFIG = """
plugins = ["v2"]
[server]
state_dir = "state"
port = 0
drain_timeout = 1
[approvals]
lease = "1s"
ledger = "{ledger}"
"""


def tried(nursery: Nursery, folder: Path, ledger: str, faults: list[Fault], link: Link) -> None:
    """Rounds of faults until the time is over, each fault at least once."""
    deadline = time.monotonic() + SECONDS
    number = 0
    while number < len(faults) or time.monotonic() < deadline:
        seed = SEED * 1_000_000 + number
        fault = faults[number] if number < len(faults) else random.Random(seed).choice(faults)
        with rounds(nursery, folder, CONFIG.format(ledger=ledger), seed, link) as one:
            try:
                names = [f"n{seed}-{call}" for call in range(CALLS)]
                one.check(one.approve(names, fault))
            except AssertionError as error:
                error.add_note(f"seed {seed}, fault {fault.__name__}")
                raise
        number += 1


def whole(store: Store) -> bool:
    """Whether the log is complete and unaltered."""

    async def look() -> bool:
        await store.open()
        try:
            return await verify_store(store) is None
        finally:
            await store.close()

    return asyncio.run(look())


def test_faults_on_sqlite(nursery: Nursery, tmp_path: Path) -> None:
    tried(nursery, tmp_path, "sqlite:///approvals.db", [kill, freeze, fill], Link())
    assert whole(SqliteStore(tmp_path / "approvals.db"))


def test_faults_on_postgres(nursery: Nursery, tmp_path: Path, postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    with Cuttable(parts.hostname or "127.0.0.1", parts.port or 5432) as link:
        user = parts.netloc.rpartition("@")[0]
        netloc = f"{user}@127.0.0.1:{link.port}" if user else f"127.0.0.1:{link.port}"
        ledger = parts._replace(netloc=netloc).geturl()
        tried(nursery, tmp_path, ledger, [kill, freeze, part], link)
    assert whole(PostgresStore(postgres_url))


@pytest.mark.parametrize("name", ["SECONDS", "SEED"])
def test_makefile_passes_what_the_suite_reads(name: str) -> None:
    makefile = Path(__file__).parents[2] / "Makefile"
    assert f"{name}=" in makefile.read_text()
