"""The paths below /v1 in the OpenAPI document."""

from typing import Any

from sayso import Host, openapi_fields, openapi_operation, openapi_query, openapi_shape
from sayso_openai_api.bodies import ChatBody, ResponseBody

_MEANINGS = {
    "background": "Whether the turn goes on without the client.",
    "content": "A text, or a list of parts.",
    "conversation": "Not supported; continue with `previous_response_id`.",
    "include_usage": "Whether the last piece of the stream has the usage.",
    "input": "A text, or a list of items: messages and answers to approval requests.",
    "instructions": "Context for the agent, for this turn.",
    "messages": "The conversation, the user's message last.",
    "metadata": "Free values; they are sent back.",
    "model": "The name of the agent.",
    "n": "The number of answers: one.",
    "previous_response_id": "The response that this one continues.",
    "role": "`system`, `developer`, `user`, `assistant` or `tool`.",
    "store": "Whether the response can be read again.",
    "stream": "Whether the answer is a stream of server-sent events.",
    "stream_options": "Options of the stream.",
}
_ERROR = openapi_fields(
    "An error in the form of these clients.",
    error=openapi_fields(
        "The error.",
        message="The text, with the incident's id if there is one.",
        type="The kind, such as `invalid_request_error`.",
        param={"type": ["string", "null"], "description": "The field that is wrong."},
        code={"type": ["string", "null"], "description": "The code of the error."},
    ),
)
_MODEL = openapi_fields(
    "The agent as a model.",
    id="The name of the agent.",
    object="`model`.",
    created={"type": "integer", "description": "When the service began, in seconds since 1970."},
    owned_by="`sayso`.",
)
_RESPONSE = openapi_fields(
    "A response of OpenAI's Responses interface.",
    id="The id of the response.",
    object="`response`.",
    status="`in_progress`, `completed`, `incomplete`, `failed` or `cancelled`.",
    output={
        "type": "array",
        "items": {"type": "object"},
        "description": "Messages, and an `mcp_approval_request` for each call that waits.",
    },
    error={"type": ["object", "null"], "description": "The error, if the turn failed."},
    usage={"type": ["object", "null"], "description": "The tokens."},
)
_EVENTS = {"description": "With `stream`: the pieces, as server-sent events."}
_REFUSALS = {
    "400": "The body is refused: `param` names the field.",
    "404": "There is no such model or response for this caller.",
    "429": "There are too many requests, or a budget is used up; see `Retry-After`.",
}


def openapi_paths(host: Host) -> dict[str, dict[str, Any]]:
    """The operations, by path and method."""
    name = host.agent.name
    shared: dict[str, Any] = {"refusals": _REFUSALS, "error": _ERROR}
    chat = openapi_operation(
        "Chat Completions (OpenAI)",
        "One turn. A call that needs a person is a text that names the page where a person "
        "decides; with `stream`, the answer waits there for the decision. It is never a "
        "`tool_calls` entry, which a client would run itself.",
        answers=openapi_fields(
            "A completion.",
            id="The id of the completion.",
            object="`chat.completion`.",
            model="The name of the agent.",
            choices={"type": "array", "items": {}, "description": "The answer, as one choice."},
            usage={"type": "object", "description": "The tokens."},
        ),
        takes=openapi_shape(ChatBody, _MEANINGS, "validation"),
        example={"model": name, "messages": [{"role": "user", "content": "Which pods fail?"}]},
        **shared,
    )
    read = openapi_operation(
        "Read a response again (OpenAI)",
        "The response as it stands.",
        answers=_RESPONSE,
        parameters=[
            openapi_query("stream", "`true` for its events.", enum=["true", "false"]),
            openapi_query("starting_after", "The number of the last event that you have."),
        ],
        **shared,
    )
    create = openapi_operation(
        "Create a response (OpenAI)",
        "One turn. A call that needs a person is an `mcp_approval_request`; decide it by an "
        "`mcp_approval_response` in the input of the next response.",
        answers=_RESPONSE,
        takes=openapi_shape(ResponseBody, _MEANINGS, "validation"),
        example={"model": name, "input": "Which pods fail?"},
        **shared,
    )
    for operation in (chat, create, read):
        operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": _EVENTS}
    return {
        "/v1/models": {
            "get": openapi_operation(
                "List the models (OpenAI)",
                "The agent is the only model.",
                answers=openapi_fields(
                    "The list.",
                    object="`list`.",
                    data={"type": "array", "items": _MODEL, "description": "The models."},
                ),
                **shared,
            )
        },
        "/v1/models/{model}": {
            "get": openapi_operation(
                "Show a model (OpenAI)", "The agent as a model.", answers=_MODEL, **shared
            )
        },
        "/v1/chat/completions": {"post": chat},
        "/v1/responses": {"post": create},
        "/v1/responses/{id}": {
            "get": read,
            "delete": openapi_operation(
                "Forget a response (OpenAI)",
                "The response can no longer be read, nor continued.",
                answers=openapi_fields(
                    "The proof.",
                    id="The id of the response.",
                    object="`response`.",
                    deleted={"type": "boolean", "description": "True."},
                ),
                **shared,
            ),
        },
        "/v1/responses/{id}/cancel": {
            "post": openapi_operation(
                "Stop a response (OpenAI)",
                "Ends a response that runs in the background; a call that has started still ends.",
                answers=_RESPONSE,
                **shared,
            )
        },
        "/v1/responses/{id}/input_items": {
            "get": openapi_operation(
                "List the input of a response (OpenAI)",
                "The items that the response answers.",
                answers=openapi_fields(
                    "The list.",
                    object="`list`.",
                    data={"type": "array", "items": {}, "description": "The items."},
                    has_more={"type": "boolean", "description": "False."},
                    first_id="The id of the first item.",
                    last_id="The id of the last item.",
                ),
                **shared,
            )
        },
    }
