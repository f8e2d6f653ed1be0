"""Imports run down the layers and never in a circle, file by file, also those for type checkers
alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parent.parent / "core"

LAYERS: tuple[str, ...] = (
    "errors garbage trees _version config workers service installing addresses screening",
    "wire context principals",
    "ledger models",
    "agent tools commands policy gate conversation hosting hookspecs observing",
    "engine plugins",
    "decisions",
    "turns",
    "host start_lines impossible",
    "http",
    "listener",
    "app server threaded testing pytest_plugin",
    "cli __main__",
)
"""The modules and packages of the core from the bottom to the top.

A file may import files of its own layer and of lower ones. Each layer in one sentence:

1. settings, the error tree, processes and sockets, install lines, and where user code runs;
2. the contract's JSON, and what the code of a turn knows of its request;
3. the record of proposals, and the protocol of models;
4. what users declare, the gate, conversations as models read them, what plugins may ask;
5. what all turns of a service share, and the plugins with their hooks;
6. decisions carried out, those of single calls among them;
7. one turn, from its request to its reply;
8. the service host, which builds a service, and begins, watches and drains its turns;
9. requests to turns and turns to replies, as plain ASGI;
10. the sockets, inside uvicorn;
11. the application and the process that serves it, here or in a test;
12. the command line.
"""

CIRCLES: tuple[Set[str], ...] = (
    frozenset(f"sayso.workers.{name}" for name in ("loop", "running", "threads", "workers")),
)
"""The allowed circles: a loop, its work and its threads are one thing in four files."""

UVICORN = frozenset({"sayso.server", "sayso.threaded"})
"""The files beside the listener's that may import uvicorn: one does so in parts, to start quickly,
the other runs any ASGI application for a test."""


@cache
def files() -> Mapping[str, Path]:
    """Each module of the core by its dotted name."""
    found = {}
    for path in CORE.rglob("*.py"):
        parts = path.relative_to(CORE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    # The public names are typed there for readers; nothing inside imports from it.
    return {name: path for name, path in found.items() if name != "sayso"}


def imported(source: str, known: Set[str]) -> Iterator[str]:
    """The modules that `source` imports, anywhere in it; those not in `known` by their first
    name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    yield whole if whole in known else module
            case ast.Import(names=names):
                yield from (alias.name for alias in names)


@cache
def graph() -> Mapping[str, Set[str]]:
    """Each module of the core with the modules of the core that it imports."""
    known = files().keys()
    return {
        name: {one for one in imported(path.read_text("utf-8"), known) if one in known} - {name}
        for name, path in files().items()
    }


def circles(edges: Mapping[str, Set[str]]) -> list[Set[str]]:
    """The sets of modules that reach each other."""

    def reached(start: str) -> Set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in edges.get(waiting.pop(), set()) - seen:
                seen.add(name)
                waiting.append(name)
        return seen

    reach = {name: reached(name) for name in edges}
    found: list[Set[str]] = []
    for name, ahead in reach.items():
        circle = {other for other in ahead if name in reach.get(other, ())}
        if circle and circle not in found:
            found.append(circle)
    return found


def layer(module: str) -> int:
    """The position of the module's layer, from 1 at the bottom; 0 if the table lacks it."""
    part = module.split(".")[1]
    return next((n for n, names in enumerate(LAYERS, 1) if part in names.split()), 0)


def test_no_files_import_each_other_in_a_circle() -> None:
    assert [circle for circle in circles(graph()) if circle not in CIRCLES] == []


def test_no_packages_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = {}
    for name, found in graph().items():
        part = name.split(".")[1]
        edges.setdefault(part, set()).update({one.split(".")[1] for one in found} - {part})
    assert circles(edges) == []


def test_every_circle_that_may_be_is_one() -> None:
    assert all(circle in circles(graph()) for circle in CIRCLES)


def test_every_file_has_a_layer_and_every_layer_files() -> None:
    assert [name for name in files() if not layer(name)] == []
    parts = {name.split(".")[1] for name in files()}
    assert [part for names in LAYERS for part in names.split() if part not in parts] == []


def test_imports_run_down_the_layers() -> None:
    offences = [
        f"{name} (layer {layer(name)}) imports {one} (layer {layer(one)})"
        for name, found in graph().items()
        for one in found
        if layer(one) > layer(name)
    ]
    assert sorted(offences) == []


def test_only_the_listener_imports_uvicorn() -> None:
    offences = [
        name
        for name, path in files().items()
        if not name.startswith("sayso.listener") and name not in UVICORN
        for one in imported(path.read_text("utf-8"), files().keys())
        if one.split(".")[0] == "uvicorn"
    ]
    assert offences == []


@pytest.mark.parametrize(
    "source",
    [
        "from sayso.host import ServiceHost",
        "import sayso.host",
        "from sayso import host",
        "def late():\n    from sayso.host import ServiceHost",
        "if TYPE_CHECKING:\n    from sayso.host import ServiceHost",
    ],
)
def test_an_import_is_seen_wherever_it_stands(source: str) -> None:
    assert "sayso.host" in list(imported(source, {"sayso.host"}))


def test_a_circle_is_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert circles(edges) == [{"a", "b", "c"}]
