"""JSON answers that no cache may store."""

from collections.abc import Mapping

from pydantic_core import to_json
from starlette.responses import Response

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def reply(body: object, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """The answer with this body in JSON."""
    return Response(to_json(body), status, {**HEADERS, **(headers or {})}, "application/json")
