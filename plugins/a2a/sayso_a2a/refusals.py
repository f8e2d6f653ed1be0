"""The reasons why a task is not shown, started or continued."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sayso import (
    Busy,
    ErrorEvent,
    Failure,
    InvalidRequest,
    RequestError,
    StillRunning,
    Stopping,
    TooMany,
)


class TaskUnknown(RequestError):
    """There is no such task for this caller."""

    status = 404
    code = "TASK_NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("there is no task of this id")


class TaskBusy(RequestError):
    """The task is still running, or has been canceled."""

    status = 409

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotDecidedHere(RequestError):
    """A decision came over a protocol over which nobody decides."""

    status = 403
    code = "NOT_DECIDED_HERE"


class PendingCalls(RequestError):
    """A new message arrived while calls are pending."""

    status = 409
    code = "APPROVALS_PENDING"

    def __init__(self, message: str, pending: Sequence[str]) -> None:
        super().__init__(message)
        self._pending = list(pending)

    def extra(self) -> dict[str, Any]:
        """The pending calls."""
        return {"pending": self._pending}


_WHERE = re.compile(r"body\.messages\.\d+\.(data|content)([\w.]*): ")


def refusal_of(
    event: ErrorEvent, pending: Sequence[str], failure: Failure | None = None
) -> RequestError:
    """The refusal for an `error` event without an incident, and for its `failure`."""
    if failure is not None and failure.status == 429:
        return TooMany(event.error, failure.retry_after or 1.0, failure.code)
    match event.code:
        case "APPROVALS_PENDING":
            return PendingCalls(event.error, pending)
        case "BUSY":
            return Busy(event.error)
        case "STILL_RUNNING":
            return StillRunning()
        case "STOPPING":
            return Stopping()
    loc: list[str | int] = ["body"]
    message = event.error
    # The event names the place in a chat endpoint's body; translate it to this body.
    if (place := _WHERE.match(message)) is not None:
        field, rest = place.groups()
        steps = [int(step) if step.isdigit() else step for step in rest.split(".") if step]
        loc += ["message" if field == "content" else field, *steps]
        message = message[place.end() :]
    return InvalidRequest.at(loc, (event.code or "BAD_REQUEST").lower(), message)
