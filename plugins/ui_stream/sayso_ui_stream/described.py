"""The paths of the UI message stream in the OpenAPI document."""

from typing import Any

from sayso import openapi_operation, openapi_shape
from sayso_ui_stream.messages import Body

_CHAT = {
    "name": "chat",
    "in": "path",
    "required": True,
    "description": "The id of the chat, as `useChat` has it.",
    "schema": {"type": "string"},
}
_STREAM = {"description": "Server-sent events of the UI message stream."}
_MEANINGS = {
    "Body.id": "The id of the chat.",
    "UIMessage.id": "The id of the message.",
    "messages": "The messages of the chat, with their parts.",
    "metadata": "The metadata of the message; the reply's has the session.",
    "parts": "Texts and calls; parts of calls that wait for a decision have the page's answer in "
    "`approval`.",
}


def openapi_paths(path: str) -> dict[str, dict[str, Any]]:
    """The operations, by path and method; paths that are not served are not asked for."""
    post = openapi_operation(
        "Send the messages of a page (AI SDK)",
        "One turn, as the UI message stream of the AI SDK. A call that needs a person is sent as "
        "`tool-approval-request`; the page answers it in the parts of its next request.",
        answers=_STREAM,
        media="text/event-stream",
        takes=openapi_shape(Body, _MEANINGS, mode="validation"),
        example={
            "id": "c1",
            "messages": [
                {
                    "id": "m1",
                    "role": "user",
                    "parts": [{"type": "text", "text": "Which pods are failing?"}],
                }
            ],
        },
        refusals={"422": "A field is missing or has a wrong form."},
        error={"type": "string", "description": "The error, for the person."},
        errors_in="text/plain",
    )
    again = openapi_operation(
        "Read a running turn again (AI SDK)",
        "The stream of the chat's turn from its beginning; 204 if none runs.",
        answers=_STREAM,
        media="text/event-stream",
        parameters=[_CHAT],
    )
    again["responses"]["204"] = {"description": "No turn of this chat runs."}
    stop = openapi_operation(
        "Stop a turn (AI SDK)",
        "Ends the chat's turn; a call that has started still ends.",
        parameters=[_CHAT],
    )
    return {
        path: {"post": post},
        f"{path}/{{chat}}/stream": {"get": again},
        f"{path}/{{chat}}/stop": {"post": stop},
    }
