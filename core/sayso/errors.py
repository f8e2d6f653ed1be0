"""Every error that Sayso raises.

    SaysoError
    ├── StartupError                 the service does not start; shown to the operator
    │   ├── ConfigError              a wrong value, an unknown key, an agent that cannot be loaded
    │   └── PluginError              a plugin that is missing, broken or in conflict
    ├── RequestError                 a request is refused; shown to the caller
    │   ├── MessagesMissing          400  the body has no `messages`
    │   ├── InvalidRequest           422  one item for each wrong field
    │   ├── UnsupportedMediaType     415  the body is not `application/json`, or is compressed
    │   ├── TooLarge                 413  the body or frame is over its limit
    │   ├── UnknownHost              421  a page decides under a name that is not the service's
    │   ├── Unauthenticated          401  no principal for the credentials
    │   ├── NoAuthentication         403  what needs `[auth]` is asked for without it
    │   ├── NotGranted               403  the caller may not give or revoke this standing grant
    │   ├── ApprovalsPending         409  a new message while calls wait for a decision
    │   ├── StreamUnknown            404  no such stream of this caller is kept here
    │   ├── StreamTaken              409  a stream of this id is kept already
    │   ├── StreamGone               410  the beginning of the stream is not kept any more
    │   ├── StillRunning             503  another request runs this call or turn, beyond our limit
    │   ├── Busy                     503  too many turns in flight, or the service is stopping
    │   └── Stopping                 503  the service stopped before the turn had ended
    ├── TurnError                    a turn that had begun failed; shown with an incident id
    │   ├── NotStarted               500  the lifespan of the app did not run
    │   ├── AgentError               500  the agent raised, or did not return a message
    │   ├── TurnTimeout              504  the turn ran longer than `limits.turn_time`
    │   ├── Exhausted                503  too many calls go on that nobody waits for any more
    │   ├── LedgerUnavailable        503  the store did not answer; nothing ran unrecorded
    │   └── ModelError               502, 503  the model provider failed
    │       └── ReplyTooLarge        502  a reply without an end was broken off
    ├── ToolInputError               an input does not fit a tool's schema; shown to the model
    └── Blocked, Silence             raised by interceptors and callables; answers, not failures

Status codes and codes: interface.md, "Errors"; design, section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, ClassVar, Literal

_MOST_ITEMS = 100


class SaysoError(Exception):
    """The base class of all errors of Sayso."""


class StartupError(SaysoError):
    """The service cannot start with this configuration."""


class ConfigError(StartupError, ValueError):
    """A configuration value is wrong; the message names it, its origin and the way out."""


class PluginError(StartupError):
    """A plugin is missing, broken or in conflict; the message names it and its distribution."""


class RequestError(SaysoError):
    """The request is refused before anything ran; or, as Stopping, the turn was ended.

    `code` is in capitals, as in V2 bodies and `error` events. `items` is the list form (`loc`,
    `msg`, `type`) of the errors that V1 answers with 422, empty for all others.
    """

    status: ClassVar[int] = 400
    code: str = "BAD_REQUEST"
    items: Sequence[Mapping[str, Any]] = ()
    retry_after: float | None = None

    def extra(self) -> dict[str, Any]:
        """Further fields of the V2 body beside `detail` and `code`."""
        return {}


class MessagesMissing(RequestError):
    """The body is an object without `messages`."""

    code = "MESSAGES_MISSING"

    def __init__(self) -> None:
        super().__init__("the field 'messages' is missing from the request body")


class InvalidRequest(RequestError):
    """The request has wrong fields; each item has `loc`, `msg` and `type`, never the value.

    Items beyond a hundred are only counted, in an item of type `more_errors`.
    """

    status = 422

    def __init__(self, items: Sequence[Mapping[str, Any]]) -> None:
        self.items = list(items[:_MOST_ITEMS])
        if left := len(items) - len(self.items):
            message = f"{left} more errors are not listed"
            self.items.append({"loc": ["body"], "msg": message, "type": "more_errors"})
        first = self.items[0]
        self.code = str(first["type"]).upper()
        where = ".".join(str(part) for part in first["loc"])
        super().__init__(f"{where}: {first['msg']}")

    @classmethod
    def at(cls, loc: Sequence[str | int], kind: str, message: str) -> InvalidRequest:
        """One item at `loc`, a path that begins with `body`."""
        return cls([{"loc": list(loc), "msg": message, "type": kind}])


class UnsupportedMediaType(RequestError):
    """The body's content type is not `application/json`, or the body is compressed."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"

    def __init__(
        self, message: str = "the request body must be sent as 'application/json'"
    ) -> None:
        super().__init__(message)


class TooLarge(RequestError):
    """A body or a WebSocket frame is larger than its limit in bytes."""

    status = 413
    code = "TOO_LARGE"

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"the {what} is larger than {limit} bytes")


class UnknownHost(RequestError):
    """A web page decides under a host name that the service does not know as its own.

    The owner of that name may have pointed it here, so that a page of theirs passes for ours.
    """

    status = 421
    code = "UNKNOWN_HOST"

    def __init__(self) -> None:
        super().__init__("a web page may decide only under a name in server.hosts; add this one")


class Unauthenticated(RequestError):
    """The credentials are missing or wrong; `reason` is a word of `sayso.observing.Reason`, which
    operators see and callers do not."""

    status = 401
    code = "UNAUTHENTICATED"

    def __init__(
        self, message: str = "credentials are missing or not valid", reason: str = "other"
    ) -> None:
        super().__init__(message)
        self.reason = reason


class NoAuthentication(RequestError):
    """A request lists pending calls, or decides by id, on a service without authentication."""

    status = 403
    code = "AUTH_REQUIRED"

    def __init__(self) -> None:
        super().__init__(
            "this needs [auth], since anybody, and any tool of the agent, could decide here; set "
            "it, or set server.host to 127.0.0.1 and use the token that the start prints"
        )


class NotGranted(RequestError):
    """The caller may not give or revoke a standing grant; `code` says why."""

    status = 403

    _WORDS: ClassVar[Mapping[str, str]] = {
        "GRANTS_OFF": "standing grants are off here; see approvals.grants",
        "AGENT": "an agent gives and revokes no standing grant; a person has to",
        "NOT_A_PERSON": "only persons give standing grants; see [auth.people]",
        "OWN_REQUEST": "the holder of a standing grant must be somebody else than its giver",
        "NOT_AN_APPROVER": "the rule for these calls names others who may approve them",
        "NOT_FOUND": "you may not approve calls of this holder; see approvals.deciders",
        "QUORUM": "the rule for these calls demands several approvals, so no grant covers them",
        "DENIED": "a rule of this service forbids these calls",
        "NOT_GRANTABLE": "the tool is marked as destructive, or its rule excludes standing grants",
    }

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(self._WORDS[code])


class ApprovalsPending(RequestError):
    """The history shows pending calls, and the new message has no decision.

    interface.md, "ToolCall lifecycle", rule 3.
    """

    status = 409
    code = "APPROVALS_PENDING"

    def __init__(self, pending: Sequence[str]) -> None:
        self.pending = list(pending)
        super().__init__(
            "tool calls wait for a decision; approve or reject them before a new message: "
            + ", ".join(self.pending)
        )
        self.items = [{"loc": ["body", "messages"], "msg": str(self), "type": "approvals_pending"}]

    def extra(self) -> dict[str, Any]:
        return {"pending": self.pending}


class StreamUnknown(RequestError):
    """This process keeps no such stream of this caller."""

    status = 404
    code = "STREAM_NOT_FOUND"

    def __init__(self) -> None:
        super().__init__(
            "there is no such stream here: it was kept for a short time, by the machine that began "
            "it; send the request again"
        )


class StreamTaken(RequestError):
    """A stream of this id is kept already."""

    status = 409
    code = "STREAM_TAKEN"

    def __init__(self) -> None:
        super().__init__("there is a stream of this id; read it on, or choose another id")


class StreamGone(RequestError):
    """The stream is longer than the part of it that is kept."""

    status = 410
    code = "STREAM_GONE"

    def __init__(self) -> None:
        super().__init__("the beginning of this stream is not kept any more; send a new request")


class StillRunning(RequestError):
    """Another request runs this call or continues this turn, and did not end within our limit."""

    status = 503
    code = "STILL_RUNNING"
    retry_after = 1.0

    def __init__(self) -> None:
        super().__init__("the approved call is still running; send the same request again later")


class TooMany(RequestError):
    """A caller has asked for more than a plugin allows; raised by the hook `admit`.

    `code` is RATE_LIMITED or BUDGET_EXHAUSTED, `retry_after` in seconds.
    """

    status = 429
    code = "RATE_LIMITED"

    def __init__(self, message: str, retry_after: float, code: str = "RATE_LIMITED") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.code = code


class Busy(RequestError):
    """The limit of turns in flight is reached, or the service is stopping."""

    status = 503
    code = "BUSY"
    retry_after = 1.0

    def __init__(self, message: str = "too many turns are in flight; try again later") -> None:
        super().__init__(message)


class Stopping(RequestError):
    """The service stopped before the turn had ended. Calls that ran before count as run."""

    status = 503
    code = "STOPPING"

    def __init__(self) -> None:
        super().__init__("the service stopped before the turn had ended")


class TurnError(SaysoError):
    """A started turn failed. The message is for callers; the cause is in the log."""

    status: int = 500
    code: str = "AGENT_ERROR"
    retry_after: float | None = None


class AgentError(TurnError):
    """The agent raised, or returned an object that is no message (interface.md, "Errors", V1
    500)."""

    def __init__(self, message: str = "the agent failed") -> None:
        super().__init__(message)


class NotStarted(TurnError):
    """The host is not running: nobody has entered its app's lifespan."""

    code = "NOT_STARTED"

    def __init__(self) -> None:
        super().__init__(
            "the service has not started: the lifespan of its app did not run; a mounted app "
            "needs it entered by the app around it (app.router.lifespan_context)"
        )


class TurnTimeout(TurnError):
    """The turn ran longer than `limits.turn_time`."""

    status = 504
    code = "TURN_TIMEOUT"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the turn took longer than {counted(seconds, 'second')} and has no reply; a tool or "
            "command that it began may still be running"
        )


class Exhausted(TurnError):
    """Too many abandoned calls are running, in all or of one function; restart the process."""

    status = 503
    code = "EXHAUSTED"

    def __init__(self, count: int, worst: str) -> None:
        super().__init__(
            f"{count} abandoned calls go on, most of them of {worst!r}; only a new process helps"
        )


class LedgerUnavailable(TurnError):
    """The approvals store did not answer or refused a write.

    No gated call ran because of it. The outcome of one that had already run is kept, and recorded
    as soon as the store accepts it.
    """

    status = 503
    code = "LEDGER_UNAVAILABLE"
    retry_after = 1.0

    def __init__(self, message: str = "the approvals store is not available") -> None:
        super().__init__(message)


ModelErrorKind = Literal[
    "auth",
    "bad_request",
    "context",
    "not_found",
    "quota",
    "rate_limit",
    "overloaded",
    "server",
    "connection",
    "timeout",
    "protocol",
]


class ModelError(TurnError):
    """The model provider failed; the only exception that leaves a `Model`.

    `message` is a safe sentence for callers: it holds no key, no body, no header.
    `retryable` says that the same call may succeed later; `retry_after` is in seconds. `reason` is
    what the provider said, without keys and secrets, `parameter` what of the request it refused,
    `request_id` the number under which it knows the call: for the log, and for callers with
    `server.debug`.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        reason: str = "",
        parameter: str = "",
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.reason = reason
        self.parameter = parameter
        self.request_id = request_id
        if why := self.why:
            self.add_note(why)
        self.retryable = retryable
        # Infinity and NaN mean as little as None, and no header can carry them.
        self.retry_after = retry_after if isfinite(retry_after or 0) else None
        overloaded = kind in ("rate_limit", "overloaded")
        self.status = 503 if overloaded else 502
        self.code = "MODEL_OVERLOADED" if overloaded else "MODEL_ERROR"

    @property
    def why(self) -> str:
        """The provider's message, the refused parameter and the request id; empty if the provider
        stated none."""
        of = [f"parameter {self.parameter!r}"] if self.parameter else []
        of += [f"request {self.request_id}"] if self.request_id else []
        return f"{self.reason} ({', '.join(of)})".strip() if of else self.reason


class ReplyTooLarge(ModelError):
    """A model's reply, or a callable's, is longer than `limits.reply`, or has too many blocks."""

    def __init__(self, limit: int, what: str = "bytes") -> None:
        super().__init__("protocol", f"the reply has more than {limit} {what} and was broken off")
        self.code = "REPLY_TOO_LARGE"


class ToolInputError(SaysoError, ValueError):
    """The input of a tool call does not match the tool's schema; nothing ran.

    The message is for the model, at most 1,000 characters: which parameter is wrong, and why.
    `bare` is the same without the given values, which may be credentials.
    """

    def __init__(self, message: str = "", bare: str | None = None) -> None:
        super().__init__(message)
        self.bare = message if bare is None else bare


class Blocked(SaysoError):
    """Raise it in a request interceptor to answer with `message` instead of running the agent.

    A response interceptor that raises it takes back the whole reply, a callable the rest of it.

    The caller gets `message` as the reply and `meta_data.blocked = {"code": code}` (interface.md,
    "Agent configuration"; design, section 7).
    """

    def __init__(self, message: str, code: str = "BLOCKED") -> None:
        super().__init__(message)
        # Interceptors pass exceptions, translations that become texts late, numbers as codes.
        self.message = _as_text(message, "")
        self.code = _as_text(code, "BLOCKED")


class Silence(SaysoError):
    """Raise it instead of Blocked to say nothing at all (interface.md, rule 6)."""

    def __init__(self, reasoning: str = "") -> None:
        super().__init__(reasoning)
        self.reasoning = reasoning


def message_of(error: object) -> str:
    """The text of an exception of user code; empty if the exception cannot be converted to text."""
    try:
        return str(error)
    except Exception:
        return ""


def _as_text(value: object, default: str) -> str:
    """The text of a value of user code; `default` for None."""
    if isinstance(value, str):
        return value
    return default if value is None else message_of(value)


def named(error: BaseException) -> str:
    """The type of an exception, and its text if there is one."""
    name, text = type(error).__name__, message_of(error)
    return f"{name}: {text}" if text else name


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of the `known` names that was probably meant by `name`; None if none is similar."""
    import difflib  # needed only for a mistake

    return next(iter(difflib.get_close_matches(name, [*known], 1, cutoff)), None)


def counted(number: float, noun: str) -> str:
    """`number` and the noun, as words: "1 call", "2 calls"."""
    return f"{number:.12g} {noun}" + ("" if number == 1 else "s")


def reasons(error: BaseException) -> str:
    """The texts of `error`, its notes and its causes, in one line."""
    said = [str(error)]
    cause: BaseException | None = error
    while cause is not None:
        said += getattr(cause, "__notes__", ())
        cause = cause.__cause__
        if cause is not None:
            said.append(named(cause))
    return " ".join(": ".join(said).split())
