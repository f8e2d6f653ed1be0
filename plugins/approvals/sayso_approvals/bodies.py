"""The bodies of the POSTs to the inbox."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sayso import BodyReader

Reason = Annotated[str, Field(max_length=4_000)]


class Body(BaseModel):
    """The base of all bodies: unknown keys are refused, and nothing is guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DecisionBody(Body):
    """A decision. `reason` goes into the ledger and, of a rejection, to the model; `comment` only
    to others who decide. `input` is what an approval changes the input to, where the tool is
    editable. An approval needs `seen`, as the call had it."""

    approve: bool
    reason: Reason | None = None
    comment: Reason | None = None
    input: dict[str, Any] | None = None
    seen: str | None = None


class OneOfSeveral(DecisionBody):
    """A decision with the id of its call."""

    id: str


class DecisionsBody(Body):
    """Up to a hundred decisions. "all" records all of them or none, "each" every one by itself."""

    mode: Literal["all", "each"] = "each"
    decisions: Annotated[list[OneOfSeveral], Field(min_length=1, max_length=100)]


class CommentBody(Body):
    """A comment for the others who decide; the model does not get it."""

    text: Annotated[str, Field(min_length=1, max_length=4_000)]


class WithdrawBody(Body):
    """Why the call is taken back; the model gets it."""

    reason: Annotated[str, Field(min_length=1, max_length=4_000)] = "withdrawn"


class FreezeBody(Body):
    """Whether all starts of approved calls are stopped, and why; callers are told."""

    frozen: bool
    reason: Annotated[str, Field(max_length=500)] = ""


FREEZE = BodyReader(FreezeBody, unique=True)
DECISION = BodyReader(DecisionBody, unique=True)
DECISIONS = BodyReader(DecisionsBody, unique=True)
COMMENT = BodyReader(CommentBody, unique=True)
WITHDRAW = BodyReader(WithdrawBody, unique=True)
