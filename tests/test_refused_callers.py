"""Callers that are refused at authentication are observed, counted, and seen in the log."""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from sayso import Agent, CallerRefused, Host, Observer, Plugin, Unauthenticated, hookimpl
from sayso.observing.lines import RefusedLines
from sayso.testing import Served, Service, scripted

TOKEN = "t0ken-of-ana-that-is-long"
WRONG = "wr0ng-t0ken-of-somebody"
CONFIG = f'[auth]\nscheme = "bearer"\n[auth.tokens]\nana = "{TOKEN}"\n'
JSON = {"Content-Type": "application/json"}


class Seen(Plugin):
    """Keeps what an observer sees of refused callers."""

    name = "seen"

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[CallerRefused] = []

    @hookimpl
    def observe(self, host: Host) -> Observer:
        """An observer that keeps the refusals."""
        refusals = self.refusals

        class Keeping(Observer):
            def refused(self, refusal: CallerRefused) -> None:
                refusals.append(refusal)

        return Keeping()

    def taken(self) -> list[tuple[str, str]]:
        """The protocol and the reason of each refusal since the last look."""
        found = [(one.protocol, one.reason) for one in self.refusals]
        assert all(one.address == "127.0.0.1" for one in self.refusals)
        self.refusals.clear()
        return found


def served(sayso_served: Served, *plugins: Plugin, config: str = CONFIG) -> tuple[Service, Seen]:
    seen = Seen()
    return sayso_served(Agent(model=scripted("fine")), [seen, *plugins], config=config), seen


PATHS = {
    "/api/sendMessage": "v1",
    "/api/chat": "v2",
    "/api/chat-stream": "v2",
    "/v1/chat/completions": "openai_api",
    "/v1/responses": "openai_api",
    "/agui": "agui",
    "/ai/chat": "ui_stream",
    "/approvals": "approvals",
    "/a2a/tasks/send": "a2a",
    "/a2a/tasks/x/cancel": "a2a",
    "/metrics": "metrics",
    "/nothing": "service",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_refused_request_of_each_protocol_is_observed_with_its_reason(
    sayso_served: Served, path: str
) -> None:
    names = '"v1", "v2", "openai_api", "agui", "ui_stream", "approvals", "a2a", "metrics"'
    config = f"plugins = [{names}]\n[plugin.a2a]\nadapter = 'simple'\n{CONFIG}"
    service, seen = served(sayso_served, config=config)
    said = (
        ({}, "missing"),
        ({"Authorization": f"Bearer {WRONG}"}, "wrong"),
        ({"Authorization": "Basic YTpi"}, "malformed"),
    )
    for headers, reason in said:
        assert service.request("POST", path, b"{}", {**JSON, **headers}).status == 401
        assert seen.taken() == [(PATHS[path], reason)]
    service.request("POST", path, b"{}", {**JSON, "Authorization": f"Bearer {TOKEN}"})
    assert seen.taken() == []


def test_a_refused_websocket_is_observed(sayso_served: Served) -> None:
    service, seen = served(sayso_served)
    url = f"{service.url.replace('http', 'ws')}/api/chat-ws"
    encoded = urlsafe_b64encode(WRONG.encode()).decode().rstrip("=")
    ways: list[tuple[dict[str, Any], str]] = [
        ({}, "missing"),
        ({"additional_headers": {"Authorization": f"Bearer {WRONG}"}}, "wrong"),
        ({"subprotocols": [f"sayso.bearer.{encoded}"]}, "wrong"),
        ({"subprotocols": ["sayso.bearer.a"]}, "malformed"),
    ]
    for given, reason in ways:
        with pytest.raises(InvalidStatus), connect(url, **given):
            pass
        assert seen.taken() == [("v2", reason)]
    with pytest.raises(InvalidStatus), connect(f"{url}?ticket={WRONG}"):
        pass
    assert seen.taken() == [("v2", "ticket")]


def test_a_caller_beside_the_proxy_is_observed(sayso_served: Served) -> None:
    config = '[auth]\nscheme = "proxy"\n[auth.proxy]\naddresses = ["10.0.0.1"]\n'
    service, seen = served(sayso_served, config=config)
    assert service.ask("hello", headers={"X-Forwarded-User": "ana"}).status == 401
    assert seen.taken() == [("v2", "proxy")]


def test_a_wrong_start_token_is_observed(sayso_served: Served) -> None:
    service, seen = served(sayso_served, config='plugins = ["v2", "approvals"]\n')
    assert service.get("/approvals", {"Authorization": f"Bearer {WRONG}"}).status == 401
    assert service.get("/approvals").status == 401
    assert seen.taken() == [("approvals", "wrong"), ("approvals", "missing")]


class Odd(Plugin):
    """Authenticates by a header, and fails at one value."""

    name = "odd"

    @hookimpl
    def authenticate(self, headers: Mapping[str, str]) -> str | None:
        """Refuse with a reason of its own, or fail."""
        if headers.get("x-odd") == "broken":
            raise RuntimeError("the directory is away")
        raise Unauthenticated("no", reason=f"a text of the caller: {headers.get('x-odd')}")


def test_a_reason_that_is_no_known_word_and_a_failure_of_a_plugin_are_bounded(
    sayso_served: Served,
) -> None:
    service, seen = served(sayso_served, Odd())
    assert service.ask("hello", headers={"X-Odd": "anything"}).status == 401
    assert service.ask("hello", headers={"X-Odd": "broken"}).status == 500
    assert seen.taken() == [("v2", "other"), ("v2", "failed")]


def test_the_log_says_it_once_and_never_the_token(
    sayso_served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sayso")
    service, _ = served(sayso_served)
    for _ in range(20):
        service.ask("hello", headers={"Authorization": f"Bearer {WRONG}"})
        service.ask("hello")
    lines = [vars(one) for one in caplog.records if one.name == "sayso.auth"]
    assert [(one["levelname"], one["reason"], one["count"]) for one in lines] == [
        ("WARNING", "wrong", 1),
        ("INFO", "missing", 1),
    ]
    assert lines[0]["address"] == "127.0.0.1"
    assert WRONG not in "".join(str(vars(one)) for one in caplog.records)


def test_a_flood_has_one_line_at_once_and_then_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sayso")
    lines = RefusedLines(seconds=0.2)

    def counts() -> list[int]:
        return [vars(one)["count"] for one in caplog.records if one.name == "sayso.auth"]

    async def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert condition()

    async def flood() -> None:
        for _ in range(7):
            lines.refused(CallerRefused("wrong", "v2", "10.0.0.9"))
        assert counts() == [1]
        await until(lambda: counts() == [1, 6])
        lines.refused(CallerRefused("wrong", "v2", "10.0.0.9"))
        await until(lambda: counts() == [1, 6, 1])
        await until(lambda: not lines.running)
        # The minute of the last one is over without another: the next one is logged at once.
        lines.refused(CallerRefused("wrong", "v2", "10.0.0.9"))
        assert counts() == [1, 6, 1, 1]

    asyncio.run(flood())
    logged = [vars(one).get("address") for one in caplog.records if one.name == "sayso.auth"]
    assert logged == ["10.0.0.9", None, None, "10.0.0.9"]
