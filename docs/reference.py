"""Writes docs/api.md from the docstrings of the public names: `python docs/reference.py`."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import sayso
import sayso.testing

FILE = Path(__file__).with_name("api.md")
_SOURCE = re.compile(r" ?\((?:interface\.md|design)[^)]*\)")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WIDTH = 96
_FOREIGN = ("logging", "pydantic", "uvicorn")
"""The packages whose own methods, overridden in a public class, are not for readers."""

HEAD = """\
# Python reference

Every public name, with its docstring. `import sayso` imports nothing heavy: a name is loaded
when it is first used. Names that are not on this page may change at any time. This page is
written by `python docs/generate.py`.
"""

GROUPS = (
    ("Agents and tools", ("agent", "tools", "commands", "context", "principals")),
    ("Serving", ("server", "app", "config", "service", "threaded")),
    ("Models", ("models",)),
    ("Messages and events", ("wire",)),
    ("Errors", ("errors",)),
    ("Plugins", ("plugins", "hookspecs", "hosting", "http", "host", "listener", "observing")),
    ("Approvals and the ledger", ("ledger", "decisions", "gate")),
    ("Everything else", ("",)),
)


def page() -> str:
    """The whole page."""
    left = dict(sayso._HOME)
    parts = [HEAD]
    for title, prefixes in GROUPS:
        names = [
            n for n, home in left.items() if home.partition(".")[0] in prefixes or "" in prefixes
        ]
        parts += [f"## {title}\n", *(_entry(name, getattr(sayso, name)) for name in sorted(names))]
        left = {name: home for name, home in left.items() if name not in names}
    testing = sayso.testing
    parts.append("## sayso.testing\n")
    parts += [_entry(name, getattr(testing, name)) for name in sorted(testing.__all__)]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    if get_origin(value) is Annotated:
        return f"### {name}\n\n{_below(name)}\n"
    if not callable(value):
        return f"### {name}\n\n{_constant(value)}\n"
    said = _prose(value)
    shown = f"class {name}" if inspect.isclass(value) else name
    parts = [f"### {name}\n", f"```text\n{shown}{_signature(value)}\n```\n", f"{said}\n"]
    if inspect.isclass(value) and (members := [*_members(value)]):
        parts.append("".join(members))
    return "\n".join(parts)


def _below(name: str) -> str:
    """The text below the assignment of a public name in its module."""
    module = importlib.import_module(f"sayso.{sayso._HOME[name]}")
    for before, after in pairwise(ast.parse(inspect.getsource(module)).body):
        match before, after:
            case (
                ast.Assign(targets=[ast.Name(id=found)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ) if found == name:
                return inspect.cleandoc(text)
    return ""


def _members(kind: type) -> Iterator[str]:
    """A line for each method and property that the class itself has."""
    fields = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name, member in vars(kind).items():
        if name.startswith("_") or name in fields or name == "model_config":
            continue
        others = [base for base in kind.__mro__ if base.__module__.startswith(_FOREIGN)]
        if any(name in vars(base) for base in others) or (others and name.startswith("on_")):
            continue
        inner = getattr(member, "__func__", getattr(member, "fget", member))
        if not inspect.isfunction(inner) or not inner.__doc__:
            continue
        is_property = isinstance(member, property)
        signature = (
            "" if is_property else _signature(inner, bound=not isinstance(member, staticmethod))
        )
        said = " ".join(inspect.cleandoc(inner.__doc__).partition("\n\n")[0].split())
        flat = re.sub(r",? (?=\))|(?<=\() ", "", " ".join(signature.split()))
        yield f"- `{name}{flat}`: {_SOURCE.sub('', said)}\n"


def _signature(value: Any, *, bound: bool = False) -> str:
    if getattr(value, "_is_protocol", False):
        return "(Protocol)"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    stated = [*signature.parameters.values()][1 if bound else 0 :]
    given = [
        one.replace(default=_default(one.default), annotation=_annotation(one.annotation))
        for one in stated
    ]
    returned = inspect.Signature.empty
    if not inspect.isclass(value):
        returned = _annotation(signature.return_annotation)
    signature = signature.replace(return_annotation=returned)
    shown = _bare(str(signature.replace(parameters=given)))
    if len(shown) <= _WIDTH:
        return shown
    inside = [_bare(str(one)) for one in given]
    ends = shown[shown.rindex(")") :]
    return "(\n    " + ",\n    ".join(inside) + f",\n{ends}"


class _Written:
    """An annotation that is shown as this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(value: Any) -> Any:
    return value if value is inspect.Signature.empty else _Written(_type(value))


def _type(value: Any) -> str:
    """A type as its author would write it, without the constraints of pydantic."""
    if isinstance(value, str):
        return value.replace("'", '"')
    origin, arguments = get_origin(value), get_args(value)
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, UnionType):
        last = sorted(arguments, key=lambda one: one is NoneType)
        return " | ".join(_type(one) for one in last)
    if origin is Literal:
        return f"Literal[{', '.join(json.dumps(one) for one in arguments)}]"
    if value is None or value is NoneType:
        return "None"
    if isinstance(value, list):
        return f"[{', '.join(map(_type, value))}]"
    if arguments and origin is not None:
        return f"{origin.__name__}[{', '.join(_type(one) for one in arguments)}]"
    return value.__name__ if inspect.isclass(value) else str(value)


class _Elsewhere:
    """A default that is not written out: an object, which may even have this machine's values."""

    def __repr__(self) -> str:
        return "..."


def _default(value: Any) -> Any:
    plain = value is None or isinstance(value, str | int | float | bytes)
    plain = plain or value is inspect.Parameter.empty or value in ((), [], {})
    return value if plain or repr(value) == "<factory>" else _Elsewhere()


def _bare(signature: str) -> str:
    """The signature with its annotations as they are written, and without addresses."""
    bare = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", _ADDRESS.sub("", signature))
    bare = re.sub(r"\b[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Z])", "", bare)
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", bare)


def _prose(value: Any) -> str:
    text = inspect.cleandoc(value.__doc__ or "") if isinstance(value.__doc__, str) else ""
    if dataclasses.is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}("):
        text = ""
    # A heading or an indented block of a docstring would be one of the page.
    return _SOURCE.sub("", text)


def _constant(value: object) -> str:
    """A text, a union of classes, or several functions."""
    several = value if isinstance(value, tuple) else get_args(value)
    names = [getattr(one, "__name__", str(one)) for one in several]
    if not names:
        return f"`{value}`"
    joined = ", ".join(f"`{name}`" for name in names)
    return f"One of {joined}." if get_args(value) else f"{joined}."


def main() -> None:
    """Write the page, or check it."""
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text("utf-8") != page():
            sys.exit(f"{FILE.name} is not what the docstrings say; run: python docs/generate.py")
        return
    FILE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
