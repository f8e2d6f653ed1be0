import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sayso_file_ledger import FileStore

from sayso import Agent, Call, ConfigError, tool
from sayso.testing import STORE_CHECKS, scripted, served


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: str(check.__name__))
def test_it_is_a_store(check: Callable[..., Any], tmp_path: Path) -> None:
    asyncio.run(check(lambda: FileStore(f"file://{tmp_path}/approvals.json")))


def test_approval_outlives_the_service(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    def delete(name: str) -> str:
        ran.append(name)
        return "deleted"

    model = scripted([Call("1", "delete", {"name": "a"})], "Gone.")
    config = f'[approvals]\nledger = "file://{tmp_path}/approvals.json"\n'
    agent = Agent(model=model, tools=[delete])
    with served(agent, config=config) as service:
        talk = service.conversation()
        talk.say("delete a")
    with served(agent, config=config) as service:
        again = service.conversation(*talk.messages)
        assert again.approve()["content"] == "Gone."
        assert service.chat(*again.messages[:-1])["content"] == "Gone."
    assert ran == ["a"]


def test_broken_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "approvals.json").write_text("{")
    config = f'[approvals]\nledger = "file://{tmp_path}/approvals.json"\n'
    with pytest.raises(ConfigError, match=r"approvals\.json' cannot be used"):
        with served(Agent(model=scripted()), config=config):
            pass
