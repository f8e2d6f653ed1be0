"""The benchmarks' servers start and answer correctly, and the report has the findings; no
timing."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import goals, growth, peers, report, scenarios, stores, workers
from benchmarks.catalogue import OTHERS, attempt
from benchmarks.load import LoadError, Whole, once, post
from benchmarks.measure import Result, Round, measure
from benchmarks.process import free_port
from benchmarks.process import running as started
from benchmarks.scenarios import SCENARIOS, SMALL, Scenario, Target

ROOT = Path(__file__).resolve().parent.parent
REPLY = SCENARIOS[0].expects
running = partial(started, patience=180.0)


def servers() -> dict[tuple[str, ...], list[tuple[Scenario, Target]]]:
    """The turns that each server is asked for, by its program and arguments."""
    found: dict[tuple[str, ...], list[tuple[Scenario, Target]]] = {}
    for scenario in SCENARIOS:
        for target in scenario.targets.values():
            key = (target.script, *target.arguments)
            found.setdefault(key, []).append((scenario, target))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("server", servers(), ids=" ".join)
def test_server_gives_the_reply_that_its_scenarios_expect(server: tuple[str, ...]) -> None:
    script, *arguments = server
    with running(script, script, arguments) as process:
        for scenario, target in servers()[server]:
            turn = asyncio.run(once(scenario.kind, process.port, scenario.request(target)))
            assert scenario.expects in turn.last_body, scenario.name
            assert len(turn.whole) == len(turn.first) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("intercepted", "count=2", "responses=true"),
        ("intercepted", "count=1", "responses=true", "router=true"),
        ("tools", "count=50"),
    ],
    ids=" ".join,
)
def test_growing_agents_answer(arguments: tuple[str, ...]) -> None:
    body = growth.ROUTED if "router=true" in arguments else SMALL
    with running("growing", "sayso_server", arguments) as process:
        turn = asyncio.run(once(Whole, process.port, post("/api/chat", body)))
    assert REPLY in turn.last_body


def test_flood_counts_whole_replies() -> None:
    with running("flooded", "sayso_server", ("reply",)) as process:
        flooded = workers.flood(process, post("/api/chat", SMALL), 2, 0.05)
        assert flooded.turns > 0
        assert flooded.turns % workers.DEPTH == 0


def test_flood_refuses_what_is_no_reply() -> None:
    with running("flooded", "sayso_server", ("reply",)) as process, pytest.raises(LoadError):
        workers.flood(process, post("/api/chat", b"{}"), 1, 0.05)


def test_rows_filled_beforehand_leave_the_ledger_usable(tmp_path: Path) -> None:
    path = tmp_path / "approvals.db"
    asyncio.run(growth.fill(path, 0, 30))
    with running("filled", "sayso_server", ("approval", f'ledger="sqlite:///{path}"')) as process:
        found = asyncio.run(stores.approved(process, 8))
    assert found["approvals a second"] > 0


def test_store_that_nobody_serves_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(stores.POSTGRES, f"postgresql://127.0.0.1:{free_port()}/none")
    with pytest.raises(stores.NoServer, match=f"set {stores.POSTGRES} to a database"):
        with stores.postgres():
            raise AssertionError("no server runs there")


def test_failed_measurement_is_said_and_ends_no_other() -> None:
    def fails(run: object, quick: bool) -> dict[str, Any]:
        raise LoadError("no reply")

    said: list[str] = []
    with asyncio.Runner() as runner:
        assert attempt("it", fails, runner.run, True, said.append) is None
    assert said == ["it", "  failed: no reply"]


def test_refusal_is_an_error_of_the_load() -> None:
    with running("refusing", "sayso_server", ("reply",)) as process:
        with pytest.raises(LoadError, match="422|400"):
            asyncio.run(once(Whole, process.port, post("/api/chat", b'{"messages": []}')))


def test_server_that_cannot_start_is_left_out_and_said() -> None:
    given = replace(
        SCENARIOS[0],
        targets={"none": Target("sayso_server", ("no_such_agent",))},
    )
    said: list[str] = []
    with asyncio.Runner() as runner:
        result = measure(given, {}, rounds=1, scale=0.01, say=said.append, run=runner.run)
    assert not result.rounds
    assert "no_such_agent" in result.failed["none"]
    assert "none is left out" in said[0]


def test_history_is_of_the_size_that_its_name_says() -> None:
    for body in (scenarios.HISTORY, scenarios.KNOWN):
        assert 60_000 < len(body) < 64_000


def test_numbered_target_never_sends_a_number_twice() -> None:
    target = peers.TARGETS["small turn, 32 connections"]["google-adk"]
    given = SCENARIOS[0].requests(target)
    first, second = next(given), next(given)
    assert len(first) == len(second)
    assert [json.loads(r.split(b"\r\n\r\n")[1])["session_id"] for r in (first, second)] == [
        "000000",
        "000001",
    ]


def test_peers_answer_scenarios_that_there_are() -> None:
    assert set(peers.TARGETS) <= {scenario.name for scenario in SCENARIOS}
    programs = {path.stem for path in (ROOT / "benchmarks" / "servers").glob("*.py")}
    asked = {target.script for each in peers.TARGETS.values() for target in each.values()}
    assert asked <= programs


def made_up() -> report.Report:
    """A report of a run in which Sayso took 100 µs a turn and all others 300."""

    def rounds(cpu: float) -> list[Round]:
        return [Round(10, cpu, 900.0, 1000.0, 300.0, 400.0, 0.1)] * 3

    turns = {
        scenario.name: Result(
            scenario.name,
            {name: rounds(100.0 if name == "sayso" else 300.0) for name in scenario.targets},
        )
        for scenario in SCENARIOS
    }
    start: dict[str, Any] = {"start, × plain": 1.3, "sayso, V1 and V2": {"idle MB": 44}}
    return report.Report(report.about({"agno": {"agno": "1"}}, 3, False), turns, {"start": start})


def test_report_is_kept_and_read_again(tmp_path: Path) -> None:
    made_up().save(tmp_path)
    assert report.load(tmp_path) == made_up()


def test_report_says_what_is_reached_and_what_is_not() -> None:
    reported = goals.table(made_up())
    assert "| small turn, 32 connections | CPU: × plain | ≥ 2 | ≥ 3 | 3 | stretch |" in reported
    assert "| start | first /health: × plain | ≤ 1.1 | ≤ 0.95 | 1.3 | **missed** |" in reported
    turn_table = report.turns(list(made_up().turns.values()))
    assert "| small turn, 1 connection | plain | 300 | 3.00 (3.00 to 3.00) |" in turn_table
    assert "| start | idle MB | ≤ 45 |  | 44 | reached |" in reported
    assert "agno" not in reported


def test_report_begins_with_the_three_worst_ratios() -> None:
    from benchmarks.__main__ import page

    given = made_up()
    for name, cpu in (("62 KB", 90.0), ("tool turn as", 80.0), ("256", 70.0)):
        where = next(scenario.name for scenario in SCENARIOS if name in scenario.name)
        for each in given.turns[where].rounds["plain"]:
            each.cpu = cpu
    first = page(given).splitlines()[:5]
    assert first[0] == "**Worst ratios**"
    assert [line.split(":")[0] for line in first[2:]] == [
        "- small turn, 256 connections",
        "- tool turn as sent, 32 connections",
        "- 62 KB with outcomes, 32 connections",
    ]
    assert first[2].endswith(": 0.70 × plain, 3.00 × limit")


def test_body_of_a_file_is_sent_to_each_kind_of_agent(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_bytes(scenarios.ASKED)
    command = [sys.executable, "-m", "benchmarks", "--body", str(file)]
    run = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    listed = run([*command, "--list"]).stdout.splitlines()
    assert listed == [scenario.name for scenario in scenarios.own(b"{}")]
    file.write_text("no JSON")
    refused = run(command)
    assert refused.returncode == 2
    assert "is no file of JSON" in refused.stderr


def test_bodies_as_sent_have_what_real_clients_send() -> None:
    [message] = json.loads(scenarios.ASKED)["messages"]
    context = message["platform_context"]
    assert {"user_id", "tenant_name", "k8s_namespace", "kubeconfig"} <= context.keys()
    messages = json.loads(scenarios.OUTCOMES)["messages"]
    assert len(messages) == 40 and 60_000 < len(scenarios.OUTCOMES) < 64_000
    replies = [message for message in messages if message["role"] == "assistant"]
    assert len(replies) == 19
    for reply in replies:
        [call] = reply["data"]["executed_tool_calls"]
        assert reply["agent"] and reply["meta_data"] and 1000 <= len(call["output"]) <= 2000


def test_each_body_of_a_growing_conversation_continues_the_one_before_and_none_comes_twice() -> (
    None
):
    named = {scenario.name: scenario for scenario in SCENARIOS}
    scenario = named["growing to 62 KB, Agent, 32 connections"]
    sent = [
        r.split(b"\r\n\r\n")[1] for r in islice(scenario.requests(scenario.targets["sayso"]), 2000)
    ]
    assert len(set(sent)) == len(sent)
    talks: dict[str, list[dict[str, Any]]] = {}
    for messages in (json.loads(body)["messages"] for body in sent):
        number, _, _ = messages[0]["content"].partition(" ")
        before = talks.get(number, [])[:-1]
        assert messages[: len(before)] == before
        assert number not in talks or len(messages) == len(before) + 3
        talks[number] = messages
    assert len(talks) > scenarios.TOGETHER


def test_each_goal_names_a_measurement_that_there_is() -> None:
    there = {scenario.name for scenario in SCENARIOS} | set(OTHERS)
    assert {goal.where for goal in goals.goals()} <= there


def test_report_replaces_what_stands_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", "utf-8")
    report.write_page("new", page)
    assert page.read_text("utf-8") == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    assert report.PAGE.read_text("utf-8").count(report.END) == 1


@pytest.mark.parametrize("options", [["--help"], ["--list"]], ids=" ".join)
def test_command_line_teaches(options: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks", *options]
    reported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in ("small turn", "growth of ledger rows") if "--list" in options else ("--only",):
        assert name in reported


def test_unknown_name_is_refused_with_the_way_out() -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "no such"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "try: --list" in done.stderr


def test_page_holds_the_versions_and_every_scenario() -> None:
    from benchmarks.__main__ import page

    reported = page(made_up())
    assert re.search(r"fastapi \d", reported)
    for name in lines():
        assert name in reported


def lines() -> Iterator[str]:
    yield from (scenario.name for scenario in SCENARIOS)
    yield "Peer agno: agno 1."
