"""The files of the page, and the headers that keep all foreign content out of it."""

from importlib.resources import files

from starlette.responses import Response

SCRIPT = "text/javascript; charset=utf-8"
MODULES = (
    "agent",
    "app",
    "calls",
    "card",
    "conversation",
    "decided",
    "developer",
    "edit",
    "facts",
    "fate",
    "fold",
    "follow",
    "grants",
    "history",
    "inbox",
    "inline",
    "json",
    "markdown",
    "notice",
    "preview",
    "proposal",
    "reply",
    "service",
    "several",
    "still",
    "store",
    "talks",
    "text",
    "token",
    "turn",
    "view",
    "views",
    "words",
)
FILES = {
    "/console": ("index.html", "text/html; charset=utf-8"),
    "/console/style.css": ("style.css", "text/css; charset=utf-8"),
    **{f"/console/{name}.js": (f"{name}.js", SCRIPT) for name in MODULES},
}
"""Path, file and media type; they contain nobody's data."""

HEADERS = {
    "cache-control": "no-store",
    # Only these files run. No text is ever inserted as HTML, and no other page can frame Approve.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of every answer of the console."""


def static(name: str, kind: str) -> Response:
    """The ASGI application that answers with the file `name`."""
    content = files("sayso_console").joinpath("static", name).read_bytes()
    return Response(content, headers=HEADERS, media_type=kind)
