"""Migrations of older stores' tables, step by step and forward only.

A step never changes: it names tables and columns itself, as they were when it was written.
`tests/ledger/dumps` has a store of each version, with which the steps are tested.

Every transaction checks the version of its store. If another process migrates it while this one has
it open, this one refuses it from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sayso.ledger.tables import SCHEMA


class Step(NamedTuple):
    """The statements that make a store of the version before one of `version`."""

    version: int
    sqlite: str
    postgres: str


_CHAINS = """
CREATE TABLE sayso_chains (
    chain INTEGER PRIMARY KEY, seq BIGINT NOT NULL, previous {text} NOT NULL,
    hash {text} NOT NULL);
INSERT INTO sayso_chains (chain, seq, previous, hash) VALUES {rows};
"""
_GENESIS = ", ".join(f"({chain}, 0, '', '{chain:064x}')" for chain in range(17))
STEPS = (
    # The only chain became chain 0 of several, with its rows. The column `chain` has no default, so
    # a process of version 1 that still has the store open cannot append anything.
    Step(
        2,
        sqlite="""
ALTER TABLE sayso_log RENAME TO sayso_log_1;
CREATE TABLE sayso_log (
    chain INTEGER NOT NULL, seq BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (chain, seq));
INSERT INTO sayso_log (chain, seq, at, previous, hash, entry)
    SELECT 0, seq, at, previous, hash, entry FROM sayso_log_1;
DROP TABLE sayso_log_1;
"""
        + _CHAINS.format(text="TEXT", rows=_GENESIS)
        + """
UPDATE sayso_chains SET (seq, previous, hash) = (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[3]'), json_extract(value, '$[4]')
    FROM sayso_meta WHERE key = 'head')
    WHERE chain = 0 AND EXISTS (SELECT 1 FROM sayso_meta WHERE key = 'head');
DELETE FROM sayso_meta WHERE key = 'head';
CREATE INDEX sayso_proposals_emptied ON sayso_proposals (ended) WHERE kept = 0;
""",
        postgres="""
ALTER TABLE sayso_log ADD COLUMN chain INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sayso_log ALTER COLUMN chain DROP DEFAULT;
ALTER TABLE sayso_log DROP CONSTRAINT sayso_log_pkey;
ALTER TABLE sayso_log ADD PRIMARY KEY (chain, seq);
"""
        + _CHAINS.format(text='TEXT COLLATE "C"', rows=_GENESIS)
        + """
UPDATE sayso_chains SET seq = (old.head->>0)::bigint, previous = old.head->>3, hash = old.head->>4
    FROM (SELECT value::json AS head FROM sayso_meta WHERE key = 'head' AND value <> '') AS old
    WHERE chain = 0;
DELETE FROM sayso_meta WHERE key = 'head';
CREATE INDEX sayso_proposals_emptied ON sayso_proposals (ended) WHERE kept = 0;
""",
    ),
)


def steps(version: int) -> Iterator[Step]:
    """The steps from a store of `version` to today's, in order."""
    return (step for step in STEPS if version < step.version <= SCHEMA)


def statements(sql: str) -> list[str]:
    """The single statements of a step; none of them has a semicolon inside."""
    return [each for each in sql.split(";") if each.strip()]


def newer(name: str, version: int, another: str) -> str:
    """The error for a store that is too new, at the start."""
    return (
        f"{name} has schema {version}, and this Sayso knows {SCHEMA}; "
        f"upgrade Sayso or set 'approvals.ledger' to another {another}"
    )


def changed(version: object) -> str:
    """The error for a store whose schema another process has changed meanwhile."""
    return (
        f"the approvals store has schema {version} by now, made by a newer Sayso, and this one "
        f"knows {SCHEMA}; restart it with the newer version"
    )
