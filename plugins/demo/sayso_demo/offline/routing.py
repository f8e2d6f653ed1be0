"""The answer to the built-in router's question whether the agent should respond, decided by
rules."""

from __future__ import annotations

import re

from sayso import Ask, ModelError, Text
from sayso_demo.offline.explicit import written_out
from sayso_demo.offline.matching import is_negated, match
from sayso_demo.offline.words import is_question

_AGENT = re.compile(r"^Agent: *(.+?) *$", re.MULTILINE)
"""The form in which the router states the agent's name."""


def decision(ask: Ask) -> dict[str, bool | str]:
    """The router's document, from the newest message; ModelError for every other schema."""
    if set((ask.schema or {}).get("properties", {})) != {"should_respond", "reasoning"}:
        raise ModelError("bad_request", "the offline model writes no documents of this schema")
    responds, reason = _routed(ask, _newest(ask))
    return {"should_respond": responds, "reasoning": reason}


def _newest(ask: Ask) -> str:
    texts = [b.text for turn in ask.turns for b in turn.blocks if isinstance(b, Text)]
    lines = [line for line in "\n".join(texts).splitlines() if line.strip()] or [""]
    # A conversation in the form of a transcript ends with the newest message, "NAME: text".
    return re.sub(r"^[\w .()@-]{1,40}:\s+", "", lines[-1])


def _routed(ask: Ask, newest: str) -> tuple[bool, str]:
    named = _AGENT.search(ask.system)
    if named and re.search(rf"(?<!\w)@?{re.escape(named[1])}(?!\w)", newest, re.IGNORECASE):
        return True, f"the message mentions {named[1]}"
    if found := re.match(r"\s*@([\w.-]+)", newest):
        return False, f"the message speaks to {found[1]}"
    asked = match(newest, ask.tools) and not is_negated(newest, ask.tools)
    if asked or written_out(newest, ask.tools):
        return True, "the message asks for what a tool of the agent does"
    if "?" in newest or is_question(newest):
        return True, "the message is a question"
    return False, "the message neither mentions the agent nor asks for anything"
