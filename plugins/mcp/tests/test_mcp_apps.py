"""The approval card as an MCP App, over the wire and in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from test_mcp_chat import WIPE, cleaner, text

from sayso_mcp.apps import EXTENSION, META, MIME, URI

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
POD = {"name": "web"}


def apps() -> list[Any]:
    """The extension that a client declares if it shows apps."""
    return [advertise(EXTENSION, {"mimeTypes": [MIME]})]


@ERAS
def test_card_and_its_tool_are_there_for_clients_that_show_apps_only(serve: Any, era: str) -> None:
    async def run() -> None:
        async with (
            serve() as served,
            served.client(era, extensions=apps()) as client,
            served.client(era) as plain,
        ):
            listed = {tool.name: tool.meta for tool in (await client.list_tools()).tools}
            assert listed["delete_pod"] == listed["chat"] == {"ui": {"resourceUri": URI}}
            assert listed["add"] is None
            assert listed["sayso_decide"] == {"ui": {"resourceUri": URI, "visibility": ["app"]}}
            (card,) = (await client.list_resources()).resources
            assert (card.uri, card.mime_type) == (URI, MIME)
            (page,) = (await client.read_resource(URI)).contents
            assert "ui/initialize" in page.text
            others = {tool.name: tool.meta for tool in (await plain.list_tools()).tools}
            assert "sayso_decide" not in others
            assert set(others.values()) == {None}
            assert (await plain.list_resources()).resources == []
            with pytest.raises(MCPError, match="unknown tool"):
                await plain.call_tool("sayso_decide", {"id": "x", "key": "y"})

    asyncio.run(run())


@ERAS
@pytest.mark.parametrize("approve", [True, False])
def test_person_decides_at_the_card(serve: Any, era: str, approve: bool) -> None:
    async def run() -> None:
        async with serve() as served, served.client(era, extensions=apps()) as client:
            waiting = await client.call_tool("delete_pod", POD)
            assert waiting.is_error
            (shown,) = waiting.meta[META]["calls"]
            assert shown["key"] not in text(waiting) + json.dumps(waiting.structured_content)
            assert shown["input"] == {"name": "web", "namespace": "default"}
            given = {key: shown[key] for key in ("id", "key", "input")}
            decided = await client.call_tool(
                waiting.meta[META]["decide"], {**given, "approve": approve, "reason": "not today"}
            )
            outcome = "deleted default/web" if approve else "Rejected: not today"
            assert outcome in text(decided)
            assert len(served.ran.calls) == approve
            # The model gets it with the same call.
            again = await client.call_tool("delete_pod", POD)
            assert ("deleted default/web" if approve else "not today") in text(again)
            assert len(served.ran.calls) == approve

    asyncio.run(run())


@pytest.mark.parametrize(
    "change", [{"key": "f" * 64}, {"input": {"name": "db"}}, {"id": "f" * 32}, {"key": 7}]
)
def test_only_the_key_and_input_of_the_card_decide(serve: Any, change: dict[str, Any]) -> None:
    async def run() -> None:
        async with serve() as served, served.client(extensions=apps()) as client:
            waiting = await client.call_tool("delete_pod", POD)
            (shown,) = waiting.meta[META]["calls"]
            given = {key: shown[key] for key in ("id", "key", "input")}
            refused = await client.call_tool("sayso_decide", {**given, "approve": True, **change})
            assert refused.is_error
            [row] = await served.proposals()
            assert (row.state, served.ran.calls) == ("PENDING", [])

    asyncio.run(run())


@ERAS
def test_what_chat_proposes_is_decided_at_the_card(serve: Any, eventually: Any, era: str) -> None:
    async def run() -> None:
        ran: list[str] = []
        async with (
            serve(agent=cleaner(ran)) as served,
            served.client(era, extensions=apps()) as client,
        ):
            waiting = await client.call_tool("chat", WIPE)
            calls = waiting.meta[META]["calls"]
            assert [call["input"] for call in calls] == [{"path": "/a"}, {"path": "/b"}]
            for call in calls:
                given = {key: call[key] for key in ("id", "key", "input")}
                await client.call_tool("sayso_decide", {**given, "approve": True})
            await eventually(lambda: len(served.host.agent.model.asks) == 2)
            assert "wiped /a and wiped /b" in text(await client.call_tool("chat", WIPE))
            assert sorted(ran) == ["/a", "/b"]

    asyncio.run(run())


@pytest.mark.parametrize("approvals", ["inbox", "deny"])
def test_there_is_no_card_where_the_client_does_not_decide(serve: Any, approvals: str) -> None:
    async def run() -> None:
        async with (
            serve(approvals=approvals) as served,
            served.client(extensions=apps()) as client,
        ):
            listed = [tool.name for tool in (await client.list_tools()).tools]
            assert "sayso_decide" not in listed
            called = await client.call_tool("delete_pod", POD)
            assert called.is_error
            assert META not in (called.meta or {})

    asyncio.run(run())


HOST = """
<iframe id="app" sandbox="allow-scripts"></iframe>
<script>
  const app = document.getElementById("app");
  window.addEventListener("message", async ({ source, data }) => {
    if (source !== app.contentWindow) return;
    const said = await window.host(JSON.stringify(data));
    for (const message of JSON.parse(said)) app.contentWindow.postMessage(message, "*");
  });
</script>
"""


@pytest.fixture
def page() -> Iterator[Any]:
    """A page of a real browser; the test is skipped without one, except in continuous
    integration."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the test of the card needs playwright and chromium")
        pytest.skip("there is no playwright or chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"], timeout=120_000
        )
        yield browser.new_page()
        browser.close()


@pytest.mark.parametrize("approve", [True, False])
def test_card_shows_a_call_and_sends_what_its_person_decides(page: Any, approve: bool) -> None:
    from sayso_mcp.apps import Card

    html = Card.contents(None).text  # type: ignore[arg-type]
    call = {
        "id": "51b2",
        "key": "secret-key",
        "name": "delete_pod",
        "input": {"name": "we\u202eb"},
        "description": "Delete a pod.",
        "intent": None,
    }
    asked: list[dict[str, Any]] = []

    def host(message: str) -> str:
        data = json.loads(message)
        asked.append(data)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": data.get("id"), "result": {}}
        match data.get("method"):
            case "ui/notifications/initialized":
                params = {"content": [], "_meta": {META: {"decide": "decide_it", "calls": [call]}}}
                result = {"jsonrpc": "2.0", "method": "ui/notifications/tool-result"}
                return json.dumps([{**result, "params": params}])
            case "tools/call":
                reply["result"] = {"content": [{"type": "text", "text": "deleted web"}]}
        return json.dumps([reply] if "id" in data else [])

    page.expose_function("host", host)
    page.set_content(HOST)
    page.evaluate("html => { document.getElementById('app').srcdoc = html; }", html)
    card = page.frame_locator("#app")
    assert "we\\u{202e}b" in card.locator("pre").inner_text()
    if not approve:
        card.get_by_label("Reason").fill("not today")
    card.get_by_role("button", name="Approve" if approve else "Reject").click()
    card.get_by_text("deleted web").wait_for()
    (sent,) = [each["params"] for each in asked if each.get("method") == "tools/call"]
    decision = {"id": "51b2", "key": "secret-key", "input": call["input"], "approve": approve}
    if not approve:
        decision["reason"] = "not today"
    assert sent == {"name": "decide_it", "arguments": decision}
    assert card.get_by_role("button", name="Approve").is_disabled()
    page.wait_for_function("() => true")
    reported = [each for each in asked if each.get("method") == "ui/update-model-context"]
    assert "secret-key" not in json.dumps(reported)
