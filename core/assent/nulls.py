"""Null for an optional field says nothing: clients that write their whole model send it.

Only what has failed to validate is looked at for it, so that no other request pays.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json


def read_past_nulls(
    adapter: TypeAdapter[Any], body: bytes | str, error: ValidationError
) -> tuple[Any, list[ErrorDetails]]:
    """What `body` is when the nulls that `error` names count as absent, or None and what is wrong.

    Where a field may not be absent, null stays what is wrong with it; and no decision is guessed:
    a boolean is true or false.
    """
    wrong = error.errors(include_url=False, include_context=False)
    nulls = {
        item["loc"]: item
        for item in wrong
        if item["loc"] and item["input"] is None and item["type"] != "bool_type"
    }
    if not nulls:
        return None, wrong
    content = from_json(body)
    for *way, name in nulls:
        holder = content
        for part in way:
            holder = holder[part]
        if isinstance(holder, dict):
            del holder[name]
    try:
        return adapter.validate_python(content), []
    except ValidationError as left:
        still = left.errors(include_url=False, include_context=False)
        return None, [nulls.get(item["loc"], item) for item in still]
