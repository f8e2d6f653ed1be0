"""The OpenAPI document of the routes that are not FastAPI's path operations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from copy import deepcopy
from http import HTTPStatus
from typing import Any, get_args

from pydantic import TypeAdapter
from starlette.routing import BaseRoute, Route, compile_path

from sayso.errors import (
    AgentError,
    ApprovalsPending,
    Busy,
    InvalidRequest,
    LedgerUnavailable,
    MessagesMissing,
    ModelError,
    RequestError,
    StillRunning,
    Stopping,
    TooLarge,
    TurnError,
    TurnTimeout,
    Unauthenticated,
    UnsupportedMediaType,
)
from sayso.host import ServiceHost
from sayso.http.access import PUBLIC
from sayso.http.described import (
    CHAT,
    ERROR,
    OPERATIONS,
    REQUESTS,
    STREAM,
    BodySchema,
    described,
)
from sayso.http.endpoints import ChatEndpoint, standard_error
from sayso.wire.events import Event
from sayso.wire.failures import Failure
from sayso.wire.messages import AgentMessage, ChatRequest

_COMPONENT = "#/components/schemas/"
_CORE = {
    "/health": "Check that the service lives",
    "/ready": "Check whether new turns are taken",
    "/auth/ticket": "Get a ticket for one WebSocket",
}
_STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {"status": {"type": "string"}},
    "required": ["status"],
}
_TICKET = {
    "type": "object",
    "properties": {"ticket": {"type": "string"}, "expires_in": {"type": "integer"}},
    "required": ["ticket", "expires_in"],
}
described("Status", _STATUS)
described("Ticket", _TICKET)
_SCHEMAS = {"/health": _STATUS, "/ready": _STATUS, "/auth/ticket": _TICKET}
_NOT_READY = {
    **_STATUS,
    "properties": {
        **_STATUS["properties"],
        "detail": {"type": "string", "description": "The reason."},
    },
}


def with_raw_routes(
    document: dict[str, Any], host: ServiceHost, routes: Iterable[tuple[str, BaseRoute]]
) -> dict[str, Any]:
    """`document` with each plain route: the chat endpoints with their bodies, replies, and
    refusals. Static files are left out."""
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    # Routes of others may have models with the same names.
    is_taken = any(schemas.get(name, own) != own for name, own in _schemas("").items())
    prefix = "Sayso" if is_taken else ""
    schemas |= _schemas(prefix)
    schemas[f"{prefix}Error"] = described("Error", deepcopy(dict(ERROR)))
    failed = _json(_reference(f"{prefix}Error"))
    stated = host.plugins.openapi_paths(host)
    if text := host.agent.description:
        document["info"]["description"] = text
    if bearer := host.config.auth.scheme in ("bearer", "jwt"):
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    for path, route in routes:
        if type(route) is not Route or not route.methods or not route.include_in_schema:
            continue
        if path in host.plugins.public_paths:
            continue
        _, shown, parameters = compile_path(path)
        operations = document["paths"].setdefault(shown, {})
        for method in sorted(route.methods - {"HEAD"}):
            if isinstance(route.endpoint, ChatEndpoint):
                operation = _chat(route.endpoint, prefix)
            elif own := stated.get(shown, {}).get(method.lower()):
                operation = dict(own)
            else:
                schema = _SCHEMAS.get(path, {})
                operation = _operation(_CORE.get(path, f"{method} {shown}"), _json(schema))
                operation["description"] = OPERATIONS.get(path, _said(route))
            if path == "/ready":
                operation["responses"]["503"] = _response(503, _json(_NOT_READY))
            if parameters:
                more = operation.get("parameters", [])
                stated_ones = {one["name"] for one in more if one["in"] == "path"}
                missing = [name for name in parameters if name not in stated_ones]
                operation["parameters"] = [*map(_parameter, missing), *more]
            public = path in PUBLIC or path in host.plugins.signed_paths
            if bearer and public:
                operation["security"] = []
            operation.setdefault("operationId", _named(method, shown))
            _complete(operation["responses"], failed, guarded=host.guarded and not public)
            operations[method.lower()] = operation
    return document


def _named(method: str, path: str) -> str:
    """The id of an operation, as in `post_api_chat_stream`."""
    return "_".join([method.lower(), *re.findall(r"\w+", path)])


def _complete(responses: dict[str, Any], failed: dict[str, Any], *, guarded: bool) -> None:
    """Give the responses the refusals that every route has, and V2's body to those without one."""
    whys = {"401": "The credentials are missing or wrong."} if guarded else {}
    for status, why in {**whys, "default": "Any other refusal or failure."}.items():
        responses.setdefault(status, {"description": why})
    for status, one in responses.items():
        if status >= "400":
            one.setdefault("content", failed)


def _said(route: Route) -> str:
    """The first paragraph of the endpoint's docstring."""
    text = inspect.getdoc(route.endpoint) or inspect.getdoc(type(route.endpoint)) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _schemas(prefix: str) -> dict[str, Any]:
    """The models of the chat endpoints, by the names that `_chat` refers to."""
    events = get_args(Event)
    given = [
        (ChatRequest, "validation", TypeAdapter(ChatRequest)),
        (AgentMessage, "serialization", TypeAdapter(AgentMessage)),
        *((each, "serialization", TypeAdapter(each)) for each in events),
    ]
    template = f"{_COMPONENT}{prefix}{{model}}"
    _, made = TypeAdapter.json_schemas(
        given,  # type: ignore[arg-type]
        ref_template=template,
        schema_generator=BodySchema,
    )
    schemas: dict[str, Any] = made["$defs"]
    for each in events:
        schema = schemas[each.__name__]
        # It is the same for all instances, and therefore no field of the dataclass.
        schema["properties"] = {"type": {"const": each.type}, **schema["properties"]}
        schema["required"] = ["type", *schema.get("required", [])]
    schemas["Event"] = {"oneOf": [_reference(prefix + each.__name__) for each in events]}
    schemas["Event"]["description"] = "One line of a stream, by its `type`."
    return {prefix + name: described(name, schema) for name, schema in schemas.items()}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"{_COMPONENT}{name}"}


def _parameter(name: str) -> dict[str, Any]:
    about = {"description": f"The {name} that the path names.", "schema": {"type": "string"}}
    return {"name": name, "in": "path", "required": True, **about}


def _chat(endpoint: ChatEndpoint, prefix: str) -> dict[str, Any]:
    content = _json(_reference(f"{prefix}ChatRequest"))
    content["application/json"]["examples"] = REQUESTS
    body = {"required": True, "content": content}
    reply = _json(_reference(f"{prefix}AgentMessage"))
    if endpoint.streams:
        reply = {"application/x-ndjson": {"schema": _reference(f"{prefix}Event")}}
    what = "One turn, as a stream of events" if endpoint.streams else "One turn, as one message"
    operation = {**_operation(f"{what} ({endpoint.protocol})", reply), "requestBody": body}
    operation["description"] = STREAM if endpoint.streams else CHAT
    operation["responses"] |= _refusals(endpoint)
    return {**operation, "deprecated": True} if endpoint.deprecated else operation


def _refusals(endpoint: ChatEndpoint) -> dict[str, Any]:
    """The replies to refused and failed requests, by status, with an example for each cause.

    A stream has begun with 200 when a turn fails; the failure is then its last event.
    """
    causes: list[RequestError | TurnError] = [
        MessagesMissing(),
        InvalidRequest.at(["body", "messages", 0, "role"], "missing", "Field required"),
        TooLarge("request body", endpoint.host.config.limits.body),
        UnsupportedMediaType(),
    ]
    if not endpoint.streams:
        causes += [ApprovalsPending(["call_1"]), Busy(), StillRunning(), Stopping()]
        causes += [AgentError(), TurnTimeout(endpoint.host.config.limits.turn_time)]
        causes += [LedgerUnavailable(), ModelError("server", "the model failed")]
        causes.append(ModelError("overloaded", "the model is overloaded"))
    examples = [(each, *endpoint.shown(each, _failure(each))) for each in causes]
    if endpoint.host.guarded:
        # Answered before the request reaches its protocol.
        nobody = Unauthenticated()
        examples.append((nobody, *standard_error(nobody, _failure(nobody))))
    shape = deepcopy(dict(ERROR))
    if endpoint.streams:
        # A client reads a refusal like the last event of a stream.
        shape["properties"] |= {"type": {"const": "error"}, "error": {"type": "string"}}
    responses: dict[str, Any] = {}
    for error, status, body in examples:
        made = _response(status, _json(described("Error", deepcopy(shape))))
        content = responses.setdefault(str(status), made)["content"]["application/json"]
        content.setdefault("examples", {})[type(error).__name__] = {"value": body}
    return responses


def _failure(error: RequestError | TurnError) -> Failure:
    incident = None if isinstance(error, RequestError) else "1f2e3d4c5b6a"
    return Failure(error.status, error.code, str(error), incident)


def _operation(summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": _response(200, content)}}


def _response(status: int, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase, "content": content}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
