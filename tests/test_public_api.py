"""All public names come from `sayso`, and importing it stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import sayso


def test_every_public_name_can_be_imported() -> None:
    for name in sayso.__all__:
        assert getattr(sayso, name) is not None


def test_type_checkers_and_the_interpreter_find_the_same_public_names() -> None:
    found = {f"sayso.{module}": names.split() for module, names in sayso._MODULES.items()}
    stated: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(Path(sayso.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and any(alias.asname for alias in node.names):
            assert all(alias.asname == alias.name for alias in node.names)
            stated.setdefault(str(node.module), []).extend(alias.name for alias in node.names)
    assert {key: sorted(names) for key, names in stated.items()} == {
        key: sorted(names) for key, names in found.items()
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(sayso, "Agnet")


def test_importing_the_package_imports_no_heavy_library() -> None:
    code = (
        "import sayso, sys; heavy = {'fastapi', 'uvicorn', 'anthropic', 'mcp', 'httpx2', "
        "'a2a', 'psycopg', 'pydantic'} & set(sys.modules); print(sorted(heavy))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
