"""`sayso erase` on the stores of real services."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest
from agents import Counted, delete, scripted
from serving import Json, Serve, Service, approved, said, user

from sayso import cli

KEYS = {
    "auth__scheme": "bearer",
    "auth__tokens": {"ann": "token-ann", "bob": "token-bob"},
    "approvals__deciders": "any",
}
ANN = {"Authorization": "Bearer token-ann"}
BOB = {"Authorization": "Bearer token-bob"}
Run = Callable[..., str]


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `sayso erase …` or `sayso approvals …` on the store; returns what it says."""
    monkeypatch.setenv("SAYSO_APPROVALS__LEDGER", url)

    def call(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        group = () if arguments[0] == "erase" else ("approvals",)
        got = cli.run([*group, *arguments])
        out, err = capsys.readouterr()
        assert got == code, out + err
        # The command names the store on stderr and writes JSON on stdout.
        return out if out and code == 0 else out + err

    return call


def do(url: str, statement: str) -> list[tuple[str, ...]]:
    """The rows of a statement that bypasses the store."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
            return file.execute(statement).fetchall()
    with psycopg.connect(url) as server:
        done = server.execute(statement.encode())
        return done.fetchall() if done.description else []


def everything(url: str) -> str:
    tables = ("meta", "proposals", "contents", "turns", "log")
    return json.dumps([do(url, f"SELECT * FROM sayso_{name}") for name in tables])


def run_for(service: Service, asks: Json, decides: Json) -> str:
    reply = service.chat(user("wipe"), headers=asks)
    (call,) = reply["data"]["tool_calls"]
    last = user("", data={"tool_calls": [approved(call)]})
    service.chat(user("wipe"), said(reply), last, headers=decides)
    id_: str = call["id"]
    return id_


def test_nothing_of_an_erased_person_is_left_and_the_log_stays_verifiable(
    served: Serve, url: str, run: Run
) -> None:
    script = [[delete("anns-secret")], "gone", [delete("bobs")], "gone", [delete("anns-own")]]
    service = served(scripted(script, Counted().tools)[0], **KEYS, approvals__ledger=url)
    anns = run_for(service, ANN, BOB)
    bobs = run_for(service, BOB, ANN)
    pending = service.chat(user("wipe"), headers=ANN)["data"]["tool_calls"][0]["id"]
    hashes = do(url, "SELECT chain, seq, hash FROM sayso_log ORDER BY chain, seq")
    said_of_it = run("erase", "--yes", "--principal", "ann", code=1)
    assert "erased 1 call, a part in 1 call of others" in said_of_it
    assert "1 call may still run and stayed" in said_of_it
    assert f"there is no proposal '{anns}'" in run("show", anns, code=1)
    assert json.loads(run("show", pending, "--json"))["principal"] == "ann"
    assert "the log is whole" in run("verify")

    run("reject", pending)
    assert "erased 1 call, a part in 0 calls" in run("erase", "--yes", "--principal", "ann")
    left = everything(url)
    assert '\\"ann\\"' not in left
    assert "anns-" not in left
    shown = json.loads(run("show", bobs, "--json"))
    assert (shown["state"], shown["decision"]["who"]) == ("DONE", "(erased)")
    assert "the log is whole" in run("verify")
    kept = set(do(url, "SELECT chain, seq, hash FROM sayso_log"))
    assert set(hashes) <= kept
    assert "0 calls, a part in 0 calls of others, 0 grants, and 0 rows" in run(
        "erase", "--yes", "--principal", "ann"
    )


def test_rows_that_no_erasure_accounts_for_are_found(served: Serve, url: str, run: Run) -> None:
    service = served(
        scripted([[delete("a")], "gone"], Counted().tools)[0], **KEYS, approvals__ledger=url
    )
    id_ = run_for(service, ANN, BOB)
    fake = json.dumps({"event": "erased", "was": "approved", "id": id_})
    do(url, f"UPDATE sayso_log SET entry = '{fake}' WHERE entry LIKE '%\"approved\"%'")
    assert "was erased, and no erasure accounts for that" in run("verify", code=1)


def test_the_calls_of_a_tenant_are_erased_and_those_of_others_stay(
    served: Serve, url: str, run: Run
) -> None:
    keys = {**KEYS, "auth__tokens": {}, "auth__scheme": "none"}
    service = served(
        scripted([[delete("one")], [delete("two")]], Counted().tools)[0],
        **keys,
        approvals__ledger=url,
    )
    ids = [service.chat(user("wipe"))["data"]["tool_calls"][0]["id"] for _ in range(2)]
    row = do(url, f"SELECT doc FROM sayso_proposals WHERE id = '{ids[0]}'")[0][0]
    marked = json.dumps({**json.loads(row), "tenant": "acme"})
    do(url, f"UPDATE sayso_proposals SET doc = '{marked}' WHERE id = '{ids[0]}'")
    for id_ in ids:
        run("reject", id_)
    assert "erased 1 call," in run("erase", "--yes", "--tenant", "acme")
    assert "there is no proposal" in run("show", ids[0], code=1)
    assert json.loads(run("show", ids[1], "--json"))["state"] == "REJECTED"
    assert "the log is whole" in run("verify")
    assert "give either" in run("erase", code=2)
