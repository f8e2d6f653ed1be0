"""`sayso new`: the written projects install, run and pass their own tests at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments import Environment, built, serving
from sayso.cli.group import run as sayso


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shout", "very-loud"])
def test_new_plugin_installs_is_sound_and_passes_its_tests(
    here: Path, beside_pytest: Environment, name: str
) -> None:
    assert sayso(["new", "plugin", name]) == 0
    environment = beside_pytest.copy(here / "environment")
    environment.install(f"{built(here / name, here / 'dist')}[test]")
    module = name.replace("-", "_")
    (site,) = environment.folder.glob("lib/python*/site-packages")
    assert (site / f"sayso_{module}" / "py.typed").is_file()
    environment.test(here / name / "tests", here / "tests")
    assert f"{module}: ok" in environment.run("sayso", "plugins", "check", module, folder=here)


def test_new_agent_installs_runs_and_passes_its_tests(
    here: Path, beside_pytest: Environment
) -> None:
    assert sayso(["new", "agent", "order-desk"]) == 0
    environment = beside_pytest.copy(here / "environment")
    environment.install(str(built(here / "order-desk", here / "dist")))
    environment.test(here / "order-desk" / "tests", here / "tests")
    with serving(environment.python, here / "order-desk") as service:
        assert "two chairs" in service.chat("find_order(number=17)")["content"]
        pending = service.chat("cancel_order(number=17)")["data"]["tool_calls"]
        assert [call["name"] for call in pending] == ["cancel_order"]


@pytest.mark.slow
def test_new_agent_passes_its_tests_beside_a_new_plugin(
    here: Path, beside_pytest: Environment
) -> None:
    environment = beside_pytest.copy(here / "environment")
    for kind, name in (("plugin", "shout"), ("agent", "order-desk")):
        assert sayso(["new", kind, name]) == 0
        environment.install(str(built(here / name, here / f"dist-{name}")))
    environment.test(here / "order-desk" / "tests", here / "tests")


@pytest.mark.parametrize(
    ("name", "program"), [("order-desk", "order_desk_agent"), ("my-agent", "my_agent")]
)
def test_files_of_a_new_agent_say_agent_once(here: Path, name: str, program: str) -> None:
    assert sayso(["new", "agent", name]) == 0
    assert (here / name / f"{program}.py").is_file()
    assert (here / name / "tests" / f"test_{program}.py").is_file()
    assert f'agent = "{program}:agent"' in (here / name / "sayso.toml").read_text()


@pytest.mark.parametrize(
    "name", ["Shout", "2day", "a b", "../up", "json", "class", "v1", "agent", "a--b"]
)
def test_name_that_cannot_be_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert sayso(["new", "plugin", name]) == 1
    assert repr(name) in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_folder_with_something_in_it_is_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "shout").mkdir()
    (here / "shout" / "mine.txt").write_text("mine")
    assert sayso(["new", "agent", "shout"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert [path.name for path in (here / "shout").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("kind", [[], ["agent"]])
def test_new_writes_an_agent_into_the_folder_that_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], kind: list[str]
) -> None:
    assert sayso(["new", *kind, "shops/desk/"]) == 0
    assert (here / "shops" / "desk" / "desk_agent.py").is_file()
    assert "cd shops/desk\n" in capsys.readouterr().out


def test_new_writes_an_agent_into_the_empty_folder_where_one_stands(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "desk").mkdir()
    monkeypatch.chdir(here / "desk")
    assert sayso(["new", "."]) == 0
    assert (here / "desk" / "desk_agent.py").is_file()
    assert "cd .\n" in capsys.readouterr().out


def test_new_with_a_misspelt_kind_writes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sayso(["new", "plugn", "shout"]) == 2
    assert "No such command 'plugn'; did you mean 'plugin'?" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_steps_after_a_new_agent_are_what_a_shell_takes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sayso(["new", "my $work/order-desk"]) == 0
    assert "\n  cd 'my $work/order-desk'\n" in capsys.readouterr().out
