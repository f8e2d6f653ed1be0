"""The form in which a failure is shown to its caller and logged (design, section 7)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from secrets import token_hex

from sayso.errors import (
    AgentError,
    LedgerUnavailable,
    ModelError,
    RequestError,
    TurnError,
    named,
    reasons,
)
from sayso.wire.events import ErrorEvent
from sayso.wire.masking import cut, hidden_in, hidden_trace, mask
from sayso.wire.messages import Data

logger = logging.getLogger("sayso.host")
_LONGEST = 16 * 2**10
"""Most bytes of an output in the text of an error."""


def outcomes_with(error: BaseException) -> Data | None:
    """The outcomes of the calls that a turn carried out before it failed with `error`."""
    found: Data | None = error.__dict__.get("sayso_outcomes")
    return found


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a turn as it is shown: `message` is safe for callers; `incident` finds the log
    record.

    `status` is the HTTP status; `retry_after` is in seconds, None if retrying is useless or the
    time is unknown (design, section 7).
    """

    status: int
    code: str
    message: str
    incident: str | None = None
    retry_after: float | None = None
    outcomes: Data | None = None
    """The outcomes of the calls that the turn carried out before it failed, if there are any."""

    @classmethod
    def of(cls, error: BaseException, *, debug: bool, altered: bool = False) -> Failure:
        """The failure to show for `error`, which is logged unless it is the caller's fault.

        With `debug` callers also see its cause, and what a model's provider said: not where
        interceptors alter replies (`altered`), since it may quote the model.
        """
        outcomes = outcomes_with(error)
        if isinstance(error, RequestError):
            return cls(error.status, error.code, str(error), None, error.retry_after, outcomes)
        incident = token_hex(6)
        shown = error if isinstance(error, TurnError) else AgentError()
        message = str(shown)
        if debug:
            cause = error.__cause__ if shown is error else error
            message += f": {named(cause)}" if cause is not None else ""
            if isinstance(error, ModelError) and error.why and not altered:
                message += f": {error.why}"
        secrets = hidden_in(error)
        message = mask(message, secrets)
        if isinstance(error, LedgerUnavailable) or _is_explained(error):
            # Every request gets it while the store or the provider is away, and no stack explains
            # why.
            logger.error("incident %s: %s: %s", incident, shown.code, mask(reasons(error), secrets))
        else:
            trace = hidden_trace(error, secrets)
            logger.error("incident %s: %s: %s\n%s", incident, shown.code, message, trace)
        return cls(shown.status, shown.code, message, incident, shown.retry_after, outcomes)

    def carried_out(self) -> Iterator[str]:
        """A line for each call and command that was carried out before the failure."""
        data = self.outcomes or Data()
        for call in data.outcomes:
            yield f"Carried out before that: {call.name} ({call.id}): {cut(call.output, _LONGEST)}"
        for ran in data.executed_cmds:
            yield f"Carried out before that: `{ran.command}`: {cut(ran.output, _LONGEST)}"

    def event(self) -> ErrorEvent:
        """The terminal `error` event."""
        return ErrorEvent(self.message, self.code, self.incident)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Further headers of its HTTP reply: how to authenticate, and when to try again."""
        if self.status == 401:
            return [(b"www-authenticate", b"Bearer")]
        if self.retry_after is None:
            return []
        return [(b"retry-after", str(max(1, math.ceil(self.retry_after))).encode())]


def _is_explained(error: BaseException) -> bool:
    """Whether a model adapter raised it about its provider, and no other error is behind it."""
    return isinstance(error, ModelError) and not (error.__cause__ or error.__context__)
