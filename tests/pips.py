"""Programs from PyPI for tests, each in an environment of its own outside the repository.

They share no libraries with the tests. If one is unavailable, tests that need it are skipped with
the reason; in CI they fail.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

import pytest


def python_with(name: str, *packages: str) -> Path:
    """The interpreter of the environment `name`, which has `packages`; skips without them."""
    found = _python(name, packages)
    if isinstance(found, str):
        if os.environ.get("CI"):
            pytest.fail(f"CI must run this test: {found}")
        pytest.skip(found)
    return found


@cache
def _python(name: str, packages: tuple[str, ...]) -> Path | str:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    version = f"py{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(base) / "sayso-tests" / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _installed(folder, packages)


def _installed(folder: Path, packages: tuple[str, ...]) -> Path | str:
    python = folder / "venv" / "bin" / "python"
    done = folder / "installed"
    if done.exists() and python.exists() and done.read_text() == "\n".join(packages):
        return python
    done.unlink(missing_ok=True)
    try:
        venv.create(folder / "venv", clear=True, with_pip=False, symlinks=True)
        outside = [sys.executable, "-m", "pip", "--python", str(python)]
        command = [*outside, "install", "--quiet", "--no-input", "--retries=10", *packages]
        pip = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no environment for {folder.name} could be made: {error}"
    if pip.returncode:
        return f"pip could not install {packages}: {pip.stderr[-500:]}"
    done.write_text("\n".join(packages))
    return python
