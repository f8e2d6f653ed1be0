"""The paths that Slack posts to in the OpenAPI document."""

from typing import Any

from sayso import openapi_fields, openapi_operation

_REFUSALS = {
    "401": "The signature or the body is not valid.",
    "413": "The body is too large.",
    "503": "As many payloads as may be are being handled; Slack sends it again.",
}
_SIGNED = "Slack signs each request; no other credentials are needed."


def openapi_paths(events: str, interactions: str) -> dict[str, dict[str, Any]]:
    """The operations, by path and method."""
    event = openapi_operation(
        "Take an event of Slack",
        f"A message or a mention. {_SIGNED}",
        answers=openapi_fields("Empty, or the check of the address.", challenge="As it came."),
        takes=openapi_fields(
            "A payload of Slack's Events API.",
            type="`event_callback` or `url_verification`.",
            event={"type": "object", "description": "The event."},
            challenge="A text that is sent back when Slack checks the address.",
        ),
        example={"type": "url_verification", "challenge": "3eZbrw1a"},
        refusals=_REFUSALS,
        error={"type": "string", "description": "The reason, if there is one."},
        errors_in="text/plain",
    )
    press = openapi_operation(
        "Take a press of a button in Slack",
        f"A decision on a card, or a submitted modal. {_SIGNED}",
        answers={"type": "object", "description": "Empty."},
        refusals=_REFUSALS,
        error={"type": "string", "description": "The reason, if there is one."},
        errors_in="text/plain",
    )
    form = openapi_fields("A form.", payload="The payload, as JSON in a text.")
    content = {"application/x-www-form-urlencoded": {"schema": form}}
    press["requestBody"] = {"required": True, "content": content}
    return {events: {"post": event}, interactions: {"post": press}}
