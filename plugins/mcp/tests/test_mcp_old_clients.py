"""The server with clients made by others: the official SDKs 1.x for Python and TypeScript."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp_programs import old_client, script

POD = json.dumps({"name": "web-1"})
NODE = Path(__file__).with_name("old_client.mjs")


async def ran(command: list[str]) -> dict[str, Any]:
    """The client's report."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()[-2000:]
    reported: dict[str, Any] = json.loads(out)
    return reported


@pytest.mark.parametrize("client", ["python", "typescript"])
def test_client_that_cannot_ask_is_told_where_a_person_decides(serve: Any, client: str) -> None:
    async def run() -> None:
        async with serve(page="https://sayso.example/console") as served:
            reported = await ran(
                old_client(served.url, "delete_pod", POD)
                if client == "python"
                else script(NODE, served.url, "delete_pod", POD, "60000", "none")
            )
            [row] = await served.proposals()
            assert reported["isError"] is True
            assert f"https://sayso.example/console#{row.id}" in reported["content"][0]["text"]
            assert (row.state, served.ran.calls) == ("PENDING", [])

    asyncio.run(run())


def test_person_at_the_python_sdk_leaves_an_optional_field_null(serve: Any) -> None:
    async def run() -> None:
        answers = [{"approve": True, "reason": None}, {"approve": True, "reason": ""}]
        async with serve() as served:
            for answer in answers:
                reported = await ran(old_client(served.url, "delete_pod", POD, json.dumps(answer)))
                assert reported["content"][0]["text"] == "deleted default/web-1"
            assert len(served.ran.calls) == 2

    asyncio.run(run())


@pytest.mark.slow
def test_progress_keeps_the_call_of_the_typescript_sdk_beyond_its_timeout(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_mcp.progress.ALIVE", 0.2)

    async def run() -> None:
        async with serve() as served:
            reported = await ran(script(NODE, served.url, "delete_pod", POD, "2000", "5000"))
            assert reported["content"][0]["text"] == "deleted default/web-1"
            assert reported["progress"] > 5

    asyncio.run(run())


@pytest.mark.slow
def test_timeout_of_the_typescript_sdk_leaves_the_call_open(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            reported = await ran(script(NODE, served.url, "delete_pod", POD, "1000", "30000"))
            assert "timed out" in reported["raised"]
            [row] = await served.proposals()
            assert row.state == "PENDING"
            reported = await ran(script(NODE, served.url, "delete_pod", POD, "60000", "0"))
            assert reported["content"][0]["text"] == "deleted default/web-1"
            assert [each.id for each in await served.proposals()] == [row.id]

    asyncio.run(run())
