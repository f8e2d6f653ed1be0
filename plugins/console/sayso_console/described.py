"""The console's JSON paths in the OpenAPI document."""

from typing import Any

from sayso import openapi_fields, openapi_operation, openapi_query, openapi_shape
from sayso_console.approvals import Verdict

_REFUSALS = {
    "403": "FOREIGN_ORIGIN: the request comes from another page. AUTH_REQUIRED: nobody is "
    "authenticated on an address that others reach.",
    "404": "There is no such call for this caller.",
    "422": "The body or the decision is refused, as in `approval_changed`.",
}
_CALL = openapi_fields(
    "A call that waits for a decision.",
    id="The id of the call.",
    type="`tool_call` or `command`.",
    name="The name of the tool, or `command`.",
    input={"type": "object", "description": "The arguments that would run."},
    revision={"type": "integer", "description": "The number of the input: 1 is the proposed one."},
    seen="The digest of what is shown; send it back with an approval.",
    description="The description of the tool.",
    created="When it was proposed, in ISO 8601.",
    expires="When it expires, in ISO 8601.",
)
_STANDING = openapi_fields(
    "The state of a call.",
    id="The id of the call.",
    state="The state, such as PENDING, APPROVED or DONE.",
    edited={"type": ["object", "null"], "description": "The input that an approver changed."},
    decision={"type": ["object", "null"], "description": "Who decided what, when and why."},
)
_MEANINGS = {
    "approve": "True approves the call, false rejects it.",
    "reason": "The reason of a rejection; the model gets it.",
    "input": "The changed input of an editable tool's call.",
    "seen": "The digest of what the page showed.",
}


def openapi_paths() -> dict[str, dict[str, Any]]:
    """The operations, by path and method."""
    listed = openapi_fields(
        "A page of calls.",
        agent={"type": "object", "description": "The agent, and which tools are editable."},
        approvals={"type": "array", "items": _CALL, "description": "The calls."},
        next={"type": ["string", "null"], "description": "The value of `after` of the next page."},
    )
    agent = openapi_fields(
        "The agent.",
        name="The name.",
        description="The purpose of the agent.",
        examples={"type": "array", "items": {}, "description": "Example prompts."},
        tools={"type": "object", "description": "The tools by their names."},
        inbox={"type": "boolean", "description": "Whether the plugin `approvals` is active."},
        you={"type": ["object", "null"], "description": "The caller, if authenticated."},
        guarded={"type": "boolean", "description": "Whether callers are authenticated."},
        developer={"type": ["object", "null"], "description": "More, where `server.docs` is on."},
    )
    look = openapi_operation(
        "Show a call of the page",
        "The call, its state, and who decided it.",
        answers=_STANDING,
        refusals=_REFUSALS,
    )
    decide = openapi_operation(
        "Decide a call on the page",
        "Records the decision. The call runs where its caller waits for it, or with the caller's "
        "next request.",
        answers=_STANDING,
        takes=openapi_shape(Verdict, _MEANINGS, "validation"),
        example={"approve": False, "reason": "not before Monday"},
        refusals=_REFUSALS,
    )
    return {
        "/console/agent": {
            "get": openapi_operation(
                "Introduce the agent to the page",
                "The agent, its tools, and who the caller is.",
                answers=agent,
                refusals={"403": _REFUSALS["403"]},
            )
        },
        "/console/approvals": {
            "get": openapi_operation(
                "List calls for the page",
                "The pending calls that are visible to this caller, the newest of each principal "
                "first.",
                answers=listed,
                parameters=[openapi_query("after", "The `next` of the page before.")],
                refusals={"403": _REFUSALS["403"]},
            )
        },
        "/console/approvals/{id}": {"get": look, "post": decide},
    }
