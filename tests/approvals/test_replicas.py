"""A warning about two live services with one agent id and different tools (design, section 6, "The
deed": "Agent")."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from agents import scripted
from stages import run

from sayso import Agent, Config, ServiceHost, Tool, tool
from sayso.decisions.replicas import Replicas

WARNING = "two live services have the agent id 'ops' and different tools"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that services share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def restart(namespace: str = "dev") -> Tool:
    """A tool `restart` whose namespace is this one by default."""

    def work(name: str, namespace: str = namespace) -> str:
        """Restart a service."""
        return name

    return tool(work, name="restart", requires_approval=True)


def agent(*tools: Tool, id: str = "ops") -> Agent:
    return scripted([], tools, id=id)[0]


@asynccontextmanager
async def living(agent: Agent, ledger: str, folder: Path) -> AsyncIterator[ServiceHost]:
    """A service of the agent that has noted itself in the store."""
    sections = {
        "plugins": [],
        "server": {"state_dir": folder},
        "approvals": {"ledger": ledger},
    }
    host = ServiceHost.create(agent, Config.model_validate(sections))
    async with host.life():
        # Checked once here by the test; the service checks in the background.
        await Replicas(host.ledger, agent).look()
        yield host


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if WARNING in each.getMessage()]


def test_second_live_service_with_other_tools_is_warned_of(
    ledger: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        with caplog.at_level(logging.WARNING, "sayso"):
            async with living(agent(restart("dev")), ledger, tmp_path):
                async with living(agent(restart("dev")), ledger, tmp_path):
                    assert warnings(caplog) == []
                async with living(agent(restart("prod"), id="other"), ledger, tmp_path):
                    assert warnings(caplog) == []
                async with living(agent(restart("prod")), ledger, tmp_path):
                    assert warnings(caplog)
        reported = warnings(caplog)[0]
        assert reported.count(", process ") == 2
        assert "what differs: restart." in reported
        assert "give one another id: Agent(id=...)" in reported

    run(work())


def test_service_that_has_ended_is_warned_of_no_more(
    ledger: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        with caplog.at_level(logging.WARNING, "sayso"):
            async with living(agent(restart("dev")), ledger, tmp_path):
                pass
            async with living(agent(restart("prod")), ledger, tmp_path):
                assert warnings(caplog) == []

    run(work())


def test_service_that_was_killed_is_forgotten_soon_and_each_other_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        url = f"sqlite:///{tmp_path}/a.db"
        with caplog.at_level(logging.WARNING, "sayso"):
            async with living(agent(), url, tmp_path) as host:
                dead = Replicas(host.ledger, agent(restart("dev")), every=0.1)
                dead._mine += "-dead"
                await dead.look()
                caplog.clear()
                here = Replicas(host.ledger, agent(restart("prod")))
                await here.look()
                await here.look()
                assert len(warnings(caplog)) == 1
                await asyncio.sleep(0.3)
                caplog.clear()
                await Replicas(host.ledger, agent(restart("prod"))).look()
                assert warnings(caplog) == []
                names = await host.ledger.store.run(lambda tx: tx.notes("service:"))
                assert [name for name in names if name.endswith("-dead")] == []

    run(work())
