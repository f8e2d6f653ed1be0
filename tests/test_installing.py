"""Each command that installs Sayso installs ours, even if an index has strangers' under each
name."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from environments import FOLDERS, ROOT, Environment, run
from sayso import install_line, installing
from sayso._version import __version__
from slow import few

NAMES = [
    tomllib.loads((f / "pyproject.toml").read_text("utf-8"))["project"]["name"] for f in FOLDERS
]
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("plugins/*/README.md")),
    *sorted(ROOT.glob("examples/**/README.md")),
]
LINES = sorted(
    {
        line.partition("#")[0].strip()
        for page in PAGES
        for line in re.findall(
            r"\bpip install [^`\n]+", page.read_text("utf-8").replace("\\\n", " ")
        )
        if not line.startswith(("pip install opentelemetry-", "pip install -U 'pip"))
    }
)
"""The commands in README, documentation and examples that install Sayso."""
HIGHER = "0.1.99"
"""A version that every requirement on Sayso admits."""


class Outside:
    """A public index with wheels of strangers, and a shell in which pip uses it and no other."""

    def __init__(self, folder: Path, wheels: Path, made: Environment) -> None:
        self.index, self.beside, self.made = folder / "simple", folder / "beside", made
        for name in NAMES:
            for version in (__version__, HIGHER):
                self._wheel(name, version)
        self.beside.mkdir()
        for wheel in wheels.glob("*.whl"):
            if not wheel.name.startswith("sayso"):
                os.link(wheel, self.beside / wheel.name)

    def _wheel(self, name: str, version: str) -> None:
        module, folder = name.replace("-", "_"), self.index / name
        folder.mkdir(parents=True, exist_ok=True)
        info = f"{module}-{version}.dist-info"
        with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{module}.py", "STRANGER = True\n")
            wheel.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        links = [f'<a href="{file.name}">{file.name}</a>' for file in folder.glob("*.whl")]
        (folder / "index.html").write_text("\n".join(links), "utf-8")

    def shell(self, line: str, folder: Path, **environ: str) -> str:
        """The output of the command in a shell with the environment's pip and Python."""
        settings = {
            "PATH": f"{self.made.python.parent}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": self.index.as_uri(),
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": str(self.beside),
            # The environment has the build tools; in this variable pip reads "0" as: without
            # isolation.
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",
        }
        return run(["sh", "-c", line], folder, **settings | environ)

    def sources(self, line: str, folder: Path) -> dict[str, str]:
        """The distributions with Sayso's names that the command would install, each with its
        URL."""
        report = self.index.parent / "report.json"
        self.shell(line, folder, PIP_DRY_RUN="1", PIP_QUIET="1", PIP_REPORT=str(report))
        found = {
            item["metadata"]["name"]: item["download_info"]["url"]
            for item in json.loads(report.read_text("utf-8"))["install"]
        }
        return {name: url for name, url in found.items() if name in NAMES}


def empty(folder: Path, wheels: Path) -> Outside:
    """An environment with pip and the build tools only, in the midst of strangers."""
    made = Environment.empty(folder / "environment", wheels)
    made.install("pip", "hatchling", "editables")
    return Outside(folder, wheels, made)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Outside:
    """An environment into which nothing is installed."""
    return empty(tmp_path_factory.mktemp("outside"), wheels)


def home(line: str, wheels: Path) -> Path:
    """The folder in which a command of the documentation is typed: beside the wheels, or in the
    checkout."""
    return wheels if "dist/" in line else ROOT


def strangers(outside: Outside, found: dict[str, str]) -> list[str]:
    return [url for url in found.values() if url.startswith(outside.index.as_uri())]


@pytest.mark.slow
@pytest.mark.packaging
def test_bare_name_would_bring_the_stranger(outside: Outside) -> None:
    found = outside.sources("pip install 'sayso[v2]'", ROOT)
    assert len(strangers(outside, found)) == 1


@pytest.mark.packaging
@pytest.mark.parametrize("line", few(LINES, *LINES[:3], LINES[-1]))
def test_command_of_the_documentation_brings_ours(
    outside: Outside, wheels: Path, line: str
) -> None:
    found = outside.sources(line, home(line, wheels))
    assert "sayso" in found and strangers(outside, found) == []


def asked(python: Path, folder: Path, *wanted: str) -> str:
    """The command that the Sayso of an environment names, for a shell in `folder`."""
    code = "import sys; from sayso import install_line; print(install_line(*sys.argv[1:]))"
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return run([str(python), "-c", code, *wanted], folder, PATH=path).strip()


@pytest.mark.slow
@pytest.mark.packaging
@pytest.mark.parametrize(
    "line", ["pip install -e . -e plugins/v2", "pip install -c dist/constraints.txt 'sayso[v2]'"]
)
def test_command_that_is_printed_brings_ours(
    outside: Outside, wheels: Path, tmp_path: Path, line: str
) -> None:
    installed = empty(tmp_path, wheels)
    installed.shell(line, home(line, wheels))
    code = "import sayso, sayso_v2; print(sayso.__version__)"
    assert run([str(installed.made.python), "-c", code], tmp_path).strip() == __version__
    for wanted in ("sayso[all]", "sayso-a2a[sqlite]"):
        said = asked(installed.made.python, tmp_path, wanted)
        assert said.startswith(f"(cd {home(line, wheels)} && pip install ")
        found = outside.sources(said, tmp_path)
        assert strangers(outside, found) == []
        assert found.keys() == (set(NAMES) if "all" in wanted else {"sayso", "sayso-a2a"})


def test_checkout_is_named_by_its_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    folder = Path("shout[test]")
    assert install_line("sayso[v2,console]") == "pip install -e . -e plugins/v2 -e plugins/console"
    assert install_line("sayso-a2a[sqlite]") == "pip install -e . -e 'plugins/a2a[sqlite]'"
    assert install_line(folder, "sayso", "pytest") == "pip install -e 'shout[test]' pytest -e ."
    assert install_line("--upgrade", "sayso-polite") == "pip install --upgrade sayso-polite -e ."


def test_all_of_a_checkout_is_every_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = install_line("sayso[all]").split()
    folders = {word for word in words if word.startswith("plugins/")}
    assert folders == {f"plugins/{folder.name}" for folder in FOLDERS[1:]}


def test_plugin_that_another_requires_comes_with_it(tmp_path: Path) -> None:
    for name, needs in (("one", ["sayso>=0.1", "sayso-two>=0.1", "httpx"]), ("two", ["sayso"])):
        folder = tmp_path / "plugins" / name
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(f"[project]\ndependencies = {json.dumps(needs)}\n")
    words = installing._of_checkout(tmp_path, ["sayso[one]"])
    assert words == ["-e", ".", "-e", "plugins/one", "-e", "plugins/two"]


def test_command_in_another_folder_goes_to_the_checkout_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    said = install_line(Path("shout"), "sayso[v2]")
    assert said.startswith(f"(cd {ROOT} && ")
    assert said.endswith(f" install -e {tmp_path / 'shout'} -e . -e plugins/v2)")


def test_pip_is_the_one_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", os.defpath)
    assert install_line("sayso").startswith(f"{sys.executable} -m pip install ")
