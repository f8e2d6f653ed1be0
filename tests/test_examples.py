"""Each example installs as a wheel and passes its own tests with only its declared requirements."""

from __future__ import annotations

import ast
import tomllib
import zipfile
from pathlib import Path

import pytest

from environments import ROOT, Environment, built
from slow import few

pytestmark = pytest.mark.packaging

EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/pyproject.toml"))


@pytest.mark.parametrize("example", few(EXAMPLES, EXAMPLES[0]), ids=lambda path: path.name)
def test_example_installs_and_passes_its_own_tests(
    example: Path, beside_pytest: Environment, tmp_path: Path
) -> None:
    wheel = built(example, tmp_path / "dist")
    with zipfile.ZipFile(wheel) as archive:
        roots = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in roots if not name.endswith(".dist-info")} == {
        f"sayso_{example.name}.py"
    }
    environment = beside_pytest.copy(tmp_path / "environment")
    environment.install(f"{wheel}[test]")
    # The command of examples/README.md; the settings of the checkout's own tests do not apply.
    options = ["-q", "-W", "error", "-p", "no:cacheprovider"]
    environment.run("pytest", *options, str(example.relative_to(ROOT)), folder=ROOT)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_uses_the_public_api_alone(example: Path) -> None:
    for file in example.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        imported = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
        imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        ours = {name for name in imported if name.split(".")[0] == "sayso"}
        allowed = {"sayso", "sayso.testing"} if "tests" in file.parts else {"sayso"}
        assert ours <= allowed, file.name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_metadata_is_complete(example: Path) -> None:
    project = tomllib.loads((example / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == f"sayso-{example.name.replace('_', '-')}"
    assert project["description"] and project["requires-python"] == ">=3.11"
    assert "sayso>=0.1,<0.2" in project["dependencies"]
    assert project["entry-points"]
