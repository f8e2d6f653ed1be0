"""Pipelined statements to PostgreSQL: one round trip for all statements sent.

Prepared and sent with libpq directly, a statement takes a fortieth of the time of psycopg's
cursors, which inspect its values each time and write to the socket for each.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from sayso.ledger.sql import Row

PREPARED = 100
"""Most statements prepared on one connection."""
_READERS = {20: int, 21: int, 23: int, 700: float, 701: float}
"""The reading function of columns by the number of their type; all others are texts."""


class Pipeline:
    """The statements of one connection, with `?` for values; nothing else may use it meanwhile.

    At most `prepared` different ones are prepared. `status` is the server's message about the last
    one that it has run.
    """

    def __init__(self, raw: psycopg.Connection[Any], prepared: int = PREPARED) -> None:
        self.status = ""
        self._prepared = prepared
        self._raw = raw
        self._libpq = raw.pgconn
        self._unsent: list[tuple[str, Sequence[object] | None]] = []
        self._names: dict[str, bytes] = {}
        self._numbers = itertools.count()
        self._poll = select.poll()
        self._poll.register(raw.fileno(), select.POLLIN)
        self._libpq.enter_pipeline_mode()

    def send(self, sql: str, values: Sequence[object] | None = None) -> None:
        """Queue a statement for the next `answers`; one without `values` is never prepared."""
        self._unsent.append((sql, values))

    def forget(self) -> None:
        """Drop the statements that have not been sent yet."""
        self._unsent.clear()

    def answers(self) -> list[list[Row]]:
        """The rows of each statement queued since the last time, once the server has run them all.

        Raises the first error, psycopg.Error. If the connection is open, it is the server's, and
        the following statements have not run; if it is closed, it is unknown which have run.
        """
        fresh: dict[str, bytes] = {}
        try:
            wanted = self._send(fresh)
            results = self._results()
        except BaseException:
            # Unread answers would be taken for those of the next statements.
            self._raw.close()
            raise
        if error := _first_error(results):
            if error.diag.severity_nonlocalized in ("FATAL", "PANIC"):
                self._raw.close()
            raise error
        # Only now: statements skipped after an error are not prepared.
        self._names |= fresh
        self.status = (results[-1].command_status or b"").decode()
        return [_rows(result) for result, own in zip(results, wanted, strict=True) if own]

    def _send(self, fresh: dict[str, bytes]) -> list[bool]:
        """Send the queued statements, preparing new ones into `fresh`; returns which answers belong
        to a statement."""
        unsent, self._unsent = self._unsent, []
        wanted: list[bool] = []
        for sql, values in unsent:
            if values is not None and self._prepare(sql, fresh):
                wanted.append(False)
            self._put(sql, values, fresh)
            wanted.append(True)
        self._libpq.pipeline_sync()
        self._flush()
        return wanted

    def _prepare(self, sql: str, fresh: dict[str, bytes]) -> bool:
        if sql in self._names or sql in fresh or len(self._names) + len(fresh) >= self._prepared:
            return False
        fresh[sql] = b"sayso_%d" % next(self._numbers)
        self._libpq.send_prepare(fresh[sql], _statement(sql))
        return True

    def _put(self, sql: str, values: Sequence[object] | None, fresh: dict[str, bytes]) -> None:
        given = [_parameter(value) for value in values or ()]
        if name := self._names.get(sql) or fresh.get(sql):
            self._libpq.send_query_prepared(name, given)
        else:
            self._libpq.send_query_params(_statement(sql), given)

    def _flush(self) -> None:
        descriptor = self._raw.fileno()
        while self._libpq.flush():
            # A server that waits for its answers to be read reads no more statements.
            self._poll.modify(descriptor, select.POLLIN | select.POLLOUT)
            ready = self._poll.poll()
            self._poll.modify(descriptor, select.POLLIN)
            if any(event & ~select.POLLOUT for _, event in ready):
                self._libpq.consume_input()

    def _results(self) -> list[pq.abc.PGresult]:
        found: list[pq.abc.PGresult] = []
        while (result := self._result()).status != pq.ExecStatus.PIPELINE_SYNC:
            found.append(result)
        return found

    def _result(self) -> pq.abc.PGresult:
        while True:
            while self._libpq.is_busy():
                self._poll.poll()
                self._libpq.consume_input()
            # libpq returns None between the results of two statements.
            if (result := self._libpq.get_result()) is not None:
                return result
            if self._libpq.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError("the connection is lost")


def _first_error(results: Sequence[pq.abc.PGresult]) -> psycopg.Error | None:
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            return errors.error_from_result(result)
    return None


def _statement(sql: str) -> bytes:
    parts = sql.split("?")
    numbered = [f"${number}{part}" for number, part in enumerate(parts[1:], 1)]
    return "".join([parts[0], *numbered]).encode()


def _parameter(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def _rows(result: pq.abc.PGresult) -> list[Row]:
    readers = [_READERS.get(result.ftype(i), bytes.decode) for i in range(result.nfields)]
    return [
        tuple(_value(result.get_value(row, i), read) for i, read in enumerate(readers))
        for row in range(result.ntuples)
    ]


def _value(value: bytes | None, read: Any) -> Any:
    return None if value is None else read(value)
