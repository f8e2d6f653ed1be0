"""Write a dump of a store of the present schema.

    PYTHONPATH=tests python tests/ledger/make_dumps.py

It is run once for each version of the schema, by the code of that version, and its files stay: A
later Sayso has to open `dumps/sqlite-N.sql` and `dumps/postgres-N.sql`.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from databases import SERVER, empty_schema
from sayso.ledger import Store, SuspendedTurn, Transaction
from sayso.ledger.choices import Choice, Conversation, Requester
from sayso.ledger.claims import Grant
from sayso.ledger.conformance.samples import proposal, turn
from sayso.ledger.record import Ledger
from sayso.ledger.sqlite import SqliteStore
from sayso.ledger.tables import SCHEMA
from sayso_postgres.store import PostgresStore

HERE = Path(__file__).parent

NAMES = [f"call{number}" for number in range(8)]


async def fill(store: Store) -> None:
    """Eight proposals: two pending, one approved, one executing, two done, one failed, one
    rejected. The first three rows of the log are purged."""
    ledger = Ledger(store, ttl=10**9, lease=10**9)
    await ledger.open()
    for name in NAMES:
        held: SuspendedTurn = turn(f"turn-{name}", calls=[name])
        await ledger.propose(held, [proposal(name, turn=held.id, input={"name": name, "é": "☃"})])
    await _decide(ledger, NAMES[2], approved=True, claim=False)
    granted = [await _decide(ledger, name, approved=True, claim=True) for name in NAMES[3:7]]
    await _decide(ledger, NAMES[7], approved=False, claim=False)
    for (grant,), state in zip(granted[1:], ("DONE", "DONE", "FAILED"), strict=True):
        await ledger.finish(grant, state, f"it is {state}", session={"n": 1})
    await store.run(_purge)
    await ledger.close()


async def _decide(ledger: Ledger, name: str, *, approved: bool, claim: bool) -> list[Grant]:
    who = Requester(None, None, "anna", "v2", "127.0.0.1")
    choice = Choice(name, "tool_call", approved, ("id",), True, None if approved else "no")
    return (await ledger.decide([choice], [], who, Conversation(), claim=claim)).grants


def _purge(tx: Transaction) -> None:
    tx.purge(contents_before=None, turns_before=None, log_before=tx.now + 60, limit=3)


def sqlite_dump() -> str:
    """The SQL that makes the store again in an empty file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        asyncio.run(fill(SqliteStore(path)))
        db = sqlite3.connect(path)
        lines = [*db.iterdump()]
        marks = [
            f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        db.close()
    return "\n".join([*lines, *marks]) + "\n"


def postgres_dump() -> str:
    """The SQL that makes the store again in an empty schema."""
    with empty_schema() as url:
        asyncio.run(fill(PostgresStore(url)))
        [options] = parse_qs(urlsplit(url).query)["options"]
        schema = options.partition("search_path=")[2]
        command = ["pg_dump", "--inserts", "--no-owner", "--no-acl", f"--schema={schema}", SERVER]
        dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = [
        line
        for line in dump.replace(f"{schema}.", "").splitlines()
        if line and not re.match(r"--|SET |SELECT |CREATE SCHEMA|\\", line)
    ]
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    for kind, made in (("sqlite", sqlite_dump), ("postgres", postgres_dump)):
        (HERE / "dumps" / f"{kind}-{SCHEMA}.sql").write_text(made())
