"""The command line lists, shows and decides calls of a store, and of a running service, alike."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from sayso import Agent, Call, tool
from sayso.cli import run
from sayso.testing import Served, Service, scripted, user
from sayso_mcp import MCP

CONFIG = """
plugins = ["v2", "approvals"]
[auth]
scheme = "bearer"
[auth.tokens]
ann = "token-of-ann"
bob = "token-of-bob"
[auth.principals.ann]
kind = "person"
[auth.principals.bob]
kind = "person"
[approvals]
deciders = "any"
grants = true
run = "caller"
ledger = "sqlite:///{folder}/calls.db"
"""
Cli = Callable[..., str]


class World:
    """A service, its configuration file, and the command line that reads its store or asks it."""

    def __init__(self, served: Served, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        @tool(requires_approval=True, editable=True)
        def restart(name: str) -> str:
            """Restart a service."""
            return f"restarted {name}"

        self.file = folder / "sayso.toml"
        self.file.write_text(CONFIG.format(folder=folder), "utf-8")
        steps = [[Call("1", "restart", {"name": name})] for name in ("web", "db")]
        agent = Agent(name="ops", model=scripted(*steps, *["done"] * 9), tools=[restart])
        self.service: Service = served(agent, config=self.file)
        self._capsys = capsys

    def propose(self) -> str:
        body = {"messages": [user("restart it")]}
        reply = self.service.post("/api/chat", body, {"Authorization": "Bearer token-of-ann"})
        id_: str = reply.json()["data"]["tool_calls"][0]["id"]
        return id_

    def __call__(self, *arguments: str, url: bool, code: int = 0, token: str = "bob") -> str:
        options = ["--config", str(self.file)]
        if url:
            options = ["--url", self.service.url, "--token", f"token-of-{token}"]
        self._capsys.readouterr()
        assert run(["approvals", *arguments, *options]) == code
        self.out, self.err = self._capsys.readouterr()
        return self.out if code == 0 else self.err


@pytest.fixture
def sayso(sayso_served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> World:
    return World(sayso_served, tmp_path, capsys)


BOTH = pytest.mark.parametrize("url", [False, True], ids=["store", "service"])


def test_store_and_service_give_the_same_lines(sayso: World) -> None:
    web, db = sayso.propose(), sayso.propose()
    lists = [sayso("list", url=url) for url in (False, True)]
    assert lists[0] == lists[1]
    assert [web in lists[0].splitlines()[0], db in lists[0].splitlines()[1]] == [True, True]
    shown = [json.loads(sayso("show", web, "--json", url=url)) for url in (False, True)]
    of_reader = {"own", "mine", "barred", "editable", "log"}
    one, other = ({n: v for n, v in each.items() if n not in of_reader} for each in shown)
    assert one == other
    # Only who reads the store reads the log, too.
    texts = [sayso("show", web, url=url) for url in (False, True)]
    assert texts[0].startswith(texts[1])
    assert "log          " in texts[0].removeprefix(texts[1])


@BOTH
def test_list_takes_filters_and_says_what_it_reads(sayso: World, url: bool) -> None:
    web, db = sayso.propose(), sayso.propose()
    listed = sayso("list", "--text", "WEB", url=url)
    assert (web in listed, db in listed) == (True, False)
    place = sayso.service.url if url else "calls.db"
    assert sayso.err.startswith("reading ") and place in sayso.err
    assert sayso("list", "--tool", "nope", url=url) == "no call fits these options\n"
    assert db in sayso("list", "--requester", "ann", "--state", "pending", url=url)
    assert sayso("list", "--state", "done", url=url) == "no call is DONE\n"
    assert [row["id"] for row in json.loads(sayso("list", "--json", url=url))] == [web, db]
    assert db in sayso("list", "--limit", "1", url=url)


@BOTH
def test_show_is_for_people_and_has_the_times(sayso: World, url: bool) -> None:
    id_ = sayso.propose()
    sayso("approve", id_, "--reason", "it hangs", url=url)
    shown = sayso("show", id_, url=url).splitlines()
    facts = dict(line.split(maxsplit=1) for line in shown if line[:1].isalpha() and " " in line)
    assert (facts["call"], facts["state"], facts["what"][:7]) == (id_, "APPROVED", "restart")
    for name in ("proposed", "expires"):
        assert facts[name][:2] == "20" and facts[name].endswith("Z")
    over = "inbox" if url else "cli"
    assert facts["decided"].startswith("approved by ")
    assert facts["decided"].endswith(f"over {over}: it hangs")
    assert '    "name": "web"' in shown


@BOTH
def test_decision_is_recorded_and_refusals_say_why(sayso: World, url: bool) -> None:
    web, db = sayso.propose(), sayso.propose()
    assert f"{web}  APPROVED  restart" in sayso("approve", web, url=url)
    assert f"{db}  REJECTED" in sayso("reject", db, "--reason", "not now", url=url)
    assert "approved before" in sayso("reject", web, url=url, code=1)
    assert "there is no" in sayso("show", "nope", url=url, code=1)
    row = json.loads(sayso("show", db, "--json", url=url))
    assert row["decision"]["reason"] == "not now"
    assert row["decision"]["who"] == ("bob" if url else row["decision"]["who"])


@BOTH
def test_edited_call_is_approved_only_by_somebody_who_has_seen_it(sayso: World, url: bool) -> None:
    id_ = sayso.propose()
    record = sayso.service.host.record

    def edit(tx: Any) -> None:
        (row,) = tx.proposals([id_]).values()
        row.edited, row.revision = {"name": "mail"}, 2
        tx.put(row)

    asyncio.run(record._run(edit))
    refused = sayso("approve", id_, url=url, code=1)
    assert "changed" in refused
    seen = json.loads(sayso("show", id_, "--json", url=url))["seen"]
    assert "APPROVED" in sayso("approve", id_, "--seen", seen, url=url)


@BOTH
def test_grants_are_given_listed_and_revoked(sayso: World, url: bool) -> None:
    id_ = sayso.propose()
    terms = ["--uses", "3", "--for", "8h", "--reason", "night shift"]
    made = sayso("grant", id_, *terms, "--argument", "name=w*", url=url)
    assert made.startswith("open  ") and '{"name": "w*"}' in made and "0 of 3 used" in made
    assert sayso("grants", url=url) == made
    (grant,) = json.loads(sayso("grants", "--json", url=url))
    assert (grant["holder"], grant["match"], grant["claimed"]) == ("ann", "pattern", not url)
    assert "revoked" in sayso("revoke", grant["id"], url=url)
    assert "there is no" in sayso("revoke", "nope", url=url, code=1)
    assert "no argument 'nome'" in sayso(
        "grant", id_, *terms, "--argument", "nome=x", url=url, code=1
    )


def test_requester_gives_itself_no_grant(sayso: World) -> None:
    id_ = sayso.propose()
    terms = ["--uses", "1", "--for", "1h", "--reason", "mine"]
    refused = sayso("grant", id_, *terms, url=True, code=1, token="ann")
    assert "somebody else" in refused


@BOTH
def test_starts_are_stopped_and_go_on(sayso: World, url: bool) -> None:
    assert "no approved call starts" in sayso("freeze", "--reason", "an attack", url=url)
    assert "start again" in sayso("thaw", url=url)
    assert "nothing was stopped" in sayso("thaw", url=url)


def test_service_that_does_not_answer_or_admit_is_named(sayso: World) -> None:
    assert "token" in sayso("list", url=True, code=1, token="nobody")
    run_ = ["approvals", "list", "--url", "http://127.0.0.1:1"]
    assert run(run_) == 1
    assert run(["approvals", "list", "--url", "ftp://x"]) == 1


def test_help_of_approve_names_a_value_that_the_setting_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["approvals", "approve", "--help"]) == 0
    (named,) = re.findall(r'plugin\.mcp\.approvals is "(\w+)"', capsys.readouterr().out)
    assert named in get_args(get_type_hints(MCP.Settings)["approvals"])
