"""Each example installs as a wheel and passes its own tests, with nothing else installed beside."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/pyproject.toml"))


def run(command: list[str], folder: Path, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(example: Path, folder: Path) -> Path:
    """A folder that holds the example's wheel as an installer unpacks it."""
    run(["hatchling", "build", "-t", "wheel", "-d", str(folder)], example)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_installs_and_passes_its_own_tests(example: Path, tmp_path: Path) -> None:
    site = installed(example, tmp_path)
    names = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {f"assent_{example.name}.py"}
    options = ["-q", "-W", "error", "-p", "no:cacheprovider", f"--rootdir={example}"]
    run(["pytest", *options, str(example / "tests")], tmp_path, PYTHONPATH=str(site))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_uses_the_public_api_alone(example: Path) -> None:
    for file in example.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        imported = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
        imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        ours = {name for name in imported if name.split(".")[0] == "assent"}
        allowed = {"assent", "assent.testing"} if "tests" in file.parts else {"assent"}
        assert ours <= allowed, file.name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_metadata_is_complete(example: Path) -> None:
    project = tomllib.loads((example / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == f"assent-{example.name.replace('_', '-')}"
    assert project["description"] and project["requires-python"] == ">=3.11"
    assert "assent>=0.1,<0.2" in project["dependencies"]
    assert project["entry-points"]
