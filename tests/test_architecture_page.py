"""docs/architecture.md names packages and files that exist, and every package."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
CORE = ROOT / "core" / "sayso"


def test_every_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", PAGE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (CORE / name).is_file()] == []


def test_every_package_of_the_core_stands_in_the_picture() -> None:
    picture = PAGE.partition("```text")[2].partition("```")[0]
    shown = set(re.findall(r"[a-z_]+", picture))
    packages = {path.parent.name for path in CORE.glob("*/__init__.py")}
    assert packages - shown == set()


def test_every_plugin_of_the_repository_is_named() -> None:
    plugins = {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")}
    assert {name for name in plugins if f"`{name}`" not in PAGE} == set()
