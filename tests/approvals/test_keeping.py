"""`sayso backup` and `sayso restore` on real services with real stores."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from agents import Call, scripted
from serving import Json, Serve, said, until, user

from databases import empty_schema
from sayso import cli, tool

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `sayso …` on the store at `url`; returns what it says."""

    def call(url: str, *arguments: str, code: int = 0) -> str:
        monkeypatch.setenv("SAYSO_APPROVALS__LEDGER", url)
        capsys.readouterr()
        got = cli.run(arguments)
        out, err = capsys.readouterr()
        assert got == code, out + err
        # The command names the store on stderr and writes JSON on stdout.
        return out if out and code == 0 else out + err

    return call


@dataclass
class Two:
    """A store with something in it, and an empty one of the other kind."""

    used: str
    empty: str


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Two]:
    with empty_schema() as url:
        file = f"sqlite:///{tmp_path / 'approvals.db'}"
        yield Two(file, url) if request.param == "sqlite" else Two(url, file)


class Wiped:
    """An idempotent gated tool that counts its runs, and of which "slow" runs until it may end."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.may_end = Event()

        @tool(requires_approval=True, idempotent=True)
        def wipe(name: str) -> str:
            """Wipe a thing."""
            self.runs.append(name)
            if name == "slow":
                assert self.may_end.wait(60)
            return f"wiped {name}"

        self.tools = [wipe]


def wipe(name: str) -> list[Call]:
    return [Call("w", "wipe", {"name": name})]


def decided(reply: Json) -> list[Json]:
    calls = [{**call, "execute": True} for call in reply["data"]["tool_calls"]]
    return [user("go"), said(reply), user("", data={"tool_calls": calls})]


def test_a_restored_store_starts_no_call_that_may_have_run_since_its_backup(
    served: Serve, stores: Two, tmp_path: Path, run: Run
) -> None:
    wiped, file = Wiped(), tmp_path / "backup.db"
    names = ["ended", "slow", "approved", "pending"]
    script = [wipe("ended"), "well", *map(wipe, names[1:]), "well", "well", "well"]
    service = served(scripted(script, wiped.tools)[0], approvals__ledger=stores.used)
    first = service.chat(user("go"))
    service.chat(*decided(first))
    replies = [first, *(service.chat(user("go")) for _ in names[1:])]
    ids = {n: r["data"]["tool_calls"][0]["id"] for n, r in zip(names, replies, strict=True)}
    with ThreadPoolExecutor() as pool:
        running = pool.submit(service.chat, *decided(replies[1]))
        until(lambda: "slow" in wiped.runs)
        run(stores.used, "approvals", "approve", ids["approved"])
        said_of_backup = run(stores.used, "backup", str(file))
        assert "4 proposals and" in said_of_backup
        assert said_of_backup.endswith(" of the log, which is whole\n")
        assert file.stat().st_mode & 0o777 == 0o600
        wiped.may_end.set()
        running.result(60)
    for reply in replies[2:]:
        service.chat(*decided(reply))
    assert sorted(wiped.runs) == sorted(names)

    restored = run(stores.empty, "restore", str(file))
    for line in ("1 call PENDING: rej", "1 call APPROVED: out", "1 call EXECUTING: out"):
        assert line in restored
    assert "the log is whole" in run(stores.empty, "approvals", "verify")
    again = served(
        scripted(["well"] * 4, wiped.tools)[0],
        approvals__ledger=stores.empty,
        approvals__deciders="any",
    )
    for reply in replies:
        again.ask(*decided(reply))
    assert sorted(wiped.runs) == sorted(names)
    listed = json.loads(run(stores.empty, "approvals", "list", "--json"))
    states = {row["id"]: row["state"] for row in listed}
    assert [states[ids[name]] for name in names] == [
        *("DONE", "INDETERMINATE", "INDETERMINATE", "REJECTED")
    ]
    assert "the log is whole" in run(stores.empty, "approvals", "verify")


def test_a_restore_refuses_what_would_mix_or_damage_a_store(
    served: Serve, stores: Two, tmp_path: Path, run: Run
) -> None:
    file, other = tmp_path / "backup.db", tmp_path / "other.db"
    service = served(scripted([wipe("a")], Wiped().tools)[0], approvals__ledger=stores.used)
    service.chat(user("go"))
    run(stores.used, "backup", str(file))
    assert "exists; choose another name" in run(stores.used, "backup", str(file), code=1)
    refused = run(stores.used, "restore", str(file), code=1)
    assert "not empty" in refused or "move it away" in refused
    other.write_text("no database")
    assert "no approvals store" in run(stores.empty, "restore", str(other), code=1)
    assert "there is no file" in run(stores.empty, "restore", str(tmp_path / "none"), code=1)
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert "has schema 99, and this Sayso knows" in run(stores.empty, "restore", str(file), code=1)
    assert "there is no approvals store" in run(stores.empty, "backup", str(other), code=1)


FULL_DISK = """
import resource, sys
from sayso.cli import run

resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
sys.exit(run(["backup", sys.argv[1]]))
"""


def test_a_backup_on_a_full_disk_names_the_backup_and_leaves_nothing(
    served: Serve, stores: Two, tmp_path: Path
) -> None:
    served(scripted([], [])[0], approvals__ledger=stores.used)
    folder = tmp_path / "backups"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(folder / "today.db")],
        env=os.environ | {"SAYSO_APPROVALS__LEDGER": stores.used},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"sayso: the backup '{folder}/today.db' cannot be written: No space left on device; "
        "check the folder, its permissions and its free space"
    )
    assert list(folder.iterdir()) == []


def test_a_backup_has_one_moment_of_a_store_that_others_write(
    served: Serve, stores: Two, tmp_path: Path, run: Run
) -> None:
    script = [wipe(str(number)) for number in range(60)]
    service = served(scripted(script, Wiped().tools)[0], approvals__ledger=stores.used)
    service.chat(user("go"))
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(service.chat, user("go")) for _ in range(59)]
        for number in range(3):
            assert "which is whole" in run(stores.used, "backup", str(tmp_path / f"{number}.db"))
        assert all(one.result(60)["data"]["tool_calls"] for one in asking)
