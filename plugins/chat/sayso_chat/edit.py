"""Inputs that an approver changes, as JSON."""

from __future__ import annotations

import difflib
import json

from sayso import pretty, visible
from sayso_chat.client import Json
from sayso_chat.talk import Proposal


def draft(proposal: Proposal, *, indent: int | None = None) -> str:
    """The part of the input that may be changed, as JSON to be edited."""
    names, given = proposal.editable, proposal.stated.get("input") or {}
    part = given if names is True else {name: given.get(name) for name in names or ()}
    text = json.dumps(part, ensure_ascii=False, indent=indent)
    # An editor would hide or obey what is written out otherwise.
    hides = visible(text, strict=True) != text
    return json.dumps(part, indent=indent) if hides else text


def edited(proposal: Proposal, text: str) -> Json:
    """The whole input with the part that an approver has changed; raises ValueError with a
    sentence."""
    try:
        part = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"that is no JSON: {error}") from None
    if not isinstance(part, dict):
        raise ValueError("an input is a JSON object, such as " + draft(proposal))
    if proposal.editable is True:
        return part
    given = proposal.stated.get("input") or {}
    if fixed := [name for name in part if name not in (proposal.editable or ())]:
        raise ValueError(f"{', '.join(map(repr, fixed))} may not be changed")
    # A parameter that was absent was shown as null, and stays absent unless it gets a value.
    return {**given, **{k: v for k, v in part.items() if k in given or v is not None}}


def changes(before: Json, after: Json) -> list[str]:
    """The lines in which two inputs differ, with some lines around them."""
    lines = difflib.unified_diff(
        pretty(before).split("\n"), pretty(after).split("\n"), n=1, lineterm=""
    )
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not allowed")
