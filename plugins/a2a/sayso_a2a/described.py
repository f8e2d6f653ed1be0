"""The paths of both adapters in the OpenAPI document."""

from typing import Any

from sayso import openapi_fields, openapi_operation, openapi_query, openapi_shape
from sayso_a2a.simple import SendBody

_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The id of the task.",
    "schema": {"type": "string"},
}
_TASK = openapi_fields(
    "A task.",
    task_id="The id of the task.",
    text="The text of the newest reply.",
    status="`pending`, `running`, `input-required`, `completed`, `failed` or `canceled`.",
    artifacts={"type": "array", "items": {"type": "object"}, "description": "The results."},
    metadata={
        "type": "object",
        "description": "Times, and the proposals that wait for a decision.",
    },
    error={"type": "object", "description": "The error of a task that failed."},
)
_CARD = {"type": "object", "description": "The agent card."}
_KEYS = openapi_fields(
    "The public keys (JWKS).",
    keys={"type": "array", "items": {"type": "object"}, "description": "The keys."},
)
_JSON_RPC = openapi_fields(
    "A JSON-RPC 2.0 request.",
    jsonrpc="`2.0`.",
    id={"type": ["string", "integer", "null"], "description": "The id of the request."},
    method="The method, such as `SendMessage`.",
    params={"type": "object", "description": "The parameters of the method."},
)
_JSON_RPC_ANSWER = openapi_fields(
    "A JSON-RPC 2.0 answer; with an event stream, one for each event.",
    jsonrpc="`2.0`.",
    id={"type": ["string", "integer", "null"], "description": "The id of the request."},
    result={"description": "The result of the method."},
    error={"type": "object", "description": "The error, with its `code` and `message`."},
)
_MEANINGS = {
    "message": "The message to the agent.",
    "id": "The id of a task that goes on; without it, a new task begins.",
    "data": "Decisions on the task's proposals, and the platform context.",
}


def openapi_paths() -> dict[str, dict[str, Any]]:
    """The operations, by path and method; paths that are not served are left out."""
    send = openapi_operation(
        "Send a message to a task",
        "Answers when the turn has ended, or at once with `async=true`. A task with the status "
        "`input-required` has proposals: send the decisions in `data`.",
        answers=_TASK,
        takes=openapi_shape(SendBody, _MEANINGS, "validation"),
        example={"message": "Which pods are failing?"},
        parameters=[
            openapi_query("async", "`true`: answer at once, with a task that runs.", type="boolean")
        ],
        refusals={"404": "There is no such task for this caller.", "409": "The task runs."},
    )
    look = openapi_operation(
        "Show a task",
        "The task as it stands.",
        answers=_TASK,
        parameters=[_ID],
        refusals={"404": "There is no such task for this caller."},
    )
    cancel = openapi_operation(
        "Cancel a task",
        "Stops the turn; a call that has started still ends.",
        answers=_TASK,
        parameters=[_ID],
        refusals={"404": "There is no such task for this caller."},
    )
    rpc = openapi_operation(
        "Call the official protocol (A2A 1.0 and 0.3)",
        "JSON-RPC of the A2A protocol; the header `A2A-Version` says which version. Methods with "
        "a stream answer with server-sent events. The same methods are below `/a2a/rest/`, in "
        "the protocol's HTTP binding.",
        answers=_JSON_RPC_ANSWER,
        takes=_JSON_RPC,
        example={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {
                "message": {
                    "messageId": "m1",
                    "role": "ROLE_USER",
                    "parts": [{"text": "Which pods are failing?"}],
                }
            },
        },
    )
    return {
        "/.well-known/agent.json": {
            "get": openapi_operation(
                "Show the agent card", "Who the agent is and what it can do.", answers=_CARD
            )
        },
        "/.well-known/agent-card.json": {
            "get": openapi_operation(
                "Show the official agent card",
                "The card of the A2A protocol, in the version that `A2A-Version` names.",
                answers=_CARD,
            )
        },
        "/.well-known/jwks.json": {
            "get": openapi_operation(
                "Show the public keys",
                "The keys by which the signatures of cards and notifications are checked.",
                answers=_KEYS,
            )
        },
        "/a2a/tasks/send": {"post": send},
        "/a2a/tasks/{id}": {"get": look},
        "/a2a/tasks/{id}/cancel": {"post": cancel},
        "/a2a/rpc": {"post": rpc},
    }
