"""Environments that pip fills from built wheels, and services as processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sayso.testing import Service

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
"""The folder of each distribution of Sayso, the core first."""
BESIDE = (
    "sayso[all]",
    "sayso-a2a[sqlite,postgresql,mysql,signing,grpc]",
    # Requirements of examples and new projects.
    "pytest",
    "openai>=3,<4",
    "dbos>=3.4,<4",
    # pip itself, and the packages it needs for an editable installation.
    "pip>=25",
    "hatchling>=1.27",
    "editables",
)
"""Distributions that tests install into environments, besides those named by the test itself."""

_LISTENING = re.compile(r"^sayso: listening on http://127\.0\.0\.1:(\d+)$", re.MULTILINE)


def run(command: list[str], folder: Path, timeout: float = 600, **environ: str) -> str:
    """The output of `command`; the path of the tests' own modules is not inherited."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=_inherited() | {"PWD": str(folder)} | environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(folder: Path, out: Path) -> Path:
    """The wheel of the project in `folder`, built into the new folder `out`."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], folder)
    (wheel,) = out.glob("*.whl")
    return wheel


def released(out: Path) -> None:
    """Fill the folder `out` by `make build`, in the environment of the tests."""
    made = ["-o", ".venv/.demo", f"BIN={Path(sys.executable).parent}", f"DIST={out}"]
    run(["make", "build", *made], ROOT)


def pip(*arguments: str, folder: Path) -> None:
    """Run the pip of the tests' own environment in `folder`."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run([*command, "--retries", "10", "--timeout", "60", *arguments], folder, timeout=1200)


class Environment:
    """A Python environment beside the one of the tests, with its own packages."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder = folder
        self.wheels = wheels
        self.python = folder / "bin" / "python"

    @classmethod
    def empty(cls, folder: Path, wheels: Path) -> Environment:
        """A new one without pip; pip finds everything that it installs in the folder `wheels`."""
        venv.create(folder, with_pip=False, symlinks=True)
        return cls(folder, wheels)

    def copy(self, folder: Path) -> Environment:
        """A copy with the same contents; pip replaces files, it never writes into them."""
        shutil.copytree(self.folder, folder, symlinks=True, copy_function=os.link)
        return Environment(folder, self.wheels)

    def install(self, *requirements: str) -> None:
        """Let pip install wheels, or distributions of the folder `wheels`, with their
        requirements."""
        options = ["--python", str(self.python), "install", "--find-links", str(self.wheels)]
        # Imported modules are compiled on import; most of the installed ones never are.
        options += ["--no-index", "--no-compile"]
        pip(*options, *requirements, folder=self.folder)

    def run(self, module: str, *arguments: str, folder: Path) -> str:
        """The output of `python -m module` there."""
        return run([str(self.python), "-m", module, *arguments], folder)

    def test(self, tests: Path, folder: Path) -> None:
        """Run a copy of the folder `tests`, away from the project that it belongs to."""
        shutil.copytree(tests, folder, ignore=shutil.ignore_patterns("__pycache__"))
        options = ["-q", "-W", "error", "-p", "no:cacheprovider", f"--rootdir={folder}"]
        self.run("pytest", *options, str(folder), folder=folder)


@contextmanager
def serving(python: Path, folder: Path, *options: str, **environ: str) -> Iterator[Service]:
    """The service that `sayso serve OPTIONS` in `folder` starts, on a free port."""
    log = folder / "serve.log"
    command = [str(python), "-W", "error", "-m", "sayso", "serve", *options]
    command += ["--host", "127.0.0.1", "--port", "0", "--state-dir", str(folder / "state")]
    command += ["--start-timeout", "120"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=_inherited() | environ, stdout=out, stderr=out
        )
    try:
        # It is reached only over the network.
        yield Service(cast(Any, None), _port(process, log))
    finally:
        process.terminate()
        try:
            process.wait(120)
        finally:
            process.kill()
    assert process.returncode == 0, log.read_text("utf-8")


def _inherited() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1"}


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + 180
    while not (found := _LISTENING.search(log.read_text("utf-8"))):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text("utf-8")
        time.sleep(0.02)
    return int(found[1])
