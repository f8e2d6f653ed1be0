"""Plugins use only those parts of their host that `sayso.hosting` names, and the docs name all of
them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sayso.config import Config
from sayso.hosting import ActivePlugins, Calls, Code, Host
from sayso.hosting.record import Record
from sayso.tools.sources import WorkerLoops

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = sorted(
    path
    for folder in ("plugins", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if "tests" not in path.parts
)
PARTS: Mapping[str, type] = {
    "calls": Calls,
    "code": Code,
    "plugins": ActivePlugins,
    "record": Record,
    "workers": WorkerLoops,
}
"""The members of the host that are protocols of their own."""


def members(protocol: type) -> set[str]:
    """The public names of a protocol."""
    return {
        name for name in {*vars(protocol), *protocol.__annotations__} if not name.startswith("_")
    }


def used(source: str) -> Iterator[tuple[str, ...]]:
    """The attribute paths that `source` uses of a host: of an argument `host: Host`, and of an
    attribute `host` or `_host` of any object."""
    yield from _used(ast.parse(source), is_host=False)


def _used(node: ast.AST, *, is_host: bool) -> Iterator[tuple[str, ...]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = {arg.arg: arg.annotation for arg in [*node.args.args, *node.args.kwonlyargs]}
        if "host" in arguments:
            annotation = arguments["host"]
            is_host = isinstance(annotation, ast.Name) and annotation.id == "Host"
    if isinstance(node, ast.Attribute) and (path := _of_host(node, is_host)):
        yield path
        return
    for child in ast.iter_child_nodes(node):
        yield from _used(child, is_host=is_host)


def _of_host(node: ast.Attribute, is_host: bool) -> tuple[str, ...]:
    names = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        if inner.attr in ("host", "_host"):
            return tuple(reversed(names))
        names.append(inner.attr)
        inner = inner.value
    bare = isinstance(inner, ast.Name) and inner.id == "host"
    return tuple(reversed(names)) if bare and is_host else ()


def offences(source: str) -> list[str]:
    """The paths in `source` that the protocols lack."""
    return [".".join(path) for path in used(source) if not _offered(path)]


def _offered(path: tuple[str, ...]) -> bool:
    first, *rest = path
    if first not in members(Host):
        return False
    if first == "config":
        return not rest or hasattr(Config, rest[0]) or rest[0] in Config.model_fields
    return first not in PARTS or not rest or rest[0] in members(PARTS[first])


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_plugin_asks_its_host_for_nothing_else(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "def register_routes(self, host: Host):\n    host.engine.run()",
        "def register_routes(self, host: Host):\n    return lambda: host._begun",
        "class A:\n    def f(self):\n        return self._host.ledger.store",
        "async def f(host: Host):\n    await host.workers.on_engine_loop(f)",
        "def f(self):\n    return self.service.host.calls._engine",
        "def f(host: Host):\n    return host.config.secret",
    ],
)
def test_what_the_host_does_not_offer_is_found(source: str) -> None:
    assert offences(source) != []


def test_a_name_of_a_machine_is_no_host() -> None:
    assert offences("def f(hosts):\n    return [host.lower() for host in hosts]") == []


def test_the_plugins_use_most_of_what_is_offered() -> None:
    found = {path[0] for each in PLUGINS for path in used(each.read_text(encoding="utf-8")) if path}
    # The core's endpoints use these three, which are also for plugins that need the speed.
    assert members(Host) - found <= {"begin", "end_of", "failure_of"}


def test_the_docs_name_every_member() -> None:
    text = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    section = text.partition("\n## The host\n")[2].partition("\n## ")[0]
    named: set[Any] = set(re.findall(r"`host\.(\w+)", section))
    assert named == members(Host)
    assert set(re.findall(r"`host\.(?:calls)\.(\w+)", section)) == members(Calls)
    assert set(re.findall(r"`host\.(?:record)\.(\w+)", section)) == members(Record)
