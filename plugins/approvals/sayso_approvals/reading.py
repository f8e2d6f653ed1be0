"""The bodies of requests."""

from typing import Any

from pydantic import BaseModel
from starlette.requests import Request

from sayso import BodyReader, Host, read_body


async def body_of(host: Host, request: Request, reader: BodyReader[Any]) -> Any:
    """The body of the request; raises RequestError if it is too large or wrong."""
    limits = host.config.limits
    raw = await read_body(request.scope, request.receive, limits.body)
    made: BaseModel = reader.read(raw, limits.nesting, limits.values)
    return made
