"""`/metrics` as Prometheus reads it, from one process and from several."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sayso import Agent, Call, LedgerUnavailable, Reply, Turn, Usage, tool
from sayso.testing import Served, scripted
from sayso_metrics import Metrics

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from ports import quiet_port
from programs import DEADLINE, Program, until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """The samples of an exposition, by name and labels; each name is introduced once."""
    introduced = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert sorted(introduced) == sorted(set(introduced))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    return sum(v for (n, have), v in found.items() if n == name and labels.items() <= set(have))


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete something."""
    return f"{name} is gone"


def test_turns_tokens_and_approvals_are_counted_and_nobody_is_named(sayso_served: Served) -> None:
    config = '[auth]\nscheme = "bearer"\n[auth.tokens]\nana = "t0ken-of-ana-that-is-long"\n'
    first = Reply(
        Turn("assistant", [Call("c1", "delete", {"name": "web"})]), "tool_use", Usage(7, 3, 2, 1)
    )
    steps = first, "done", [Call("c2", "delete", {"name": "db"})]
    agent = Agent(model=scripted(*steps), tools=[delete])
    service = sayso_served(agent, [Metrics()], config=config)
    token = "t0ken-of-ana-that-is-long"
    talk = service.conversation(token=token)
    talk.say("delete web")
    talk.approve()
    talk.say("delete db")
    for _ in range(2):
        assert service.get("/metrics").status == 401
    assert service.ask("hello", headers={"Authorization": "Bearer wr0ng"}).status == 401
    answer = service.get("/metrics", {"Authorization": f"Bearer {token}"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.text)
    assert value(found, "sayso_turns_total", outcome="approval_required") == 2
    assert value(found, "sayso_turns_total", outcome="end_turn", protocol="v2") == 1
    assert value(found, "sayso_model_tokens_total", type="input") == 7
    assert value(found, "sayso_model_tokens_total", type="cache_read") == 2
    assert value(found, "sayso_tool_calls_total", tool="delete", outcome="done") == 1
    assert value(found, "sayso_approval_changes_total", event="proposed", tool="delete") == 2
    assert value(found, "sayso_approval_wait_seconds_count", decision="approved") == 1
    assert value(found, "sayso_approvals", state="pending") == 1
    assert value(found, "sayso_ledger_duration_seconds_count", operation="propose") >= 2
    assert value(found, "sayso_approval_ttl_seconds") > 0
    refused = "sayso_authentication_refused_total"
    assert value(found, refused, protocol="metrics", reason="missing") == 2
    assert value(found, refused, protocol="v2", reason="wrong") == 1
    assert value(found, refused) == 3
    assert "wr0ng" not in answer.text
    assert "ana" not in answer.text.split()


def test_each_metric_has_a_description_of_its_own(sayso_served: Served) -> None:
    text = sayso_served(Agent(model=scripted()), [Metrics()]).get("/metrics").text
    lines = [line.split(maxsplit=3) for line in text.splitlines() if line.startswith("# HELP")]
    described = [what for _, _, name, what in lines if not name.endswith("_created")]
    assert len(described) > 20
    assert [what for what in described if len(what.split()) < 3] == []
    assert sorted(described) == sorted(set(described))


def test_an_outcome_that_the_store_does_not_take_is_counted_until_it_does(
    sayso_served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(model=scripted([Call("c1", "delete", {"name": "web"})], "done"), tools=[delete])
    service = sayso_served(agent, [Metrics()])

    async def refuses(*given: Any, **more: Any) -> Any:
        raise LedgerUnavailable("the disk is full")

    for name in ("finish", "finish_last"):
        monkeypatch.setattr(type(service.host.engine.ledger), name, refuses)

    def unrecorded() -> float:
        return value(samples(service.get("/metrics").text), "sayso_outcomes_unrecorded")

    talk = service.conversation()
    talk.say("delete web")
    approving = threading.Thread(target=talk.approve)
    approving.start()
    until(lambda: unrecorded() == 1)
    monkeypatch.undo()
    approving.join(DEADLINE)
    until(lambda: unrecorded() == 0)


def test_a_port_of_its_own_needs_no_token(sayso_served: Served) -> None:
    port = quiet_port()
    config = '[auth]\nscheme = "bearer"\n[auth.tokens]\nana = "t0ken-of-ana-that-is-long"\n'
    plugin = Metrics(Metrics.Settings(port=port))
    service = sayso_served(Agent(model=scripted("fine")), [plugin], config=config)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        assert "sayso_turns_in_flight" in answer.read().decode()
    assert service.get("/metrics").status in (401, 404)


AGENT = """
import os
from sayso import Agent, Reply, Text, TextDelta, Turn


class Pid:
    provider = "stand-in"
    name = "pid"

    async def stream(self, ask):
        said = str(os.getpid())
        yield TextDelta(said)
        yield Reply(Turn("assistant", [Text(said)]), "end_turn")


agent = Agent(model=Pid())
"""


@pytest.fixture(params=["own", "shared"])
def workers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Program, int]]:
    """Two workers, and the port of their metrics."""
    (tmp_path / "ops.py").write_text(AGENT)
    own = quiet_port() if request.param == "own" else 0
    (tmp_path / "sayso.toml").write_text(
        'agent = "ops.py"\nplugins = ["v2", "metrics"]\n[server]\nport = 0\nworkers = 2\n'
        f'host = "127.0.0.1"\nstate_dir = "{tmp_path / "state"}"\n'
        + (f"[plugin.metrics]\nport = {own}\n" if own else "")
    )
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with closing(Program([sys.executable, "-m", "sayso", "serve"], tmp_path, environ)) as program:
        yield program, own or program.port


def test_a_scrape_has_the_sum_of_all_workers_also_after_one_has_died(
    workers: tuple[Program, int],
) -> None:
    program, metrics = workers
    port = program.port

    def turn() -> int:
        body = b'{"messages": [{"role": "user", "content": "hello"}]}'
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/api/chat", body, headers)
        with urllib.request.urlopen(asked, timeout=DEADLINE) as answer:
            return int(json.load(answer)["content"])

    def scraped() -> Samples:
        address = f"http://127.0.0.1:{metrics}/metrics"
        with urllib.request.urlopen(address, timeout=DEADLINE) as answer:
            return samples(answer.read().decode())

    def answers() -> bool:
        try:
            return bool(scraped())
        except OSError:
            return False

    # The process with the port of its own may start after the workers.
    until(answers)
    pids = {turn() for _ in range(20)}
    total = 20
    while len(pids) < 2:
        pids.add(turn())
        total += 1
    assert {value(scraped(), "sayso_turns_total") for _ in range(6)} == {total}
    starts = value(scraped(), "sayso_process_starts_total")
    os.kill(pids.pop(), signal.SIGKILL)
    until(answers)
    until(lambda: value(scraped(), "sayso_process_starts_total") == starts + 1)
    assert value(scraped(), "sayso_turns_total") == total
    # A scrape comes every few seconds, and would fill the log.
    assert "GET /metrics" not in program.said
