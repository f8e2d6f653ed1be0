"""The project has one name; the name before its first release occurs nowhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# In two halves, or this file would contain the word itself.
FORMER = "ass" + "ent"


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("this is no git checkout, so the project's files cannot be told from others")
    return [name for name in listed.stdout.split("\0") if name]


def test_no_tracked_file_or_folder_has_the_former_name() -> None:
    assert [name for name in tracked() if FORMER in name.lower()] == []


def test_no_tracked_file_holds_the_former_name() -> None:
    former = FORMER.encode()
    paths = [ROOT / name for name in tracked()]
    assert [p for p in paths if p.is_file() and former in p.read_bytes().lower()] == []
