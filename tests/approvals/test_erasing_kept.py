"""`sayso erase` reaches what plugins keep of a person or a tenant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sayso import Agent, KeptBeside, Plugin, Removed, Subject, cli, hookimpl
from sayso.plugins import Plugins
from sayso.testing import Served, Service, scripted, user

NAMES = ("ann", "bob", "eve")
Run = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path, url: str) -> Path:
    """The configuration of a service: bob and eve are of a tenant."""
    lines = [
        'plugins = ["v2", "a2a", "idempotency", "openai_api"]',
        f'[server]\nhost = "127.0.0.1"\nstate_dir = "{tmp_path / "state"}"',
        f'[approvals]\nledger = "{url}"',
        '[auth]\nscheme = "bearer"\n[auth.tokens]',
        *(f'{name} = "t0ken-of-{name}-that-is-long"' for name in NAMES),
        '[auth.principals.bob]\ntenant = "acme"\n[auth.principals.eve]\ntenant = "other"',
        '[auth.people]\nAnn = ["bearer|ann"]',
    ]
    made = tmp_path / "sayso.toml"
    made.write_text("\n".join(lines))
    return made


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        got = cli.run(["--config", str(file), *arguments])
        out, err = capsys.readouterr()
        assert got == code, out + err
        return out + err

    return call


def asked(service: Service, name: str) -> tuple[int, str]:
    """The answer to a request with a key, which is the same each time."""
    headers = {"Authorization": f"Bearer t0ken-of-{name}-that-is-long", "Idempotency-Key": "k"}
    answer = service.post("/api/chat", {"messages": [user(f"{name}-asks")]}, headers)
    return answer.status, answer.json().get("content") or answer.json()["code"]


def task_of(service: Service, name: str, id: str | None = None) -> tuple[int, str]:
    """The status and the id of a new task, or of that one."""
    headers = {"Authorization": f"Bearer t0ken-of-{name}-that-is-long"}
    if id is not None:
        return service.get(f"/a2a/tasks/{id}", headers).status, id
    answer = service.post("/a2a/tasks/send", {"message": f"{name}-sends"}, headers)
    return answer.status, answer.json()["task_id"]


def test_answers_and_tasks_of_an_erased_person_and_tenant_are_gone(
    sayso_served: Served, file: Path, run: Run
) -> None:
    agent = Agent(model=scripted(*[f"said {number}" for number in range(6)]))
    service = sayso_served(agent, config=file)
    first = {name: asked(service, name) for name in NAMES}
    tasks = {name: task_of(service, name)[1] for name in NAMES}
    assert first == {"ann": (200, "said 0"), "bob": (200, "said 1"), "eve": (200, "said 2")}

    def left() -> dict[str, tuple[int, int]]:
        return {
            name: (asked(service, name)[0], task_of(service, name, tasks[name])[0])
            for name in NAMES
        }

    said = run("erase", "--yes", "--principal", "ann")
    assert "erased 1 A2A task\nerased 1 answer\n" in said
    assert left() == {"ann": (409, 404), "bob": (200, 200), "eve": (200, 200)}
    assert asked(service, "ann") == (409, "REPLY_NOT_KEPT")
    said = run("erase", "--yes", "--tenant", "acme")
    assert "erased 1 A2A task\nerased 1 answer\n" in said
    assert left() == {"ann": (409, 404), "bob": (409, 404), "eve": (200, 200)}
    assert "erased 0 A2A tasks\nerased 0 answers\n" in run("erase", "--yes", "--tenant", "acme")
    assert asked(service, "eve") == first["eve"]
    assert "the log is whole" in run("approvals", "verify")


def test_a_person_is_erased_by_the_name_of_the_person_as_well(
    sayso_served: Served, file: Path, run: Run
) -> None:
    service = sayso_served(Agent(model=scripted("said")), config=file)
    asked(service, "ann")
    assert "erased 1 answer\n" in run("erase", "--yes", "--principal", "Ann")
    assert asked(service, "ann") == (409, "REPLY_NOT_KEPT")


def test_responses_of_an_erased_person_are_gone(sayso_served: Served, file: Path, run: Run) -> None:
    service = sayso_served(Agent(model=scripted("one", "two")), config=file)
    token = {name: {"Authorization": f"Bearer t0ken-of-{name}-that-is-long"} for name in NAMES}
    ids = {
        name: service.post(
            "/v1/responses", {"model": "assistant", "input": "hi"}, token[name]
        ).json()["id"]
        for name in ("ann", "bob")
    }

    def left() -> dict[str, int]:
        return {n: service.get(f"/v1/responses/{id_}", token[n]).status for n, id_ in ids.items()}

    assert left() == {"ann": 200, "bob": 200}
    assert "erased 1 response\n" in run("erase", "--yes", "--principal", "ann")
    assert left() == {"ann": 404, "bob": 200}


class Keeping(Plugin):
    """Keeps one thing in use, or fails."""

    name = "keeping"
    fails = False
    seen: Subject | None = None

    @hookimpl
    def erase_subject(self, subject: Subject, kept: KeptBeside) -> Removed:
        """Note whom it is about."""
        self.seen = subject
        if self.fails:
            raise OSError("the disk is full")
        return Removed("thing", 2, left=1)


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Keeping:
    made, load = Keeping(), Plugins.load.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Plugins, "load", lambda config, given=(): load(Plugins, config, [*given, made])
    )
    return made


def test_what_is_in_use_stays_and_the_command_says_so(
    sayso_served: Served, file: Path, run: Run, keeping: Keeping
) -> None:
    sayso_served(Agent(model=scripted()), config=file)
    said = run("erase", "--yes", "--principal", "ann", code=1)
    assert "erased 2 things; 1 in use stayed" in said
    assert "run this again later" in said
    assert keeping.seen == Subject(principal="ann")


def test_a_plugin_that_fails_is_named(
    sayso_served: Served, file: Path, run: Run, keeping: Keeping
) -> None:
    sayso_served(Agent(model=scripted()), config=file)
    keeping.fails = True
    said = run("erase", "--yes", "--principal", "ann", code=1)
    assert "keeping" in said and "the disk is full" in said and "run this again" in said
