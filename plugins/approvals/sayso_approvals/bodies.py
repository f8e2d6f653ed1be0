"""The bodies of the POSTs to the inbox."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sayso import BodyReader

Reason = Annotated[str, Field(max_length=4_000)]


class Body(BaseModel):
    """The base of all bodies: unknown keys are refused, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DecisionBody(Body):
    """A decision. The ledger records `reason`, and the model gets that of a rejection; only other
    approvers get `comment`. `input` is the new input of an approval, if the tool is editable. An
    approval needs `seen` as the call showed it."""

    approve: bool
    reason: Reason | None = None
    comment: Reason | None = None
    input: dict[str, Any] | None = None
    seen: str | None = None


class OneOfSeveral(DecisionBody):
    """A decision with the id of its call."""

    id: str


class DecisionsBody(Body):
    """Up to a hundred decisions. "all" records all of them or none, "each" records every one by
    itself."""

    mode: Literal["all", "each"] = "each"
    decisions: Annotated[list[OneOfSeveral], Field(min_length=1, max_length=100)]


class CommentBody(Body):
    """A comment for the others who decide; the model does not get it."""

    text: Annotated[str, Field(min_length=1, max_length=4_000)]


class WithdrawBody(Body):
    """The reason for withdrawing the call; the model gets it."""

    reason: Annotated[str, Field(min_length=1, max_length=4_000)] = "withdrawn"


class FreezeBody(Body):
    """Whether all starts of approved calls are stopped, and the reason, which callers get."""

    frozen: bool
    reason: Annotated[str, Field(max_length=500)] = ""


class Place(Body):
    """The fields of the platform context that a standing grant binds."""

    tenant_name: str | None = None
    k8s_namespace: str | None = None
    platform_base_url: str | None = None


class GrantBody(Body):
    """A standing grant: `uses` calls of the holder within `seconds`.

    `call` names a recorded call whose tool, input, requester and context are meant unless stated
    here. `arguments` is the whole input, or with `match` "pattern" a text with `*`, `?` and
    `[abc]`, or a value, for each argument. `context` has the fields that calls must state.
    """

    call: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    match: Literal["exact", "pattern"] = "exact"
    holder: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    context: Place | None = None
    uses: Annotated[int, Field(ge=1, le=1_000)]
    seconds: Annotated[int, Field(ge=1, le=30 * 86_400)]
    reason: Annotated[str, Field(min_length=1, max_length=500)]


GRANT = BodyReader(GrantBody, unique=True)
FREEZE = BodyReader(FreezeBody, unique=True)
DECISION = BodyReader(DecisionBody, unique=True)
DECISIONS = BodyReader(DecisionsBody, unique=True)
COMMENT = BodyReader(CommentBody, unique=True)
WITHDRAW = BodyReader(WithdrawBody, unique=True)
