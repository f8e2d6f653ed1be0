"""`sayso approvals watch`: follow in a terminal what becomes of calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from sayso.cli.group import config_option
from sayso.cli.lines import clock, line, what
from sayso.cli.stores import in_all
from sayso.errors import LedgerUnavailable
from sayso.ledger import Proposal, Reading, Transaction
from sayso.ledger.outbox import LogEvent, newest, read
from sayso.ledger.record import Ledger
from sayso.wire.characters import escaped

PAUSE = 1.0
"""Seconds between two looks at the log. A store that wakes its readers is asked less often."""
_WOKEN = 5.0
_READ = 200
_FIRST = 50


@click.command(short_help="Follow what is proposed, decided and run.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object a line, for scripts.")
def watch(config_file: Path | None, as_json: bool) -> None:
    """Show the pending calls, then each change of a call as it happens, until Ctrl-C.

    \b
    Examples:
      sayso approvals watch
      sayso approvals watch --json | jq 'select(.event == "proposed")'
    """
    in_all(config_file, partial(_follow, as_json=as_json))


async def _follow(ledger: Ledger, as_json: bool) -> None:
    cursor = await newest(ledger.store)
    waiting = await ledger.store.run(Reading(_pending, only=True))
    settled = await ledger.settle([row.id for row in waiting])
    expires = {row.id: row.expires for row in settled.values() if row.state == "PENDING"}
    for row in waiting:
        if row.id in expires:
            _show({"event": "pending", "id": row.id, "at": row.created}, row, as_json)
    while True:
        try:
            cursor = await _changes(ledger, cursor, expires, as_json)
        except LedgerUnavailable as error:
            click.echo(f"sayso: {error}", err=True)
        woken: Any = getattr(ledger.store, "woken", None)
        await (woken(_WOKEN) if woken is not None else asyncio.sleep(PAUSE))


async def _changes(ledger: Ledger, cursor: str, expires: dict[str, float], as_json: bool) -> str:
    """Show what has happened since the cursor; returns the next cursor."""
    now = await ledger.store.run(Reading(lambda tx: tx.now, only=True))
    # Somebody has to record that a call has expired.
    await ledger.settle([id_ for id_, at in expires.items() if at <= now])
    more = True
    while more:
        page = await read(ledger.store, cursor, _READ)
        cursor, more = page.cursor, page.more
        if page.gap:
            click.echo(f"sayso: a purge removed {page.gap} rows before they were read", err=True)
        ids = sorted({str(event.row.entry.get("id")) for event in page.events})
        rows = await ledger.store.run(Reading(partial(_rows, ids=ids), only=True))
        for event in page.events:
            _changed(event, rows, expires, as_json)
    return cursor


def _changed(
    event: LogEvent, rows: dict[str, Proposal], expires: dict[str, float], as_json: bool
) -> None:
    entry = {"at": event.row.at, **event.row.entry}
    row = rows.get(str(entry.get("id")))
    if row is not None and entry["event"] == "proposed":
        expires[row.id] = row.expires
    elif entry["event"] in ("approved", "rejected", "expired"):
        expires.pop(str(entry.get("id")), None)
    if entry["event"] not in ("summary", "checkpoint"):
        _show(entry, row, as_json)


def _show(entry: dict[str, Any], row: Proposal | None, as_json: bool) -> None:
    if as_json:
        call = {"name": row.name, "input": row.runs, "state": row.state} if row else {}
        click.echo(escaped(json.dumps({**entry, **call}, ensure_ascii=False)))
    else:
        text = f"{clock(entry['at'])}  {entry['event']:<13}  {entry.get('id') or ''}"
        text += f"  {what(row)}" if row is not None else ""
        by, claimed = entry.get("person") or entry.get("who"), entry.get("claimed")
        who = "by"
        if entry["event"] in ("proposed", "pending") and row is not None:
            by, claimed, who = row.principal or row.user, row.principal is None, "asked by"
        click.echo(f"{text}  {who} {line(str(by))}{' (claimed)' * bool(claimed)}" if by else text)


def _pending(tx: Transaction) -> list[Proposal]:
    return tx.find(state="PENDING", limit=_FIRST, newest=True)[::-1]


def _rows(tx: Transaction, ids: Sequence[str]) -> dict[str, Proposal]:
    return tx.proposals(ids)
