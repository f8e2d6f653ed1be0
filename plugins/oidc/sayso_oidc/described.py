"""The paths of signing in and out in the OpenAPI document."""

from typing import Any

from sayso import openapi_fields, openapi_operation, openapi_query

_FAILED = {"type": "string", "description": "A page that says why, and leads to another try."}


def openapi_paths(login: str, callback: str, provider: str, logout: str) -> dict[str, Any]:
    """The operations, by path and method."""
    begin = openapi_operation(
        "Sign in",
        "Sends the browser to the identity provider.",
        parameters=[openapi_query("to", "The path of this service to return to.")],
        refusals={"502": "The provider cannot be reached."},
        error=_FAILED,
        errors_in="text/html",
    )
    answer = openapi_operation(
        "Take the identity provider's answer",
        "Begins the session, in a cookie, and sends the browser back to where it was.",
        parameters=[
            openapi_query("code", "The provider's code."),
            openapi_query("state", "The attempt to sign in."),
        ],
        refusals={"400": "The answer does not belong to an attempt of this browser."},
        error=_FAILED,
        errors_in="text/html",
    )
    for one in (begin, answer):
        one["responses"]["303"] = {"description": "The browser goes on there."}
        del one["responses"]["204"]
    return {
        login: {"get": begin},
        callback: {"get": answer},
        provider: {
            "get": openapi_operation(
                "Name the identity provider",
                "The words of the page's form.",
                answers=openapi_fields(
                    "The provider.",
                    name="Its name.",
                    tokens={
                        "type": "boolean",
                        "description": "Whether tokens are accepted, too.",
                    },
                ),
            )
        },
        logout: {
            "post": openapi_operation(
                "Sign out",
                "Ends the session at once in every process.",
                answers=openapi_fields(
                    "The way out.",
                    to="The address that the browser opens next: the provider's sign-out, if there "
                    "is one.",
                ),
                refusals={"403": "The request comes from a page of another origin."},
            )
        },
    }
