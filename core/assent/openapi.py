"""The OpenAPI document of the routes that are no path operations of FastAPI's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute, Route, compile_path

from assent.http import ChatEndpoint
from assent.messages import AgentMessage, ChatRequest

_REFERENCE = "#/components/schemas/{model}"


_CORE = {"/health": "Says that the service lives", "/ready": "Says whether new turns are taken"}


def with_raw_routes(
    document: dict[str, Any], routes: Iterable[tuple[str, BaseRoute]]
) -> dict[str, Any]:
    """`document` with each plain route, the chat endpoints with their bodies and replies."""
    schemas, definitions = models_json_schema(
        [(ChatRequest, "validation"), (AgentMessage, "serialization")], ref_template=_REFERENCE
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.update(definitions.get("$defs", {}))
    for path, route in routes:
        if type(route) is not Route or not route.methods or not route.include_in_schema:
            continue
        _, shown, parameters = compile_path(path)
        operations = document["paths"].setdefault(shown, {})
        for method in sorted(route.methods - {"HEAD"}):
            if isinstance(route.endpoint, ChatEndpoint):
                operation = _chat(route.endpoint, schemas)
            else:
                operation = _operation(_CORE.get(path, f"{method} {shown}"), _json({}))
            if parameters:
                operation["parameters"] = [_parameter(name) for name in parameters]
            operations[method.lower()] = operation
    return document


def _parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _chat(endpoint: ChatEndpoint, schemas: Any) -> dict[str, Any]:
    body = {"required": True, "content": _json(schemas[ChatRequest, "validation"])}
    reply = _json(schemas[AgentMessage, "serialization"])
    if endpoint.streams:
        reply = {"application/x-ndjson": {"schema": {"type": "object"}}}
    what = "One turn, as a stream of events" if endpoint.streams else "One turn, as one message"
    operation = {**_operation(f"{what} ({endpoint.protocol})", reply), "requestBody": body}
    return {**operation, "deprecated": True} if endpoint.deprecated else operation


def _operation(summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK", "content": content}}}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
