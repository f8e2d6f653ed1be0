"""`[approvals]`: the ledger, its times, and the rules that say which calls need whose approval."""

# Without `from __future__ import annotations`, whose texts pydantic compiles at each start.

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import to_jsonable_python

from sayso.config.settings import Positive, Section

_TERMS = frozenset(
    {"approvers", "quorum", "not_requester", "reason", "decide_within", "run_within", "grants"}
)
"""The keys of a rule that say who has to approve a call, until when, and whether in advance."""


class ApprovalRule(Section):
    """One of `[[approvals.rules]]`: the first that matches a tool call says what it needs."""

    tool: str = "*"
    """Name of the tool, with `*` and `?` as wildcards."""
    arguments: dict[str, Any] = {}
    """Arguments that must be there: a value, or text with `*`, `?` and `[abc]` as wildcards."""
    platform: dict[str, str] = {}
    """Fields of the platform context that must match, with wildcards. A rule that asks or refuses
    also matches if a field is absent; one that allows matches only without `[auth]`."""
    action: Literal["allow", "require", "deny"]
    """Run without approval, ask for approval, or refuse; "require" where a key below is given."""
    approvers: list[str] = []
    """Names of the principals and persons who may approve, and "group:NAME" for groups; by default
    those that `deciders` names."""
    quorum: int = Field(default=1, ge=1, le=20)
    """The number of persons who have to approve; above 1, only principals that belong to a person
    count."""
    not_requester: bool = False
    """Whether the approver must be another person than the one who asked for the call or changed
    its input."""
    reason: Literal["optional", "required"] = "optional"
    """Whether an approval has to state a reason."""
    decide_within: Positive | None = None
    """The time that the call waits for its approval; by default `ttl`."""
    run_within: Positive | None = None
    """The time that an approved call may wait for its start; by default until it would have
    expired."""
    grants: bool | None = None
    """Whether a standing grant may approve the call; by default unless its tool is marked as
    destructive."""

    @model_validator(mode="before")
    @classmethod
    def _asks_where_it_says_whom(cls, given: Any) -> Any:
        if isinstance(given, dict) and "action" not in given and not _TERMS.isdisjoint(given):
            return {**given, "action": "require"}
        return given

    @model_validator(mode="after")
    def _only_asks_whom(self) -> "ApprovalRule":
        if self.action != "require" and (given := _TERMS & self.model_fields_set):
            raise ValueError(f"{', '.join(sorted(given))}: only where action is 'require'")
        if wrong := [one for one in self.approvers if not one.removeprefix("group:").strip()]:
            raise ValueError(f"approvers: expected a name or 'group:NAME', not {wrong[0]!r}")
        return self

    @field_validator("arguments")
    @classmethod
    def _as_json(cls, given: dict[str, Any]) -> Any:
        # TOML has dates and times where a call has texts.
        return to_jsonable_python(given)


class ApprovalSettings(Section):
    """`[approvals]`: the ledger and its rules (design, section 6)."""

    ledger: str | None = None
    """Address of the store: "sqlite:///name.db", "memory://", "postgresql://..."; by default SQLite
    in the state folder."""
    ttl: Positive = 24 * 3600.0
    """How long a proposal waits for a decision."""
    retention: Positive = 30 * 86400.0
    """How long inputs and outputs are kept, those in recorded replies at most `ttl`."""
    log_retention: Positive | None = None
    """How long the log, and the record of calls that ended, are kept; by default for ever."""
    lease: Positive = 15.0
    """How long a silent owner of a running call counts as alive."""
    on_new_message: Literal["refuse", "supersede"] = "refuse"
    """Effect of a new message while tool calls are pending: it is refused, or rejects them."""
    deciders: Literal["principal", "any"] = "principal"
    """The approvers: only the principal that got the proposal, or any of its tenant."""
    run: Literal["service", "caller"] = "service"
    """The starter of a call that was approved elsewhere than by its caller: the service, if the
    call needs nothing of its caller's, or only the caller, when it sends the call back."""
    grants: bool = False
    """Whether persons may approve future calls by standing grants; needs [auth]."""
    accept_unissued: bool = False
    """Run approved calls that this service never proposed; for migrations and tests."""
    rules: list[ApprovalRule] = []
    """Rules that say which calls need approval; the first match counts."""

    @model_validator(mode="after")
    def _log_outlives_contents(self) -> "ApprovalSettings":
        if self.log_retention is None:
            return self
        if self.log_retention < max(self.retention, self.ttl):
            raise ValueError("'log_retention' must be at least 'retention' and 'ttl'")
        if self.accept_unissued:
            raise ValueError(
                "'log_retention' and 'accept_unissued' exclude each other: a call of which "
                "nothing is known any more would run again"
            )
        return self
