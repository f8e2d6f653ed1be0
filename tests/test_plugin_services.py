"""The services for plugins beside the turns: notes, `/ready`, signed paths, principals."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router

from sayso import Host, Notes, Plugin, PluginError, Principal, Screening, hookimpl
from sayso.testing import served

AUTH = '[auth]\nscheme = "bearer"\n[auth.tokens]\nann = "token-of-ann"\n'


def answer(messages: object, context: object) -> str:
    return "fine"


class Signed(Plugin):
    """A plugin that checks its requests itself."""

    name = "signed"
    signed_paths = ("/signed",)

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        async def answered(request: Request) -> PlainTextResponse:
            return PlainTextResponse("fine")

        paths = ("/signed", "/other")
        return Router([Route(path, answered, methods=["GET", "POST"]) for path in paths])


def test_a_signed_path_is_reached_without_a_token_and_no_other_is() -> None:
    with served(answer, [Signed()], config=AUTH) as service:
        assert service.post("/signed", {}).status == 200
        assert service.post("/other", {}).status == 401
        assert service.post("/signed/more", {}).status == 401


def test_signed_paths_that_are_no_list_of_paths_are_refused() -> None:
    plugin = Signed()
    plugin.signed_paths = "/signed"  # type: ignore[assignment]
    with pytest.raises(PluginError, match="signed_paths that are no list of paths"):
        with served(answer, [plugin]):
            pass


def test_ready_shows_the_details_of_plugins_and_stays_ready() -> None:
    with served(answer, ready=True) as service:
        service.host.details["mail"] = lambda: {"state": "failing"}
        answered = service.get("/ready")
    assert answered.status == 200
    assert answered.json() == {"status": "ready", "details": {"mail": {"state": "failing"}}}


def test_notes_of_plugins_are_one_transaction_and_no_note_of_the_core() -> None:
    def count(notes: Notes) -> Mapping[str, str]:
        before = int(notes.find("mine:").get("mine:count", "0"))
        notes.put("mine:count", str(before + 1))
        return notes.find("")

    with served(answer) as service:

        async def all_at_once() -> list[Mapping[str, str]]:
            return await asyncio.gather(*(service.host.record.notes(count) for _ in range(20)))

        found = asyncio.run(all_at_once())
        assert sorted(int(one["mine:count"]) for one in found) == [*range(1, 21)]

        def forge(notes: Notes) -> None:
            notes.put("frozen", '{"who": "x", "at": 0, "reason": ""}')

        asyncio.run(service.host.record.notes(forge))
        assert asyncio.run(service.host.record.frozen()) is None


def test_a_principal_that_a_plugin_proves_gets_the_facts_of_the_settings() -> None:
    people = '[auth.people]\nalice = ["slack|T1|U1"]\n'
    facts = '[auth.principals."slack|T1|U1"]\ngroups = ["sre"]\n'
    with served(answer, config=people + facts) as service:
        mapped = service.host.known(Principal("slack|T1|U1", issuer="slack", subject="T1|U1"))
        other = service.host.known(Principal("slack|T1|U2", issuer="slack", subject="T1|U2"))
    assert (mapped.person, mapped.kind, mapped.groups) == ("alice", "person", {"sre"})
    assert other.person is None


def test_screening_allows_the_named_host_alone_beside_public_ones() -> None:
    async def allowed(url: str, *hosts: str) -> Any:
        return await Screening(hosts).allows(url)

    assert asyncio.run(allowed("http://127.0.0.1:9/x", "127.0.0.1")) is True
    assert asyncio.run(allowed("http://127.0.0.1:9/x", "hooks.internal")) is False
    assert asyncio.run(allowed("http://u:p@127.0.0.1:9/x", "127.0.0.1")) is False
    assert asyncio.run(allowed("https://93.184.216.34/")) is True
