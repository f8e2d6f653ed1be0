"""Proposals, texts and times in one line of a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from sayso.ledger import Proposal
from sayso.wire.characters import visible

_WIDTH = 100
_PURGED = "(purged)"


def what(row: Proposal) -> str:
    """The call with its input, cut to a width."""
    if row.kind == "command":
        text = line(f"$ {row.input.get('command', _PURGED)}")
    else:
        # An expired call has no output to tell from: if its parameters are described, it had an
        # input.
        lost = row.state == "EXPIRED" and not row.input and bool(row.input_description)
        given = _PURGED if row.purged or lost else json.dumps(row.runs, ensure_ascii=False)
        text = line(f"{row.name} {given}")
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def line(text: str) -> str:
    """`text` in one line, without characters that people cannot see."""
    shown = visible(text, strict=True)
    return shown.replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def clock(at: float) -> str:
    """A time of the store's clock, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
