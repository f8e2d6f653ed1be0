"""The removal of old rows from an SQL database, in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sayso.ledger.database import Connection

_CHUNK = 500


class OldRows:
    """Removes at most `limit` rows of each kind that ended before a time; each method returns how
    many it has removed. `write` runs a statement of the transaction."""

    def __init__(
        self, db: Connection, write: Callable[[str, Sequence[object]], None], limit: int
    ) -> None:
        self._db = db
        self._write = write
        self._limit = limit

    def contents(self, before: float) -> int:
        """Remove the inputs and outputs of calls."""
        ids = self._ended("sayso_proposals p WHERE p.kept = 1 AND", before)
        self._each("DELETE FROM sayso_contents WHERE id IN", ids)
        self._each("UPDATE sayso_proposals SET kept = 0 WHERE id IN", ids)
        return len(ids)

    def turns(self, before: float) -> int:
        """Remove turns with their recorded replies."""
        ids = self._ended("sayso_turns p WHERE", before)
        if len(ids) < self._limit:
            ids += self._forsaken(before, self._limit - len(ids))
        self._each("DELETE FROM sayso_turns WHERE id IN", ids)
        return len(ids)

    def proposals(self, before: float) -> int:
        """Remove the record of calls whose contents are gone."""
        ids = self._ended("sayso_proposals p WHERE p.kept = 0 AND", before)
        self._each("DELETE FROM sayso_proposals WHERE id IN", ids)
        return len(ids)

    def these(self, proposals: Sequence[str], turns: Sequence[str]) -> None:
        """Remove the calls with these keys and their contents, and these turns."""
        self._each("DELETE FROM sayso_contents WHERE id IN", proposals)
        self._each("DELETE FROM sayso_proposals WHERE id IN", proposals)
        self._each("DELETE FROM sayso_turns WHERE id IN", turns)

    def _forsaken(self, before: float, limit: int) -> list[str]:
        """Turns that nobody continued, or whose continuation died, and that no call keeps open."""
        return self._ids(
            "SELECT p.id FROM sayso_turns p WHERE p.ended IS NULL AND p.created < ? "
            "AND (p.state = 'SUSPENDED' OR p.lease < ?) AND NOT EXISTS (SELECT 1 "
            "FROM sayso_proposals q WHERE q.turn = p.id AND (q.ended IS NULL OR q.ended >= ?)) "
            "ORDER BY p.created LIMIT ?",
            *(before, before, before, limit),
        )

    def _ended(self, where: str, before: float) -> list[str]:
        sql = f"SELECT p.id FROM {where} p.ended < ? ORDER BY p.ended LIMIT ?"
        return self._ids(sql, before, self._limit)

    def _ids(self, sql: str, *values: object) -> list[str]:
        return [row[0] for row in self._db.read(sql + self._db.skip, values)]

    def _each(self, sql: str, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            self._write(f"{sql} ({', '.join('?' for _ in chunk)})", chunk)
