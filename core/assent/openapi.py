"""The OpenAPI document of the chat endpoints, which are no path operations of FastAPI's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute, Route

from assent.http import ChatEndpoint
from assent.messages import AgentMessage, ChatRequest

_REFERENCE = "#/components/schemas/{model}"


def with_chat(document: dict[str, Any], routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """`document` with `/health` and each chat endpoint of `routes`."""
    schemas, definitions = models_json_schema(
        [(ChatRequest, "validation"), (AgentMessage, "serialization")], ref_template=_REFERENCE
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(definitions.get("$defs", {}))
    paths = document["paths"]
    paths["/health"] = {"get": _operation("Says that the service lives", _json({}))}
    for route in routes:
        if isinstance(route, Route) and isinstance(route.endpoint, ChatEndpoint):
            paths[route.path] = {"post": _chat(route.endpoint, schemas)}
    return document


def _chat(endpoint: ChatEndpoint, schemas: Any) -> dict[str, Any]:
    body = {"required": True, "content": _json(schemas[ChatRequest, "validation"])}
    reply = _json(schemas[AgentMessage, "serialization"])
    if endpoint.streams:
        reply = {"application/x-ndjson": {"schema": {"type": "object"}}}
    what = "One turn, as a stream of events" if endpoint.streams else "One turn, as one message"
    return {**_operation(f"{what} ({endpoint.protocol})", reply), "requestBody": body}


def _operation(summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK", "content": content}}}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
