"""Results of decided calls, from the ledger."""

from __future__ import annotations

import json

import mcp_types as types

from sayso import Proposal
from sayso_mcp.content import said


def ended(row: Proposal) -> types.CallToolResult | None:
    """The result of a call that has ended or was not run; None while it runs."""
    match row.state:
        case "DONE":
            return noted(row, said(row.output or ""))
        case "FAILED" | "INDETERMINATE":
            return noted(row, said(row.output or "Error: the tool failed", error=True))
        case "REJECTED":
            reason = row.decision.reason if row.decision else None
            why = f": {reason}" if reason else ""
            return said(f"Not run: the call was rejected{why}", error=True)
        case "EXPIRED":
            return said("Not run: the approval expired", error=True)
        case "APPROVED":
            text = "Not run: it was approved elsewhere, but not by the answer given here"
            return said(text, error=True)
    return None


def noted(row: Proposal, result: types.CallToolResult) -> types.CallToolResult:
    """The result, followed by a note if the approver changed the input, or if a standing grant
    approved the call."""
    if row.edited is not None:
        words = f"(The approver changed the input to {json.dumps(row.edited)}.)"
        result.content.append(types.TextContent(text=words))
    if row.decision is not None and row.decision.grant:
        words = f"(Allowed by a standing grant of {row.decision.who}.)"
        result.content.append(types.TextContent(text=words))
    return result
