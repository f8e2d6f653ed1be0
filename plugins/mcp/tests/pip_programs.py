"""Servers and clients of the protocol from PyPI, in environments outside the repository.

Each has its own environment and shares no libraries with the tests. If one is unavailable, tests
that need it are skipped with the reason; in CI they fail.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

GIT = "mcp-server-git==2026.10.19"
OLD_SDK = "mcp==1.30.0"


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"CI must run this test: {reason}")
    pytest.skip(reason)


@cache
def _python(package: str) -> Path | str:
    """The interpreter of the environment that has `package`, or the reason why there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    version = f"py{sys.version_info.major}.{sys.version_info.minor}"
    folder = Path(base) / "sayso-tests" / f"{package.replace('==', '-')}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _installed(folder, package)


def _installed(folder: Path, package: str) -> Path | str:
    python = folder / "venv" / "bin" / "python"
    done = folder / "installed"
    # The interpreter that made the environment may have been removed since.
    if done.exists() and python.exists():
        return python
    done.unlink(missing_ok=True)
    try:
        # Debian ships what installs pip into an environment as a separate package.
        venv.create(folder / "venv", clear=True, with_pip=False, symlinks=True)
        outside = [sys.executable, "-m", "pip", "--python", str(python)]
        command = [*outside, "install", "--quiet", "--no-input", "--retries=10", package]
        pip = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no environment for {package} could be made: {error}"
    if pip.returncode:
        return f"pip could not install {package}: {pip.stderr[-500:]}"
    done.touch()
    return python


def git_server(repository: Path) -> list[str]:
    """The command of the git reference server for `repository`; skips if it is unavailable."""
    if shutil.which("git") is None:
        _unavailable("git is not installed")
    python = _python(GIT)
    if isinstance(python, str):
        _unavailable(python)
    return [str(python), "-m", "mcp_server_git", "--repository", str(repository)]


def old_client(*arguments: str) -> list[str]:
    """The command of a client of the official SDK of 1.x; skips if it is unavailable."""
    python = _python(OLD_SDK)
    if isinstance(python, str):
        _unavailable(python)
    return [str(python), str(Path(__file__).with_name("old_client.py")), *arguments]
