"""Bodies that are refused before the SDK reads them, because it would fail on them."""

from __future__ import annotations

from math import isfinite
from typing import Any
from urllib.parse import parse_qs

from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.server.jsonrpc_models import JSONParseError, JSONRPCError
from a2a.types import Message, TaskState
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    InvalidRequestError,
    VersionNotSupportedError,
)
from pydantic import ValidationError
from pydantic_core import from_json

from sayso_a2a.official.files import problem_of_parts

Problem = A2AError | JSONRPCError
MOST_VALUES = 20_000
"""Most values in a body. The SDK makes an object of each and walks all of them in Python several
times: twenty thousand take it half a second, during which nobody else is answered."""

_LENGTH = "historyLength"
_NO_LENGTH = f"{_LENGTH}: a number of messages, below 2147483648"


def problem_of_call(body: bytes, version: str, nesting: int) -> tuple[Any, Problem | None]:
    """The id of a JSON-RPC call, and the reason why the SDK cannot take it; None if it can."""
    try:
        call = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        return None, JSONParseError(message=f"invalid JSON: {error}")
    if not isinstance(call, dict):
        return None, InvalidRequestError(message="a call is a JSON object")
    id = call.get("id")
    if isinstance(id, bool) or not isinstance(id, (str, int)):
        id = None
    if problem := problem_of_content(call, nesting):
        return id, InvalidParamsError(message=problem)
    method, params = call.get("method"), call.get("params")
    if isinstance(params, dict) and (problem := problem_of_parts(params.get("message"))):
        return id, InvalidParamsError(message=problem)
    if isinstance(method, str) and "/" in method and version and not version.startswith("0."):
        message = f"{method!r} is no method of A2A {version[:20]!r}"
        return id, VersionNotSupportedError(message=message)
    if isinstance(method, str) and (wrong := _problem_of_old_call(method, call)):
        return id, wrong
    if method == "ListTasks" and isinstance(params, dict) and not known_state(params.get("status")):
        return id, InvalidParamsError(message="there is no such task state")
    return id, None


def _problem_of_old_call(method: str, call: dict[str, Any]) -> Problem | None:
    """Why a 0.3 call is wrong; None if it is right.

    The SDK would call wrong params an invalid call, repeat the caller's values in its reason, and
    fail on a number that protobuf has no room for.
    """
    if (model := JSONRPC03Adapter.METHOD_TO_MODEL.get(method)) is None:
        return None
    try:
        params = getattr(model.model_validate(call), "params", None)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        outside = [each for each in found if each["loc"][0] != "params"]
        first = (outside or found)[0]
        message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return InvalidRequestError(message=message) if outside else InvalidParamsError(message)
    parts = (params, getattr(params, "configuration", None))
    lengths = [getattr(part, "history_length", None) for part in parts]
    return None if all(map(_is_length, lengths)) else InvalidParamsError(message=_NO_LENGTH)


def _is_length(value: int | str | None) -> bool:
    """Whether it can be the length of a history; None asks for no length."""
    try:
        return value is None or -(2**31) <= int(value) < 2**31
    except ValueError:
        return False


def problem_of_rest(body: bytes, query: bytes, nesting: int) -> Problem | None:
    """Why the SDK cannot take an HTTP+JSON request; None if it can."""
    asked = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    if not all(known_state(state) for state in asked.get("status", ())):
        return InvalidParamsError(message="there is no such task state")
    if not all(map(_is_length, asked.get(_LENGTH, ()))):
        return InvalidParamsError(message=_NO_LENGTH)
    if not body:
        return None
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        return InvalidRequestError(message=f"invalid JSON: {error}")
    if not isinstance(content, dict):
        return InvalidRequestError(message="the body is a JSON object")
    problem = problem_of_content(content, nesting) or problem_of_parts(content.get("message"))
    return InvalidParamsError(message=problem) if problem else None


def problem_of_content(content: object, nesting: int) -> str:
    """Why JSON cannot be converted to protobuf, or not fast enough; empty if it can."""
    level = [content]
    values = 0
    for _ in range(nesting + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, float) and not isfinite(value):
                return "a number is too large"
        if not inner:
            return ""
        values += len(inner)
        if values > MOST_VALUES:
            return f"there are more than {MOST_VALUES} values"
        level = inner
    return f"JSON is nested deeper than {nesting} levels"


def known_state(value: object) -> bool:
    """Whether a filter names a known state, or none. The SDK would ignore an unknown one."""
    if isinstance(value, int):
        return value in TaskState.values()
    return value in (None, "", *TaskState.keys())


def problem_of_message(message: Message) -> str:
    """The reason why the data parts of a message that came over gRPC are not read; empty if they
    are. The same bounds as `problem_of_content` has."""
    level = [part.data for part in message.parts if part.HasField("data")]
    values = 0
    while level:
        values += len(level)
        if values > MOST_VALUES:
            return f"there are more than {MOST_VALUES} values"
        if any(not isfinite(value.number_value) for value in level):
            return "a number is not finite"
        level = [
            inner
            for value in level
            for inner in (*value.struct_value.fields.values(), *value.list_value.values)
        ]
    return ""
