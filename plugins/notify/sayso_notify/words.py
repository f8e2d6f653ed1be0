"""Notices in words, for people; nothing in them is markup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sayso import visible
from sayso_notify.notices import Notice, iso


def title(notice: Notice) -> str:
    """The notice in a few words for people."""
    name = "a command" if notice.row.kind == "command" else line(notice.row.name)
    said = {
        "approval.requested": "waits for a decision",
        "approval.reminder": "still waits for a decision",
        "approval.escalated": "still waits, and nobody has decided",
        "approval.voted": "was approved, and needs more approvals",
        "approval.edited": "was changed, and waits for a decision",
        "approval.approved": "was approved",
        "approval.rejected": "was rejected",
        "approval.expired": "has expired: nobody decided in time, and it did not run",
        "call.started": "has started",
        "call.done": "has run",
        "call.failed": "has failed",
        "call.indeterminate": "may have run: nobody knows its outcome",
    }
    return f"{name} {said.get(notice.type, notice.type)}"


def lines(notice: Notice, shown: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The facts of a notice for people; of the input the named fields alone."""
    row = notice.row
    asked = row.person or row.principal or row.user
    facts = [
        ("asked by", asked),
        ("until", iso(row.expires) if row.state == "PENDING" else None),
        ("approvers", ", ".join(shown["approvers"])),
        ("approvals", f"{shown['given']} of {shown['needed']}" if shown["needed"] > 1 else None),
        ("by", notice.who),
        *((name, json.dumps(v, ensure_ascii=False)) for name, v in shown.get("input", {}).items()),
    ]
    return [(name, line(value)) for name, value in facts if value]


def line(text: str) -> str:
    """`text` in one line, without characters that people cannot see."""
    return visible(text, strict=True).replace("\n", "<U+000A>").replace("\t", "<U+0009>")
