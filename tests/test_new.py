"""`assent new`: what it writes installs, runs and passes its own tests at once."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from assent.cli.group import run as assent
from assent.testing import served


def run(command: list[str], folder: Path, site: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(folder: Path, out: Path) -> Path:
    """A folder that holds the wheel of `folder` as an installer unpacks it."""
    run(["hatchling", "build", "-t", "wheel", "-d", str(out)], folder, out)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
    return out / "site"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["shout", "very-loud"])
def test_new_plugin_installs_is_sound_and_passes_its_tests(here: Path, name: str) -> None:
    assert assent(["new", "plugin", name]) == 0
    site = installed(here / name, here / "out")
    module = name.replace("-", "_")
    assert (site / f"assent_{module}" / "py.typed").is_file()
    run(["pytest", "-q", "-W", "error", str(here / name)], here, site)
    shown = run(["assent", "plugins", "check", module], here, site)
    assert f"{module}: ok" in shown


def test_new_agent_installs_runs_and_passes_its_tests(here: Path) -> None:
    assert assent(["new", "agent", "order-desk"]) == 0
    folder = here / "order-desk"
    site = installed(folder, here / "out")
    run(["pytest", "-q", "-W", "error", str(folder)], here, site)
    with served(config=folder / "assent.toml") as service:
        reply = service.chat("find_order(number=17)")
        assert "two chairs" in reply["content"]
        pending = service.chat("cancel_order(number=17)")["data"]["tool_calls"]
        assert [call["name"] for call in pending] == ["cancel_order"]


@pytest.mark.parametrize("name", ["Shout", "2day", "a b", "../up", "json", "class", "v1", "a--b"])
def test_name_that_cannot_be_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert assent(["new", "plugin", name]) == 1
    assert repr(name) in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_folder_with_something_in_it_is_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "shout").mkdir()
    (here / "shout" / "mine.txt").write_text("mine")
    assert assent(["new", "agent", "shout"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert [path.name for path in (here / "shout").iterdir()] == ["mine.txt"]
