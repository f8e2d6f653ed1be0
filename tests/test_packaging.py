"""The wheels: their contents, and that they work without the checkout."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import lowest
from environments import FOLDERS, ROOT, Environment, run, serving
from release import problems
from sayso._version import __version__
from sayso.plugins.discovery import BUILT_IN
from slow import few

pytestmark = pytest.mark.packaging

OURS = re.compile(r"sayso(-\w+)?")


def project(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return content


def name_of(folder: Path) -> str:
    name: str = project(folder)["project"]["name"]
    return name


@pytest.fixture(scope="module")
def built(wheels: Path) -> dict[str, Path]:
    """The wheel of each distribution, by its name."""
    found = {path.name.split("-")[0].replace("_", "-"): path for path in wheels.glob("sayso*.whl")}
    assert set(found) == {name_of(folder) for folder in FOLDERS}
    return found


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_all_wheels_have_the_one_version(built: dict[str, Path]) -> None:
    assert {metadata(wheel)["Version"] for wheel in built.values()} == {__version__}


def test_wheel_holds_its_package_and_nothing_else(built: dict[str, Path]) -> None:
    for name, wheel in built.items():
        package = name.replace("-", "_")
        with zipfile.ZipFile(wheel) as archive:
            files = archive.namelist()
        roots = {file.split("/")[0] for file in files}
        assert roots == {package, f"{package}-{__version__}.dist-info"}, name
        assert f"{package}/py.typed" in files, name
        strange = {"tests", "examples", "benchmarks", "__pycache__"}
        assert not [file for file in files if strange & set(file.split("/"))], name


def test_metadata_is_complete(built: dict[str, Path]) -> None:
    core = metadata(built["sayso"])
    for name, wheel in built.items():
        said = metadata(wheel)
        assert said["Summary"] and said["Requires-Python"] == ">=3.11", name
        assert str(said.get_payload()).strip(), name
        # We do not choose it, and must not leave it out.
        assert said["License"] == "None has been chosen yet; the owner of the project has to.", name
        assert said["Description-Content-Type"] == "text/markdown", name
        classifiers = said.get_all("Classifier", [])
        assert "Typing :: Typed" in classifiers, name
        pythons = [line for line in core.get_all("Classifier", []) if ":: Python" in line]
        assert [line for line in classifiers if ":: Python" in line] == pythons, name


def test_a_release_is_kept_back_by_exactly_what_the_owner_has_to_choose(
    built: dict[str, Path], tmp_path: Path
) -> None:
    for wheel in built.values():
        shutil.copy(wheel, tmp_path)
    names = "".join(f"x @ file:///x/{wheel.name}\n" for wheel in built.values())
    (tmp_path / "constraints.txt").write_text(names)
    mine = {"the checkout has changes that are not committed"}
    expected = {
        f"{name} has no licence: choose one, and put its text into LICENSE" for name in built
    }
    expected |= {"there is no LICENSE", f"CHANGELOG.md has no heading for {__version__}"}
    assert set(problems(tmp_path)) - mine == expected
    (tmp_path / built["sayso"].name).unlink()
    assert any(line.startswith("sayso has no wheel") for line in problems(tmp_path))


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_requirements_on_each_other_admit_this_version(folder: Path) -> None:
    declared = project(folder)["project"]
    extras = declared.get("optional-dependencies", {}).values()
    lines = [*declared["dependencies"], *(line for extra in extras for line in extra)]
    own = [r for r in map(Requirement, lines) if OURS.fullmatch(r.name) and r.specifier]
    assert own
    assert [str(r) for r in own if not r.specifier.contains(__version__)] == []


def brought(core: Message, extra: str) -> set[str]:
    """The names that `extra` of the core installs."""
    found = [Requirement(line) for line in core.get_all("Requires-Dist", [])]
    asked = [r for r in found if r.marker and "extra" in str(r.marker)]
    return {r.name for r in asked if r.marker and r.marker.evaluate({"extra": extra})}


@pytest.mark.parametrize("folder", FOLDERS[1:], ids=name_of)
def test_plugin_is_an_extra_and_a_development_requirement(
    built: dict[str, Path], folder: Path
) -> None:
    lines = (ROOT / "requirements-dev.txt").read_text("utf-8").splitlines()
    assert brought(metadata(built["sayso"]), folder.name) == {name_of(folder)}
    assert f"-e plugins/{folder.name}" in lines


def test_all_brings_what_every_extra_does(built: dict[str, Path]) -> None:
    core = metadata(built["sayso"])
    extras = set(core.get_all("Provides-Extra", [])) - {"all"}
    assert brought(core, "all") == {name for extra in extras for name in brought(core, extra)}


def test_pip_of_python_3_13_can_read_every_marker(built: dict[str, Path]) -> None:
    # 24.1 to 25.0 compares as versions if the right side is one, and fails if the left side is not.
    for name, wheel in built.items():
        lines = metadata(wheel).get_all("Requires-Dist", [])
        assert [line for line in lines if re.search(r"extra == .v?\d", line)] == [], name


def test_no_file_of_requirements_names_a_host() -> None:
    for path in (ROOT / "requirements-dev.txt", *(f / "pyproject.toml" for f in FOLDERS)):
        assert "://" not in path.read_text("utf-8"), path.name


def test_each_requirement_states_its_lowest_version() -> None:
    assert set(lowest.versions()) >= {"fastapi", "pydantic", "uvicorn", "mcp", "a2a-sdk"}
    with pytest.raises(ValueError, match="'z<3'"):
        list(lowest.bounds({"dependencies": ["y>=1"], "optional-dependencies": {"x": ["z<3"]}}))


@pytest.fixture(scope="module")
def empty(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment into which the core, V1 and V2 were installed."""
    folder = tmp_path_factory.mktemp("environment")
    made = Environment.empty(folder, built["sayso"].parent)
    made.install(*(str(built[name]) for name in ("sayso", "sayso-v1", "sayso-v2")))
    return made


def test_installed_wheels_work_without_the_checkout(empty: Environment, tmp_path: Path) -> None:
    shown = json.loads(run([str(empty.python.parent / "sayso"), "plugins", "--json"], tmp_path))
    assert {(info["name"], info["active"]) for info in shown} == {("v1", True), ("v2", True)}
    assert "GET /health" not in [route for info in shown for route in info["routes"]]
    assert "POST /api/chat" in next(i["routes"] for i in shown if i["name"] == "v2")


WHOLE = {"anthropic": ".model", "openai": ".chat", "postgres": ".store", "demo": ".offline"}
"""The module of a distribution that imports all its requirements, if that is not its first one."""
NAMED = re.compile(r"sayso\[([a-z0-9,]+)\]")
"""The extras that README and documentation recommend to install together."""


def combinations() -> list[str]:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/*/README.md")]
    return sorted({found for page in pages for found in NAMED.findall(page.read_text("utf-8"))})


@pytest.mark.parametrize("extras", few(combinations(), "v2", "v2,anthropic", "v1,v2"))
def test_documented_combination_installs_into_an_empty_environment(
    extras: str, wheels: Path, tmp_path: Path
) -> None:
    made = Environment.empty(tmp_path / "environment", wheels)
    made.install(f"sayso[{extras}]")
    shown = json.loads(made.run("sayso", "plugins", "--json", folder=tmp_path))
    wanted = set(extras.split(","))
    # The outbox sends Slack's cards.
    wanted |= {"notify"} if "slack" in wanted else set()
    wanted |= {"jwt"} if "oidc" in wanted else set()
    assert {info["name"] for info in shown} == set(BUILT_IN) & wanted
    for extra in extras.split(","):
        run([str(made.python), "-c", f"import sayso_{extra}{WHOLE.get(extra, '')}"], tmp_path)


CALLABLE = "def agent(messages, context):\n    return messages[-1].content.upper()\n"
AGENT = "from sayso import Agent\n\nagent = Agent()\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["demo"], "demo"),
        (["chat"], "chat"),
        (["mcp"], "mcp"),
        (["serve", "ops.py"], "demo"),
        (["serve", "ops.py", "--model", "offline"], "demo"),
        (["serve", "ops.py", "--model", "anthropic:x"], "anthropic"),
        (["serve", "ops.py", "--model", "openai:x"], "openai"),
        (["serve", "plain.py:agent", "--config", "shared.toml"], "postgres"),
    ],
)
def test_core_alone_says_what_to_install(
    empty: Environment, tmp_path: Path, arguments: list[str], extra: str
) -> None:
    (tmp_path / "ops.py").write_text(AGENT, "utf-8")
    ledger = "postgresql://user@127.0.0.1:1/db"
    (tmp_path / "shared.toml").write_text(f'[approvals]\nledger = "{ledger}"\n', "utf-8")
    (tmp_path / "plain.py").write_text(CALLABLE, "utf-8")
    command = [str(empty.python), "-m", "sayso", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode in (1, 2)
    assert f"'sayso[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_core_alone_serves_a_plain_callable(empty: Environment, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(CALLABLE, "utf-8")
    with serving(empty.python, tmp_path, "plain.py:agent") as service:
        assert service.chat("hello")["content"] == "HELLO"


def test_installation_is_small(empty: Environment, tmp_path: Path) -> None:
    code = (
        "import importlib.metadata as m; "
        "print(*sorted({d.name.lower().replace('_', '-') for d in m.distributions()}))"
    )
    names = run([str(empty.python), "-c", code], tmp_path).split()
    # The packages of plain FastAPI with uvicorn's usual extras, importlib_metadata and its two
    # requirements, and no more.
    assert len([name for name in names if not OURS.fullmatch(name)]) <= 22, names
