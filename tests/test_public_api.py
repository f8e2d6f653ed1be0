"""All public names come from `sayso`, and importing it stays light."""

from __future__ import annotations

import subprocess
import sys

import sayso


def test_every_public_name_can_be_imported() -> None:
    for name in sayso.__all__:
        assert getattr(sayso, name) is not None


def test_the_list_of_public_names_is_sorted_and_whole() -> None:
    assert sayso.__all__ == sorted(sayso._HOME)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(sayso, "Agnet")


def test_importing_the_package_imports_no_heavy_library() -> None:
    code = (
        "import sayso, sys; heavy = {'fastapi', 'uvicorn', 'anthropic', 'mcp', 'httpx2', "
        "'a2a', 'psycopg', 'pydantic'} & set(sys.modules); print(sorted(heavy))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
