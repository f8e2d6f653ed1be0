"""The allowed imports of plugins from the core, and of the core from plugins (design, section 3);
the core's own layers are in `test_import_layers.py`."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "core" / "sayso"
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
PLUGIN_PACKAGES = {f"sayso_{folder.name}" for folder in PLUGINS}
DOCUMENTED = (
    "sayso.cli",
    "sayso.commands.folders",
    "sayso.ledger.copies",
    "sayso.ledger.sql",
    "sayso.models.adapters",
    "sayso.trees",
)
"""The modules of the core that plugins may import from besides `sayso` itself."""
LIBRARIES = {"sayso_oidc": {"sayso_jwt"}}
"""The plugins that a plugin is built on; its distribution requires theirs."""
IN_TESTS = ("sayso.testing", "sayso.ledger.conformance", "sayso.ledger.log")
"""The modules that also their tests may import from."""

HEAVY = {
    "fastapi",
    "uvicorn",
    "starlette",
    "anthropic",
    "mcp",
    "httpx",
    "httpx2",
    "openai",
    "a2a",
    "psycopg",
    # It takes some milliseconds, at the first search for plugins.
    "importlib_metadata",
}


@cache
def imported(source: str) -> tuple[str, ...]:
    """The dotted names that `source` imports, anywhere but under TYPE_CHECKING."""
    return tuple(_imported(ast.parse(source)))


def _imported(tree: ast.AST) -> Iterator[str]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                waiting.extend(otherwise)
                continue
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom(level=level) if level:
                yield "a relative import"
        waiting.extend(ast.iter_child_nodes(node))


@cache
def parts() -> set[str]:
    """The modules and sub-packages of the core."""
    return {path.relative_to(CORE).parts[0].removesuffix(".py") for path in CORE.rglob("*.py")}


def documented(name: str, in_tests: bool) -> bool:
    """Whether a plugin may import `name`: a documented module, or a name that such a module
    lists."""
    module, _, listed = name.rpartition(".")
    if name in DOCUMENTED or (
        module in DOCUMENTED and listed in importlib.import_module(module).__all__
    ):
        return True
    return in_tests and any(name == one or name.startswith(f"{one}.") for one in IN_TESTS)


def plugin_offences(package: str, source: str, in_tests: bool = False) -> list[str]:
    """The imports of a plugin's module that are neither public API nor its own package."""
    offences = []
    own = {package, *LIBRARIES.get(package, ())}
    for name in imported(source):
        root, *rest = name.split(".")
        if root == "sayso" and rest:
            # `from sayso import Agent` names no module; everything deeper does.
            if (len(rest) > 1 or rest[0] in parts()) and not documented(name, in_tests):
                offences.append(name)
        elif root in PLUGIN_PACKAGES - own or name == "a relative import":
            offences.append(name)
    return offences


def test_core_imports_no_plugin() -> None:
    offences = [
        (path.name, name)
        for path in CORE.rglob("*.py")
        for name in imported(path.read_text(encoding="utf-8"))
        if name.split(".")[0] in PLUGIN_PACKAGES
    ]
    assert offences == []


def test_core_names_its_modules_in_full() -> None:
    offences = [
        path.name
        for path in CORE.rglob("*.py")
        if "a relative import" in imported(path.read_text(encoding="utf-8"))
    ]
    assert offences == []


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_plugin_imports_only_the_public_api(folder: Path) -> None:
    package = f"sayso_{folder.name}"
    offences = {
        str(path.relative_to(folder)): found
        for path in folder.rglob("*.py")
        if (
            found := plugin_offences(
                package, path.read_text(encoding="utf-8"), "tests" in path.relative_to(folder).parts
            )
        )
    }
    assert offences == {}


@pytest.mark.parametrize(
    "source",
    [
        "from sayso.host import Host",
        "import sayso.turns.turn",
        "from sayso.cli.group import run",
        "from sayso.cli import group",
        "from sayso.models import Ask",
        "from sayso import host",
        "from sayso.testing import scripted",
        "from sayso_v2 import V2",
        "def late():\n    import sayso_v2.routes",
        "from .routes import router",
    ],
)
def test_private_imports_of_a_plugin_are_found(source: str) -> None:
    assert plugin_offences("sayso_v1", source) != []


@pytest.mark.parametrize(
    "source",
    [
        "from sayso import Plugin, hookimpl",
        "from sayso.models.adapters import transcript",
        "import sayso",
        "from sayso_v1.routes import router",
        "from fastapi import APIRouter",
    ],
)
def test_public_imports_of_a_plugin_pass(source: str) -> None:
    assert plugin_offences("sayso_v1", source) == []


@pytest.mark.parametrize("module", ["sayso", "sayso.config", "sayso.plugins", "sayso.cli"])
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert set(done.stdout.split()) & HEAVY == set()
