"""The people of a proposal: those who have to approve it, those who have, and their comments."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Terms:
    """The demands of the rule that applied when the call was proposed.

    `approvers` are names of principals and persons, and groups as "group:NAME"; if it is empty,
    those may approve who may without a rule. `decide_within` is in seconds since the proposal,
    `run_within` since the approval. `rule` is the digest of the rule.
    """

    approvers: list[str] = field(default_factory=list)
    quorum: int = 1
    not_requester: bool = False
    reason: bool = False
    decide_within: float | None = None
    run_within: float | None = None
    rule: str = ""


@dataclass(slots=True)
class Vote:
    """An approval that counts for a quorum.

    `who` is the principal and `person` the person to whom it belongs; `claimed` says that nobody
    proved this. `revision` is the revision of the input that the approver saw.
    """

    who: str | None
    at: float
    person: str | None = None
    claimed: bool = False
    protocol: str = ""
    address: str | None = None
    revision: int = 1


@dataclass(slots=True)
class Comment:
    """A remark about a call for other approvers; the model does not get it."""

    who: str | None
    at: float
    text: str
    claimed: bool = False
