"""The refusals of the inbox."""

from sayso import RequestError, why_barred


class NotFound(RequestError):
    """404: there is no such call for this caller."""

    status = 404
    code = "NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("there is no such call")


class NotAllowed(RequestError):
    """403: the caller sees the call, but may not do this; `code` says why."""

    status = 403

    _WORDS = {
        "NOT_THE_REQUESTER": "only the requester may withdraw this call; reject it instead",
        "NOT_A_PERSON": "only persons stop all starts; see [auth.people]",
        "NOT_AN_AUDITOR": "the log is for members of the groups in auth.auditors",
    }

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(self._WORDS.get(code) or why_barred(code))


class SeenRequired(RequestError):
    """428: an approval has to state what its approver saw."""

    status = 428
    code = "SEEN_REQUIRED"

    def __init__(self) -> None:
        super().__init__("an approval needs 'seen', as the call had it when you looked at it")


class TooManyWait(RequestError):
    """503: no further request may wait."""

    status = 503
    code = "BUSY"
    retry_after = 5.0

    def __init__(self) -> None:
        super().__init__("too many requests wait for decisions already; see limits.waiters")
