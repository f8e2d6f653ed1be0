"""Listings of a hostile MCP server neither stop nor slow the service."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.request import Request, urlopen

import pytest

from programs import Program
from sayso import Agent, Config, ServiceHost
from sayso_mcp import mcp_server, source

HOSTILE = Path(__file__).with_name("hostile_server.py")
SCRIPT = f"""
import sys
from sayso import Agent, Call, serve
from sayso.testing import scripted
from sayso_mcp import mcp_server

tools = mcp_server([sys.executable, {str(HOSTILE)!r}], requires_approval=False)
model = scripted([Call("1", "trap", {{"text": "x"}})], "never mind")
agent = Agent(model=model, tools=[tools], name="trapped")

if __name__ == "__main__":
    serve(agent, host="127.0.0.1", port=0)
"""


def test_tool_with_a_hostile_schema_is_left_out_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.FIRST", 120.0)
    tools = mcp_server([sys.executable, str(HOSTILE)])
    config = Config.model_validate(
        {
            "plugins": [],
            "server": {"state_dir": tmp_path, "start_timeout": 180},
            "approvals": {"ledger": "memory://"},
        }
    )

    async def run() -> None:
        host = ServiceHost.create(Agent(model="offline", tools=[tools]), config)
        async with host.life():
            assert set(host.agent.tools) == {"plain"}

    asyncio.run(run())
    said = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    assert len(said) == 2
    assert all("trap" in line and "could take too long" in line for line in said)


def test_service_with_a_hostile_server_answers_and_ends(tmp_path: Path) -> None:
    file = tmp_path / "service.py"
    file.write_text(SCRIPT)
    environ = {**os.environ, "SAYSO_SERVER__STATE_DIR": str(tmp_path / "state")}
    service = Program([sys.executable, str(file)], tmp_path, environ)
    try:
        body = json.dumps({"messages": [{"role": "user", "content": "try it"}]}).encode()
        url = f"http://127.0.0.1:{service.port}/api/chat"
        ask = Request(url, body, {"Content-Type": "application/json"})
        with urlopen(ask, timeout=60) as reply:
            assert json.load(reply)["content"] == "never mind"
        service.process.send_signal(signal.SIGTERM)
        assert service.end() == 0
    finally:
        service.process.kill()
        service.close()


def test_listing_that_takes_too_long_to_read_is_left_at_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source, "MAKING", -1.0)
    server = mcp_server(["nobody"])
    listed = [SimpleNamespace(name=f"tool_{number}") for number in range(3)]
    assert server._made(listed) == []
    assert "3 tools of mcp_server('nobody') are left out" in caplog.text
