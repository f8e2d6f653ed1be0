"""The steps of a turn pass values along: they change no request and no decisions in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayso.decisions.settling import NOTHING_DECIDED, Settled
from sayso.turns.request import Request

CORE = Path(__file__).resolve().parent.parent / "core" / "sayso"
STEPS = [*sorted((CORE / "turns").glob("*.py")), CORE / "decisions" / "settling.py"]
VALUES = {"request", "settled", "decided", "answer", "found", "before"}
"""The names that the steps give to the values that they get."""
IN_PLACE = {"append", "extend", "update", "add", "pop", "clear", "setdefault", "insert", "remove"}


def base(node: ast.expr) -> str:
    """The name that an expression such as `settled.decided.rows[id_]` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def changes(source: str) -> Iterator[str]:
    """The places in which code assigns or deletes a part of a value, or calls a method that changes
    it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                changed = targets
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                changed = [target]
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as value, attr=name)):
                changed = [value] if name in IN_PLACE else []
            case _:
                continue
        for target in changed:
            if isinstance(target, ast.Attribute | ast.Subscript) and base(target) in VALUES:
                yield ast.unparse(target)


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.name)
def test_a_step_changes_no_value_that_it_is_given(path: Path) -> None:
    # User code may change the session and its context, so these two are exempt.
    context = {f"request.context.{name}" for name in ("decisions", "has_decision", "session")}
    assert {*changes(path.read_text("utf-8"))} - context - {"request.session"} == set()


@pytest.mark.parametrize(
    "source",
    [
        "settled.ran += (id_,)",
        "decided.rows[row.id] = row",
        "settled.decided.rows.update(rows)",
        "found.grants.append(grant)",
        "del decided.rows[id_]",
    ],
)
def test_a_change_of_a_value_is_found(source: str) -> None:
    assert [*changes(source)]


def test_neither_a_request_nor_what_was_settled_lets_itself_be_changed() -> None:
    assert issubclass(Request, tuple)
    with pytest.raises(AttributeError):
        NOTHING_DECIDED.ran = ["x"]  # type: ignore[misc]
    assert NOTHING_DECIDED == Settled()
