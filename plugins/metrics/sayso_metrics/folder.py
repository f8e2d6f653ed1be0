"""The folder in which the processes of one service keep their values.

`prometheus_client` reads the variable when it is imported, so this module comes first and imports
nothing of it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "metrics-"


def share_values(state: Path) -> Path:
    """Let all processes with the same parent share their values in a folder under `state`.

    Folders of services that have ended are removed: their counters would be added to ours.
    """
    mine = state / f"{_PREFIX}{os.getppid()}"
    for folder in state.glob(f"{_PREFIX}*"):
        if folder != mine and not _lives(folder.name.removeprefix(_PREFIX)):
            shutil.rmtree(folder, ignore_errors=True)
    mine.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ[VARIABLE] = str(mine)
    return mine


def ended_processes(folder: Path) -> set[int]:
    """The processes that have values in the folder and have ended."""
    named = {file.stem.rpartition("_")[2] for file in folder.glob("*.db")}
    return {int(number) for number in named if number.isdigit() and not _lives(number)}


def _lives(number: str) -> bool:
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
