"""A call approved for the tool of one MCP server runs on no other (design, "The deed")."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from sayso import Agent, Caller, Config, ConfigError, InvalidRequest, ServiceHost
from sayso_mcp import MCPServer, mcp_server
from sayso_mcp.source import Choice

SERVER = """
import json, sys
NAME, MARK, WORDS = sys.argv[1:4]
TOOL = {
    "name": "wipe",
    "description": WORDS,
    "inputSchema": {
        "type": "object",
        "properties": {"disk": {"type": "string"}, "force": {"type": "boolean", "default": True}},
    },
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    match asked["method"]:
        case "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                      "serverInfo": {"name": NAME, "version": "1"}}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            open(MARK, "a").write(NAME + "\\n")
            result = {"content": [{"type": "text", "text": "wiped by " + NAME}]}
        case _:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                              "error": {"code": -32601, "message": "no"}}), flush=True)
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
SOMEBODY = Caller("test")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server more time to start than the service does by default."""
    monkeypatch.setattr("sayso_mcp.connection.FIRST", 120.0)


def server(folder: Path, name: str, words: str = "Wipe a disk.", **options: Any) -> MCPServer:
    """The server in the file `name.py`, which also calls itself `name`."""
    program = folder / f"{name}.py"
    program.write_text(SERVER, "utf-8")
    return mcp_server([sys.executable, str(program), name, str(folder / "ran"), words], **options)


def host(folder: Path, source: MCPServer) -> ServiceHost:
    agent = Agent(model="offline", name="ops", tools=[source])
    given = {"state_dir": folder, "start_timeout": 180}
    return ServiceHost.create(agent, Config.model_validate({"plugins": [], "server": given}))


async def proposed(folder: Path, source: MCPServer) -> Any:
    service = host(folder, source)
    async with service.life():
        return await service.calls.propose("wipe", {"disk": "a"}, SOMEBODY)


async def decided(folder: Path, source: MCPServer, id_: str) -> Any:
    service = host(folder, source)
    async with service.life():
        try:
            return await service.calls.decide(id_, SOMEBODY, approved=True)
        except InvalidRequest as error:
            row = await service.calls.look(id_, SOMEBODY)
            return error.items[0]["type"], row.state if row else None


def test_another_server_does_not_run_what_was_approved_as_the_first_ones(tmp_path: Path) -> None:
    async def run() -> None:
        row = await proposed(tmp_path, server(tmp_path, "one"))
        assert "mcp:one:" in row.source
        found = await decided(tmp_path, server(tmp_path, "other"), row.id)
        assert found == ("approval_tool_changed", "PENDING")
        assert not (tmp_path / "ran").exists()
        ended = await decided(tmp_path, server(tmp_path, "one"), row.id)
        assert (ended.state, ended.output) == ("DONE", "wiped by one")

    asyncio.run(run())


def test_a_description_that_the_server_dates_kills_nothing_that_waits(tmp_path: Path) -> None:
    async def run() -> None:
        source = server(tmp_path, "one", "Wipe a disk, on Monday.")
        row = await proposed(tmp_path, source)
        later = server(tmp_path, "one", "Wipe a disk, on Monday.")
        (tmp_path / "one.py").write_text(SERVER.replace("WORDS,", "WORDS + ' Tuesday',"), "utf-8")
        assert (await decided(tmp_path, later, row.id)).state == "DONE"

    asyncio.run(run())


def test_another_tool_that_has_the_same_name_here_does_not_run(tmp_path: Path) -> None:
    """`odd.wipe` and `odd_wipe` of one server are both named `odd_wipe` here; after a restart only
    the other one may be left."""

    def listing(name: str) -> MCPServer:
        source = server(tmp_path, "one")
        program = SERVER.replace('"name": "wipe"', f'"name": "{name}"')
        (tmp_path / "one.py").write_text(program, "utf-8")
        return source

    async def run() -> None:
        service = host(tmp_path, listing("odd.wipe"))
        async with service.life():
            row = await service.calls.propose("odd_wipe", {"disk": "a"}, SOMEBODY)
        found = await decided(tmp_path, listing("odd_wipe"), row.id)
        assert found == ("approval_tool_changed", "PENDING")
        assert not (tmp_path / "ran").exists()
        assert (await decided(tmp_path, listing("odd.wipe"), row.id)).state == "DONE"

    asyncio.run(run())


def test_defaults_of_a_server_are_shown_and_not_sent(tmp_path: Path) -> None:
    async def run() -> None:
        row = await proposed(tmp_path, server(tmp_path, "one"))
        assert row.input == {"disk": "a"}
        assert row.input_description["force"]["default"] is True

    asyncio.run(run())


@pytest.mark.parametrize("pattern", ["fs_wi*", "wi*", "wipe", "fs_wipe"])
def test_a_pattern_fits_the_servers_name_and_the_one_with_the_prefix(pattern: str) -> None:
    choice = Choice([pattern], (), [pattern], "fs_")
    assert choice.takes("wipe")
    assert choice.gates("wipe")
    assert not Choice(None, [pattern], True, "fs_").takes("wipe")


@pytest.mark.parametrize(
    "options",
    [
        {"requires_approval": ["fs_write_*"]},
        {"requires_approval": ["wipe", "wright"]},
        {"include": ["wipe", "wright"]},
        {"exclude": ["wright"]},
    ],
)
def test_a_pattern_that_fits_no_tool_stops_the_start(tmp_path: Path, options: Any) -> None:
    async def run() -> None:
        service = host(tmp_path, server(tmp_path, "one", prefix="fs_", **options))
        with pytest.raises(ConfigError, match=r"(fs_write_\*|wright)' fits none .*: wipe"):
            async with service.life():
                pass

    asyncio.run(run())


def test_a_pattern_that_fits_nothing_later_gates_all_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_mcp.connection.FIRST", 0.0)

    async def run() -> None:
        service = host(tmp_path, server(tmp_path, "one", requires_approval=["write"]))
        async with service.life(), asyncio.timeout(120):
            while "wipe" not in service.agent.tools:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert service.calls.check("wipe", {"disk": "a"}) == "require"

    asyncio.run(run())


def test_an_address_of_this_machine_is_the_same_behind_any_port() -> None:
    one, other = (mcp_server(f"http://127.0.0.1:{port}/mcp", name="files") for port in (81, 82))
    far = mcp_server("http://files.example:81/mcp", name="files")
    assert one.label != other.label
    listed = type("Listed", (), {"name": "read", "description": "", "title": None})
    listed.input_schema, listed.annotations = {"type": "object"}, None  # type: ignore[attr-defined]
    made = [source._tool("read", listed) for source in (one, other, far)]
    assert made[0].digest == made[1].digest != made[2].digest
    assert made[0].origin == "mcp:files:http://localhost/mcp"
