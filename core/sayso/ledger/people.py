"""The people of a proposal: who has to approve it, who has, and what they said."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Terms:
    """The demands of the rule that held when the call was proposed.

    `approvers` are names of principals and persons, and groups as "group:NAME"; empty: whoever may
    decide otherwise. `decide_within` is in seconds from the
    proposal on, `run_within` from the approval on. `rule` is the digest of the
    rule.
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

    `who` is the principal and `person` whose principal that is, `claimed` says that nobody proved
    it. `revision` is the revision of the input that was seen.
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
    """A remark about a call for the others who decide; the model does not get it."""

    who: str | None
    at: float
    text: str
    claimed: bool = False
