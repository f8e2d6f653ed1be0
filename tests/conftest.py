"""Fixtures of the packaging tests: the wheels, and an environment made from them by pip."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from environments import BESIDE, Environment, pip, released


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of each distribution of Sayso, and those that tests install beside
    them. Each is searched for in the index once, and installations do not ask it again. Its folder
    `dist` is made by `make build`."""

    def build(out: Path) -> None:
        out.mkdir()
        released(out / "dist")
        pip("download", "--dest", ".", "-c", "dist/constraints.txt", *BESIDE, folder=out)

    return once(tmp_path_factory, "wheels", build)


@pytest.fixture(scope="session")
def beside_pytest(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Environment:
    """An environment with the core of Sayso and pytest; tests copy it and leave it unchanged."""

    def install(folder: Path) -> None:
        made = Environment.empty(folder, wheels)
        made.install("sayso", "pytest")
        made.run("compileall", "-q", "lib", folder=folder)

    return Environment(once(tmp_path_factory, "beside_pytest", install), wheels)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills, once for all the processes of a run."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder
