"""What stores over an SQL database share; the module that a store of your own imports from.

    from sayso import Store, Transaction, Owner, ...          # the protocol itself
    from sayso.ledger.sql import Writer, run_group, TABLES    # all but the connection

`TABLES` makes the tables, with the database's own types in it, `RENEW` and `SET_META` are the
statements that a store sends besides, `SCHEMA` is the version that it finds or refuses. A store
writes a `Connection`; `run_group` runs a group of works on it in one transaction, through a
`SqlTransaction`, and `Writer` gathers the works of all threads into such groups. `unavailable`
makes the error for a database that does not answer. The checks that every store must pass are
`sayso.testing.STORE_CHECKS`.
"""

from __future__ import annotations

from sayso.ledger.rows import Row, SqlTransaction, Statement
from sayso.ledger.tables import RENEW, SCHEMA, SET_META, TABLES
from sayso.ledger.texts import dump_log, key, load_log
from sayso.ledger.writer import Connection, Writer, run_group, unavailable

__all__ = [
    "RENEW",
    "SCHEMA",
    "SET_META",
    "TABLES",
    "Connection",
    "Row",
    "SqlTransaction",
    "Statement",
    "Writer",
    "dump_log",
    "key",
    "load_log",
    "run_group",
    "unavailable",
]
