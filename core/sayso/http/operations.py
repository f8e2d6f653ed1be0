"""The parts of an OpenAPI document from which a plugin describes its routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import TypeAdapter

from sayso.http.described import BodySchema, described

Schema = dict[str, Any]
Operation = dict[str, Any]


def openapi_operation(
    summary: str,
    description: str,
    *,
    answers: Schema | None = None,
    takes: Schema | None = None,
    example: Any = None,
    parameters: Sequence[Schema] = (),
    refusals: Mapping[str, str] | None = None,
    error: Schema | None = None,
    media: str = "application/json",
    errors_in: str = "application/json",
) -> Operation:
    """An operation of the OpenAPI document: for a plugin's `openapi_paths`.

    `answers` is the schema of the answer, in `media`, or None if the answer is empty; `takes` that
    of the body, with an `example`. `refusals` are the statuses of errors with their reasons, and
    `error` is the schema of their bodies, in `errors_in`, unless they are V2's.
    """
    good: Operation = {"description": "No content."}
    if answers is not None:
        good = {"description": "OK.", "content": {media: {"schema": answers}}}
    responses: Operation = {"204" if answers is None else "200": good}
    for status, why in {**(refusals or {}), **({"default": _ELSE} if error else {})}.items():
        responses[status] = {"description": why}
        if error is not None:
            responses[status]["content"] = {errors_in: {"schema": error}}
    made: Operation = {"summary": summary, "description": description}
    made["parameters"] = [*parameters]
    if takes is not None:
        content: Schema = {"schema": takes}
        if example is not None:
            content["example"] = example
        made["requestBody"] = {"required": True, "content": {"application/json": content}}
    return {**made, "responses": responses}


_ELSE = "Any other refusal or failure."


def openapi_fields(description: str, /, **fields: str | Schema) -> Schema:
    """The schema of an object: each field with its meaning, if it is a text, or with its schema."""
    shapes = {
        name: {"type": "string", "description": said} if isinstance(said, str) else said
        for name, said in fields.items()
    }
    return {"type": "object", "description": description, "properties": shapes}


def openapi_query(name: str, description: str, /, **schema: Any) -> Schema:
    """An optional parameter of the query; a text, unless `schema` says otherwise."""
    shape = schema or {"type": "string"}
    about = {"name": name, "in": "query", "required": False, "description": description}
    return {**about, "schema": shape}


def openapi_shape(
    kind: Any,
    meanings: Mapping[str, str],
    mode: Literal["validation", "serialization"] = "serialization",
) -> Schema:
    """The schema of a type. `meanings` describes its fields, by `Type.field` or by `field` alone;
    the fields of the contract are known.

    A reference would point into another document, so the schema that it names replaces it.
    """
    schema = TypeAdapter(kind).json_schema(mode=mode, schema_generator=BodySchema)
    known = schema.pop("$defs", {})
    for each in (schema, *known.values()):
        described(each.get("title", ""), each, meanings)
    whole: Schema = _whole(schema, known)
    return whole


def _whole(part: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_whole(one, known) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        named = _whole(known[part["$ref"].rpartition("/")[2]], known)
        return {**named, **{key: one for key, one in part.items() if key != "$ref"}}
    return {name: _whole(one, known) for name, one in part.items()}
