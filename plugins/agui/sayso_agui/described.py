"""The paths of AG-UI in the OpenAPI document."""

from typing import Any

from sayso import openapi_fields, openapi_operation, openapi_shape
from sayso_agui.run_input import RunInput

_MEANINGS = {
    "arguments": "The arguments, as JSON in a text.",
    "content": "A text, or a list of parts.",
    "context": "What the page tells the agent about itself.",
    "description": "The meaning of the value.",
    "forwardedProps": "Values of the page; hooks may read them.",
    "function": "The tool, and its arguments.",
    "id": "The id of the call.",
    "interruptId": "The id of the interrupt, which is the id of a call.",
    "messages": "The conversation so far.",
    "name": "The name of the tool.",
    "payload": 'The answer: `{"approved": true}` or `{"approved": false, "reason": "..."}`.',
    "protocolVersion": "The version of AG-UI that the client speaks.",
    "resume": "The answers to interrupts: decisions on calls.",
    "role": "The author of the message.",
    "runId": "The id of this run.",
    "state": "The session; send back what the last run gave.",
    "status": "Whether the interrupt was answered.",
    "threadId": "The id of the conversation.",
    "toolCallId": "The id of the call that the message belongs to.",
    "toolCalls": "The calls that the message made.",
    "value": "The value.",
}


def openapi_paths(path: str) -> dict[str, dict[str, Any]]:
    """The operations, by path and method."""
    run = _run(
        "Run the agent (AG-UI)",
        "Answers with the events of AG-UI, as server-sent events. A call that needs a person ends "
        "the run with an interrupt; the next run decides it by `resume`.",
    )
    connect = _run(
        "Connect a reloaded page (AG-UI)",
        "Starts nothing: answers with the interrupts of those calls in `messages` that are still "
        "pending, as a run without text.",
    )
    abilities = openapi_operation(
        "Say what the agent can do (AG-UI)",
        "The capabilities of AG-UI.",
        answers=openapi_fields(
            "The capabilities.",
            identity={"type": "object", "description": "The name and purpose of the agent."},
            transport={"type": "object", "description": "How runs are answered."},
            state={"type": "object", "description": "How the session is sent."},
            humanInTheLoop={"type": "object", "description": "How a person decides calls."},
            protocolVersion="The version of AG-UI.",
        ),
    )
    return {
        path: {"post": run},
        f"{path}/connect": {"post": connect},
        f"{path}/capabilities": {"get": abilities},
    }


def _run(summary: str, meaning: str) -> dict[str, Any]:
    return openapi_operation(
        summary,
        meaning,
        answers={"description": "Server-sent events."},
        media="text/event-stream",
        takes=openapi_shape(RunInput, _MEANINGS, "validation"),
        example={
            "threadId": "t1",
            "runId": "r1",
            "messages": [{"id": "m1", "role": "user", "content": "Which pods are failing?"}],
            "tools": [],
            "context": [],
            "state": {},
        },
        refusals={"422": "A field is missing or has a wrong form."},
    )
