"""Removes e-mail addresses, card numbers and tokens from requests and replies.

    [plugin.redact]
    patterns = { "employee number" = "\\bE\\d{6}\\b" }

Proposals are sent unchanged, since a person has to see what would run.
"""

from __future__ import annotations

import re
from functools import partial

from sayso import AgentMessage, ChatRequest, Data, Plugin, hookimpl

# While `re` searches, no other code of the process runs. Therefore no pattern may match almost
# everywhere in a long text and then read from each of its characters to the end.
PATTERNS = {
    # A local part has at most 64 characters (RFC 5321).
    "e-mail": r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "card number": r"\b\d(?:[ -]?\d){12,18}\b",
    "token": r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs])[-_][\w-]{12,}|\bAKIA[A-Z0-9]{16}\b"
    r"|(?<![\w-])eyJ[\w-]+\.[\w-]+\.[\w-]+",
}


class Redact(Plugin):
    """Replaces each secret by its name in brackets: "[e-mail]"."""

    class Settings(Plugin.Settings):
        """`[plugin.redact]`."""

        patterns: dict[str, str] = {}
        """Further regular expressions, by the name that replaces their matches."""

    settings: Settings

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        patterns = {**PATTERNS, **self.settings.patterns}
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}

    @hookimpl
    def intercept_request(self, request: ChatRequest) -> None:
        """Hide secrets from the model and the following interceptors."""
        for message in request.messages:
            message.content = self.clean(message.content)
            if message.data is not None:
                self._clean_outputs(message.data)

    @hookimpl
    def intercept_response(self, response: AgentMessage) -> None:
        """Hide them from the caller, too; streams are held back until this has run."""
        response.content = self.clean(response.content)
        self._clean_outputs(response.data)

    def clean(self, text: str) -> str:
        """`text` with each secret replaced by its name."""
        for name, pattern in self._patterns.items():
            text = pattern.sub(partial(_replaced, name), text)
        return text

    def _clean_outputs(self, data: Data) -> None:
        for outcome in (*data.outcomes, *data.executed_cmds):
            outcome.output = self.clean(outcome.output)


def _replaced(name: str, found: re.Match[str]) -> str:
    if name == "card number" and not _is_card_number(found[0]):
        return found[0]
    return f"[{name}]"


def _is_card_number(text: str) -> bool:
    """Whether the digits satisfy the checksum of ISO/IEC 7812."""
    digits = [int(c) for c in reversed(text) if c.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
