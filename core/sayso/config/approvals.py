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
    """Name of the tools that the rule is for, with `*` and `?` as wildcards."""
    arguments: dict[str, Any] = {}
    """Arguments that a call must have: a value, or a text with `*`, `?` and `[abc]` as
    wildcards."""
    platform: dict[str, str] = {}
    """Fields of the platform context that must match, with wildcards. A rule that asks or refuses
    also matches if a field is absent; one that allows matches only without `[auth]`."""
    action: Literal["allow", "require", "deny"]
    """"allow": the call runs without approval; "require": it needs one; "deny": it is refused.
    "require" is the default if one of the keys below is set."""
    approvers: list[str] = []
    """Names of the principals and persons who may approve, and "group:NAME" for groups; by default
    `approvals.deciders` says who."""
    quorum: int = Field(default=1, ge=1, le=20)
    """The number of persons who have to approve; above 1, only principals that belong to a person
    count."""
    not_requester: bool = False
    """Whether the approver must be another person than the requester, and than a person who
    changed the input."""
    reason: Literal["optional", "required"] = "optional"
    """Whether an approval has to state a reason."""
    decide_within: Positive | None = None
    """How long the call waits for its approval; by default `approvals.ttl`."""
    run_within: Positive | None = None
    """How long an approved call may wait for its start; by default until it would have expired."""
    grants: bool | None = None
    """Whether a standing grant may approve the call; by default yes, unless the tool is marked as
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
    """How long a proposal waits for a decision; then it expires."""
    retention: Positive = 30 * 86400.0
    """How long inputs and outputs are kept; those in recorded replies at most for `ttl`."""
    log_retention: Positive | None = None
    """How long the log and the record of ended calls are kept; absent: for ever. At least
    `retention` and `ttl`."""
    lease: Positive = 15.0
    """How long the process of a running call may be silent before others consider it dead."""
    on_new_message: Literal["refuse", "supersede"] = "refuse"
    """The effect of a new message while tool calls are pending: "refuse" answers 409, "supersede"
    rejects the calls."""
    deciders: Literal["principal", "any"] = "principal"
    """The possible approvers: "principal": only the principal that got the proposal; "any": each
    principal of its tenant."""
    run: Literal["service", "caller"] = "service"
    """The starter of a call that was approved by somebody else than its caller: "service": the
    service, if the call needs nothing from its client; "caller": only its caller, by sending the
    call back."""
    grants: bool = False
    """Whether persons may approve future calls by standing grants; needs [auth]."""
    accept_unissued: bool = False
    """Whether approved calls run that this service never proposed; only for migrations and
    tests."""
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
