"""A call as a person reads it in a chat that has only text: the card before, the line after.

All text of a model, a tool or a caller is in a code block that it cannot end: none of it may become
a link, or an image, which a reader's browser would fetch.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from sayso import ExecutedApproval, Host, Proposal, needed_approvals, pretty, visible

_LONGEST = 2_000
"""Characters of an output in the text of a chat; the ledger has the whole."""
_ID = re.compile(r"\b[0-9a-f]{32}\b")
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
_ENDS = {"Error:": "Failed", "Rejected:": "Rejected", "Outcome unknown:": "Outcome unknown"}
_WAITS = "**Waiting for a person to decide; this has not run.**"
_GOES_ON = "once it is decided, any message goes on."
_CARD = re.compile(rf"{re.escape(_WAITS)}.*?{re.escape(_GOES_ON)}\n?", re.DOTALL)
_OUTCOME = re.compile(
    r"^(?:Done|Failed|Rejected|Outcome unknown): call ([0-9a-f]{32})\n\n"
    r"(?:(~{3,})text\n.*?\n\2(?:\n|\Z))?",
    re.MULTILINE | re.DOTALL,
)


def page_of(host: Host, page: str | None) -> str | None:
    """The address where people decide: `page`, or else that of the console beside the endpoint, if
    they can reach the service by its own address."""
    server = host.config.server
    if page or host.plugins.get("console") is None:
        return page
    if server.host in ("0.0.0.0", "::", "") or not server.port:
        return None
    name = f"[{server.host}]" if ":" in server.host else server.host
    return f"http://{name}:{server.port}/console"


def card(row: Proposal, page: str | None) -> str:
    """The call with everything that its approver has to know, and where to decide."""
    name = "shell" if row.kind == "command" else row.name
    why = f"Why: {row.intent}" if row.intent else ""
    texts = [name, row.description, why, needed_approvals(row)]
    shown = [visible(line, strict=True) for line in texts if line]
    until = datetime.fromtimestamp(min(row.expires, _LAST), UTC).strftime("%Y-%m-%d %H:%M UTC")
    where = f"[Decide on the page]({page}#{row.id})" if page else "Decide on Sayso's page"
    return (
        f"\n\n{_WAITS}\n\n"
        f"{_block([*shown, pretty(row.runs)])}\n\n"
        f"{where}, or with `sayso approvals approve {row.id}`, until {until}. Words in this chat "
        f"approve nothing; {_GOES_ON}\n"
    )


def outcome(ended: ExecutedApproval) -> str:
    """The line about a call's outcome, and its output."""
    how = next((word for mark, word in _ENDS.items() if ended.output.startswith(mark)), "Done")
    output = visible(ended.output, strict=True)
    if len(output) > _LONGEST:
        output = f"{output[:_LONGEST]}\n(cut; {len(output) - _LONGEST} characters more)"
    name = "shell" if ended.type == "command" else ended.name
    return f"\n\n{how}: call {ended.id}\n\n{_block([visible(name, strict=True), output])}\n\n"


def cards(rows: Sequence[Proposal], page: str | None) -> str:
    """The cards of several calls."""
    return "".join(card(row, page) for row in rows)


def parts_of(text: str) -> list[tuple[str, list[str]]]:
    """The agent's text in one message, without cards and outcomes, and the ids of the cards.

    The text after an outcome is a part of its own: if a stream was held open, several replies are
    sent as one message. An id in a text finds a call; it decides nothing.
    """
    cuts = [0, *(match.start() for match in _OUTCOME.finditer(text)), len(text)]
    pieces = [text[start:end] for start, end in zip(cuts, cuts[1:], strict=False)]
    return [(_spoken(piece), _ids_in(_OUTCOME.sub("", piece))) for piece in pieces]


def reported_in(text: str) -> set[str]:
    """The calls whose outcome the text reports."""
    return {match[1] for match in _OUTCOME.finditer(text)}


def _spoken(text: str) -> str:
    return _CARD.sub("", _OUTCOME.sub("", text)).strip()


def _ids_in(text: str) -> list[str]:
    return list(dict.fromkeys(_ID.findall(text)))


def _block(lines: Sequence[str]) -> str:
    """A code block that none of the lines ends."""
    text = "\n".join(lines)
    longest = max((len(run) for run in re.findall("~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
