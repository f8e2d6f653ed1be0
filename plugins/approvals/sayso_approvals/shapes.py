"""The reader of calls, and the tag that tells two states of a call apart."""

import json
from hashlib import sha256

from sayso import Caller, Host, Proposal, View


def view(host: Host, caller: Caller) -> View:
    """The caller as the reader of calls."""
    tools = host.agent.tools
    return View(
        caller.principal,
        barred=lambda row: host.record.barred(row, caller),
        editable=lambda row: (
            row.kind == "tool_call" and row.name in tools and tools[row.name].editable
        ),
    )


def etag(row: Proposal) -> str:
    """The entity tag of a call; it differs after each change of the call."""
    said = [row.state, row.seen, len(row.votes), len(row.comments), row.fence, row.expires]
    return f'"{sha256(json.dumps(said).encode()).hexdigest()[:32]}"'
