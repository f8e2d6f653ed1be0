"""An approved call on each store of the ledger: propose, approve, run, reply."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from benchmarks.measure import Found, Run
from benchmarks.process import running
from benchmarks.special import approved

POSTGRES = "ASSENT_BENCH_POSTGRES"
"""The variable that names a PostgreSQL database in which schemas may be made."""
USUAL = "postgresql://postgres@127.0.0.1:5432/test"
PATIENT = ("timeout_keep_alive=600",)
"""Connections wait while others are measured."""
P50 = ("propose p50 ms", "approve p50 ms")


class NoServer(Exception):
    """PostgreSQL cannot be measured here; says why."""


def approvals(run: Run, quick: bool) -> Found:
    """Milliseconds of each request and approvals a second; the stores in turn, as the turns are."""
    found: Found = {}
    urls = {"memory": "memory://", "sqlite": "sqlite:///approvals.db"}
    with ExitStack() as stack:
        try:
            urls["postgresql"] = stack.enter_context(postgres())
        except NoServer as error:
            found["postgresql"] = f"left out: {error}"
        servers = {}
        for name, url in urls.items():
            arguments = ("approval", f'ledger="{url}"', *PATIENT)
            servers[name] = stack.enter_context(running(name, "assent_server", arguments))
        rounds: dict[str, list[Found]] = {name: [] for name in servers}
        for number in range(2 if quick else 6):
            for name in servers if number % 2 else reversed(servers):
                figures = run(approved(servers[name], 16 if quick else 100))
                # The first round fills caches and makes tables.
                if number:
                    rounds[name].append(figures)
    for name, several in rounds.items():
        found[name] = {key: round(median(one[key] for one in several), 2) for key in several[0]}
        if name != "memory":
            found[name] |= _added(several, rounds["memory"])
    return found


def _added(several: list[Found], memory: list[Found]) -> Found:
    """What a store adds to the requests, in the median of the rounds."""
    pairs = list(zip(several, memory, strict=True))
    added = {key: median(one[key] - base[key] for one, base in pairs) for key in P50}
    both = median(sum(one[key] - base[key] for key in P50) for one, base in pairs)
    return {
        "store adds p50 ms": round(both, 2),
        **{f"to {key.split()[0]}": round(value, 2) for key, value in added.items()},
    }


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a new schema, dropped in the end; raises NoServer where none can be made."""
    url = os.environ.get(POSTGRES, USUAL)
    try:
        import psycopg

        admin = psycopg.connect(url, autocommit=True, connect_timeout=3)
    except ImportError:
        raise NoServer("psycopg is not installed; try: pip install 'assent[postgres]'") from None
    except psycopg.Error as error:
        raise NoServer(f"set {POSTGRES} to a database: {str(error).splitlines()[0]}") from None
    schema = f"assent_bench_{secrets.token_hex(6)}"
    with admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        try:
            yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"
        finally:
            admin.execute(f"DROP SCHEMA {schema} CASCADE".encode())
