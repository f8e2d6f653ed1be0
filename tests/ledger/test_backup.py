"""A backup of a store is put into another one, and what somebody has left is erased."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from databases import empty_schema
from sayso import Agent, Call, tool
from sayso.cli.group import run
from sayso.testing import Service, scripted, served

TOKENS = {"ana": "t0ken-of-ana-that-is-long", "ben": "t0ken-of-ben-that-is-long"}
AUTH = '[auth]\nscheme = "bearer"\n[auth.tokens]\n' + "".join(
    f'{name} = "{token}"\n' for name, token in TOKENS.items()
)
SECRET = "the-quiet-database"


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete something."""
    return f"{name} is gone"


@pytest.fixture(params=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store of each kind."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path / 'approvals.db'}"
        else:
            yield stack.enter_context(empty_schema())


def file_of(folder: Path, ledger: str) -> Path:
    """A configuration with this store."""
    file = folder / "sayso.toml"
    file.write_text(f'[approvals]\nledger = "{ledger}"\n{AUTH}')
    return file


def service_of(ledger: str, stack: ExitStack, *steps: object) -> Service:
    config = f'[approvals]\nledger = "{ledger}"\n{AUTH}'
    agent = Agent(model=scripted(*steps), tools=[delete])  # type: ignore[arg-type]
    return stack.enter_context(served(agent, config=config))


def deletion(name: str) -> list[Call]:
    return [Call("c1", "delete", {"name": name})]


def used(ledger: str) -> tuple[str, str, list[dict[str, Any]]]:
    """Fill the store; returns the ids of a call that was run, and of an open one, with the
    conversation."""
    with ExitStack() as stack:
        service = service_of(ledger, stack, deletion("web"), "done", deletion(SECRET))
        talk = service.conversation(token=TOKENS["ana"])
        talk.say("delete web")
        done = talk.pending[0]["id"]
        talk.approve()
        talk.say("delete the other")
        return done, talk.pending[0]["id"], talk.messages


def shown(config: Path, capsys: pytest.CaptureFixture[str], id: str) -> str:
    assert run(["--config", str(config), "approvals", "show", id]) == 0
    return capsys.readouterr().out


def test_a_backup_is_restored_into_a_store_of_the_other_kind(
    ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, pending, messages = used(ledger)
    before, saved = file_of(tmp_path, ledger), tmp_path / "saved.jsonl.gz"
    assert run(["--config", str(before), "backup", str(saved)]) == 0
    assert saved.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    was = shown(before, capsys, done)
    (tmp_path / "new").mkdir()
    with ExitStack() as stack:
        other = f"sqlite:///{tmp_path / 'new' / 'approvals.db'}"
        if ledger.startswith("sqlite"):
            other = stack.enter_context(empty_schema())
        after = file_of(tmp_path / "new", other)
        assert run(["--config", str(after), "restore", str(saved)]) == 0
        said = capsys.readouterr().out
        assert "expired: 1 open call" in said and "the log is whole" in said
        assert shown(after, capsys, done) == was
        assert SECRET in shown(after, capsys, pending)
        assert "EXPIRED" in shown(after, capsys, pending)
        assert run(["--config", str(after), "approvals", "verify"]) == 0
        capsys.readouterr()
        service = service_of(other, stack, "too late")
        with pytest.raises(AssertionError, match="approval_expired"):
            service.conversation(*messages, token=TOKENS["ana"]).approve()
        assert run(["--config", str(after), "restore", str(saved)]) == 1
        assert "is not empty" in capsys.readouterr().err


def test_a_damaged_backup_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = f"sqlite:///{tmp_path / 'approvals.db'}"
    used(ledger)
    saved = tmp_path / "saved.jsonl.gz"
    assert run(["--config", str(file_of(tmp_path, ledger)), "backup", str(saved)]) == 0
    lines = gzip.decompress(saved.read_bytes()).decode().splitlines(keepends=True)
    assert json.loads(lines[-1])["rows"] == len(lines) - 2
    for number, (text, why) in enumerate(
        (
            ("".join(lines[:-1]), "breaks off"),
            ("".join([*lines[:3], *lines[4:]]), "is damaged"),
            ("hello\n", "is damaged"),
            ('{"a": 1}\n', "no backup of Sayso"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "bad.jsonl").write_text(text)
        config = file_of(folder, f"sqlite:///{folder / 'approvals.db'}")
        assert run(["--config", str(config), "restore", str(folder / "bad.jsonl")]) == 1
        assert why in capsys.readouterr().err


def test_a_principal_is_erased_and_the_log_stays_whole(
    ledger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, pending, _ = used(ledger)
    with ExitStack() as stack:
        service = service_of(ledger, stack, deletion("cache"))
        talk = service.conversation(token=TOKENS["ben"])
        talk.say("delete cache")
        others = talk.pending[0]["id"]
    config = file_of(tmp_path, ledger)
    arguments = ["--config", str(config), "erase", "--principal", "ana"]
    assert run([*arguments, "--yes"]) == 0
    said = capsys.readouterr().out
    assert "2 calls" in said and "1 of them were open" in said
    assert run(["--config", str(config), "approvals", "verify"]) == 0
    capsys.readouterr()
    assert "web" not in shown(config, capsys, done)
    assert SECRET not in shown(config, capsys, pending)
    assert "REJECTED" in shown(config, capsys, pending)
    assert "cache" in shown(config, capsys, others)
    saved = tmp_path / "after.jsonl"
    assert run(["--config", str(config), "backup", str(saved)]) == 0
    assert SECRET not in saved.read_text()


def test_erasing_needs_exactly_one_of_both_and_a_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = str(file_of(tmp_path, f"sqlite:///{tmp_path / 'approvals.db'}"))
    assert run(["--config", config, "erase"]) == 2
    assert run(["--config", config, "erase", "--principal", "a", "--tenant", "b"]) == 2
    monkeypatch.setattr("click.confirm", lambda *a, **k: exit(130))
    assert run(["--config", config, "erase", "--principal", "a"]) != 0
