"""All public names come from `assent`, and importing it stays light."""

from __future__ import annotations

import subprocess
import sys

import assent


def test_every_public_name_can_be_imported() -> None:
    for name in assent.__all__:
        assert getattr(assent, name) is not None


def test_the_list_of_public_names_is_sorted_and_whole() -> None:
    assert assent.__all__ == sorted(assent._HOME)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(assent, "Agnet")


def test_importing_the_package_imports_no_heavy_library() -> None:
    code = (
        "import assent, sys; heavy = {'fastapi', 'uvicorn', 'anthropic', 'mcp', 'httpx2', "
        "'a2a', 'psycopg', 'pydantic'} & set(sys.modules); print(sorted(heavy))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
