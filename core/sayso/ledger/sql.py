"""The shared parts of stores over an SQL database; a store of your own imports from this module.

    from sayso import Store, Transaction, Owner, ...          # the protocol itself
    from sayso.ledger.sql import Writer, run_group, TABLES    # all but the connection

- `TABLES` creates the tables, with the database's own types, and `first_heads` the rows of the
  chains. `SCHEMA` is the version of both, `steps` are the migrations from older versions; `newer`
  and `changed` make the refusals of other versions.
- You write a `Connection`, whose transactions append each `Entry` of the log to its chain, in the
  order of `ordered`, so that no two wait for each other.
- `run_group` runs a group of works on it in one transaction, through a `SqlTransaction` with the
  rows that it has read as `Known`.
- `Writer` gathers the works of all threads into such groups, one for each `Lane`.
- `unavailable` makes the error for a database that does not answer.

Every store must pass the checks in `sayso.testing.STORE_CHECKS`.
"""

from __future__ import annotations

from sayso.ledger.database import (
    SELECT,
    SELECT_TURNS,
    Connection,
    Entry,
    Known,
    MustWrite,
    Row,
    dumps,
    first_heads,
    key,
    ordered,
)
from sayso.ledger.log import hashed_tail
from sayso.ledger.migrations import changed, newer, steps
from sayso.ledger.rows import SqlTransaction
from sayso.ledger.tables import SCHEMA, SET_META, TABLES
from sayso.ledger.writer import Lane, Outcome, Work, Writer, run_group, unavailable

__all__ = [
    "SCHEMA",
    "SELECT",
    "SELECT_TURNS",
    "SET_META",
    "TABLES",
    "Connection",
    "Entry",
    "Known",
    "Lane",
    "MustWrite",
    "Outcome",
    "Row",
    "SqlTransaction",
    "Work",
    "Writer",
    "changed",
    "dumps",
    "first_heads",
    "hashed_tail",
    "key",
    "newer",
    "ordered",
    "run_group",
    "steps",
    "unavailable",
]
