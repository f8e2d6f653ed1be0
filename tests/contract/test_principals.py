"""The known facts about a caller, and the rule that an agent decides nothing (design, section 6,
"People")."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from databases import empty_schema
from sayso import Agent, ConfigError, Plugin, Principal, RequestContext, hookimpl, load_config, tool
from sayso.http import tickets
from sayso.models import Call
from sayso.testing import Conversation, Served, Service, scripted, user

TOKENS = '[auth]\nscheme = "bearer"\n[auth.tokens]\nann = "token-ann"\nbot = "token-bot"\n'
AGENT = f'{TOKENS}[auth.principals.bot]\nkind = "agent"\n'
ANN = {"Authorization": "Bearer token-ann"}
BOT = {"Authorization": "Bearer token-bot"}
HELLO = {"messages": [user("hello")]}


class Who:
    """An agent that says who calls, and remembers it."""

    def __init__(self) -> None:
        self.principal: Any = None

    def __call__(self, messages: Any, context: RequestContext) -> str:
        self.principal = context.principal
        return f"hello {context.principal}"


def asked(service: Service, headers: Mapping[str, str]) -> int:
    return service.post("/api/chat", HELLO, headers).status


def test_tokens_file_and_table_say_what_is_known_of_a_principal(
    sayso_served: Served, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text("ann [sre, payments] = token-ann\n", "utf-8")
    file.chmod(0o600)
    config = (
        f'[auth]\nscheme = "bearer"\ntokens_file = "{file}"\n[auth.principals.ann]\n'
        'groups = ["leads"]\ntenant = "acme"\nkind = "person"\n'
    )
    who = Who()
    assert asked(sayso_served(who, config=config), ANN) == 200
    assert who.principal == "ann"
    assert who.principal.groups == {"sre", "payments", "leads"}
    assert (who.principal.tenant, who.principal.kind, who.principal.person) == (
        *("acme", "person"),
        "ann",
    )


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("ann", "door|ann"),
        (Principal("ann", issuer="https://id", subject="7"), "https://id|7"),
    ],
)
def test_people_are_known_by_issuer_and_subject(sayso_served: Served, given: str, key: str) -> None:
    class Door(Plugin):
        name = "door"

        @hookimpl
        def authenticate(self) -> str:
            return given

    who = Who()
    config = f'[auth.people]\n"Ann Lee" = ["{key}", "slack|T1|U1"]\n'
    assert asked(sayso_served(who, [Door()], config=config), {}) == 200
    assert (who.principal, who.principal.person, who.principal.kind) == ("ann", "Ann Lee", "person")


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ('people = {ann = ["bearer|a"], bob = ["bearer|a"]}', "both 'ann' and 'bob'"),
        ('people = {ann = ["alice"]}', "'bearer|alice'"),
        ('scheme = "jwt"', "issuer, audience, jwks in [auth.jwt]"),
        ('scheme = "proxy"', "addresses in [auth.proxy]"),
        ('proxy = {addresses = ["proxy.local"]}', "'10.0.0.0/28'"),
    ],
)
def test_wrong_settings_stop_the_start(tmp_path: Path, auth: str, why: str) -> None:
    file = tmp_path / "sayso.toml"
    file.write_text(f"[auth]\n{auth}\n", "utf-8")
    with pytest.raises(ConfigError) as error:
        load_config(file, environ={})
    assert why in str(error.value)


PROXY = '[auth]\nscheme = "proxy"\n[auth.proxy]\ngroups_header = "X-Groups"\naddresses = '


def test_proxy_names_the_caller_in_its_headers(sayso_served: Served) -> None:
    who = Who()
    service = sayso_served(who, config=f'{PROXY}["127.0.0.0/28"]\n')
    assert asked(service, {"X-Forwarded-User": "ann", "X-Groups": "sre, leads"}) == 200
    assert (who.principal, who.principal.groups) == ("ann", {"sre", "leads"})
    for headers in ({}, {"X-Forwarded-User": " "}, ANN, {"X-Groups": "sre"}):
        assert asked(service, headers) == 401
    twice = {"X-Forwarded-User": "ann", "x-forwarded-user": "bob"}
    assert asked(service, twice) == 401


@pytest.mark.parametrize("forwarded", [{}, {"X-Forwarded-For": "10.0.0.5"}])
def test_headers_of_others_than_the_proxy_are_nothing(
    sayso_served: Served, forwarded: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The service believes the addresses that a proxy forwards, but not its names of callers.
    monkeypatch.setitem(os.environ, "FORWARDED_ALLOW_IPS", "*")
    service = sayso_served(Who(), config=f'{PROXY}["10.0.0.5"]\n')
    answer = service.post("/api/chat", HELLO, {"X-Forwarded-User": "ann", **forwarded})
    assert (answer.status, answer.json()["code"]) == (401, "UNAUTHENTICATED")


def turn(service: Service, query: str = "", protocols: list[str] | None = None) -> Any:
    """The last event of a turn over a WebSocket, as a page opens it: without headers."""
    url = f"{service.url.replace('http', 'ws', 1)}/api/chat-ws{query}"
    offered = [Subprotocol(each) for each in protocols or []]
    with connect(url, subprotocols=offered or None) as socket:
        assert socket.subprotocol in (offered[-1:] or [None])
        socket.send(json.dumps(HELLO))
        while (event := json.loads(socket.recv(timeout=60)))["type"] not in ("done", "error"):
            pass
    return event


def in_protocol(token: str) -> str:
    return f"sayso.bearer.{base64.urlsafe_b64encode(token.encode()).rstrip(b'=').decode()}"


@pytest.mark.parametrize("others", [[], ["sayso"]])
def test_page_opens_a_websocket_with_its_token_in_a_subprotocol(
    sayso_served: Served, others: list[str]
) -> None:
    who = Who()
    service = sayso_served(who, config=TOKENS)
    assert turn(service, protocols=[in_protocol("token-ann"), *others])["type"] == "done"
    assert who.principal == "ann"
    for wrong in (in_protocol("nope"), "sayso.bearer.%%%", "sayso.bearer."):
        with pytest.raises(InvalidStatus) as refused:
            turn(service, protocols=[wrong])
        assert refused.value.response.status_code == 401


def test_ticket_opens_one_websocket(sayso_served: Served) -> None:
    who = Who()
    service = sayso_served(who, config=f'{AGENT}groups = ["bots"]\n')
    made = service.post("/auth/ticket", {}, BOT)
    assert (made.status, made.json()["expires_in"]) == (200, 30)
    assert made.headers["cache-control"] == "no-store"
    ticket = made.json()["ticket"]
    assert service.post(f"/api/chat?ticket={ticket}", HELLO).status == 401
    assert turn(service, f"?ticket={ticket}")["type"] == "done"
    assert (who.principal, who.principal.kind, who.principal.groups) == ("bot", "agent", {"bots"})
    for wrong in (ticket, "nope", "../tickets", "%00"):
        with pytest.raises(InvalidStatus) as refused:
            turn(service, f"?ticket={wrong}")
        assert refused.value.response.status_code == 401
    assert service.post("/auth/ticket", {}).status == 401


def notes(service: Service) -> dict[str, str]:
    """The tickets that the store has."""
    return asyncio.run(service.host.record.read(lambda tx: tx.notes("ticket:")))


def test_ticket_is_good_for_thirty_seconds(
    sayso_served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = sayso_served(Who(), config=TOKENS)
    ticket = service.post("/auth/ticket", {}, ANN).json()["ticket"]
    (name,) = notes(service)
    assert ticket not in name
    monkeypatch.setattr(tickets, "LIFE", -1)
    with pytest.raises(InvalidStatus):
        turn(service, f"?ticket={ticket}")
    # The use of a ticket removes it, also when it has expired.
    assert notes(service) == {}
    service.post("/auth/ticket", {}, ANN)
    service.post("/auth/ticket", {}, ANN)
    assert len(notes(service)) == 1


def test_ticket_of_one_machine_opens_a_websocket_on_another_once() -> None:
    with empty_schema() as url, closing(Served()) as served:
        # Each service has a state folder of its own, as on a machine of its own.
        config = f'{TOKENS}[approvals]\nledger = "{url}"\n'
        one, other = served(Who(), config=config), served(Who(), config=config)
        ticket = one.post("/auth/ticket", {}, ANN).json()["ticket"]
        assert turn(other, f"?ticket={ticket}")["type"] == "done"
        for service in (one, other):
            with pytest.raises(InvalidStatus):
                turn(service, f"?ticket={ticket}")


def test_service_without_websockets_or_authentication_gives_no_tickets(
    sayso_served: Served,
) -> None:
    plain = 'plugins = ["v1"]\n'
    assert sayso_served(Who(), config=plain + TOKENS).post("/auth/ticket", {}, ANN).status == 404
    assert sayso_served(Who()).post("/auth/ticket", {}).status == 404


RAN: list[str] = []


@tool(requires_approval=True)
def stop(name: str) -> str:
    """Stop a service."""
    RAN.append(name)
    return "stopped"


@pytest.fixture
def gated(sayso_served: Served) -> Service:
    RAN.clear()
    model = scripted([Call("1", "stop", {"name": "web"})], "done")
    return sayso_served(Agent(model=model, tools=[stop]), config=AGENT)


def proposed(service: Service, headers: Mapping[str, str]) -> Conversation:
    conversation = service.conversation(headers=headers)
    conversation.say("stop web")
    assert conversation.pending
    return conversation


@pytest.mark.parametrize("path", ["/api/chat", "/api/chat-stream", "/api/sendMessage"])
def test_agent_approves_nothing(gated: Service, path: str) -> None:
    conversation = proposed(gated, BOT)
    call = {**conversation.pending[0], "execute": True}
    body = {"messages": [*conversation.messages, user(data={"tool_calls": [call]})]}
    answer = gated.post(path, body, BOT)
    assert answer.status == 422 or answer.events[-1]["code"] == "APPROVAL_NOT_ALLOWED"
    assert "approval_not_allowed" in answer.text.lower()
    assert RAN == []
    # The refused decision left the call unchanged: the agent may withdraw it.
    conversation.reject("never mind")
    assert RAN == []


def test_agent_collects_what_a_person_has_approved(sayso_served: Served) -> None:
    RAN.clear()
    model = scripted([Call("1", "stop", {"name": "web"})], "done", "done")
    agent = Agent(model=model, tools=[stop])
    service = sayso_served(agent, config=f'{AGENT}[approvals]\ndeciders = "any"\n')
    conversation = proposed(service, BOT)
    (call,) = conversation.pending
    person = {"messages": [user(data={"tool_calls": [{**call, "execute": True}]})]}
    assert service.post("/api/chat", person, ANN).status == 200
    assert RAN == ["web"]
    assert conversation.approve()["content"] == "done"
    assert RAN == ["web"]


def test_agent_rejects_nobody_elses_call(sayso_served: Served) -> None:
    model = scripted([Call("1", "stop", {"name": "web"})], "done")
    agent = Agent(model=model, tools=[stop])
    service = sayso_served(agent, config=f'{AGENT}[approvals]\ndeciders = "any"\n')
    (call,) = proposed(service, ANN).pending
    data = {"tool_calls": [{**call, "rejection_reason": "no"}]}
    answer = service.post("/api/chat", {"messages": [user(data=data)]}, BOT)
    assert "approval_not_allowed" in answer.text


def test_proven_tenant_counts_more_than_a_claimed_one(sayso_served: Served) -> None:
    RAN.clear()
    model = scripted([Call("1", "stop", {"name": "web"})], "done")
    agent = Agent(model=model, tools=[stop])
    tenants = '[auth.principals.ann]\ntenant = "acme"\n[auth.principals.bot]\ntenant = "other"\n'
    config = f'{TOKENS}{tenants}[approvals]\ndeciders = "any"\n'
    service = sayso_served(agent, config=config)
    (call,) = proposed(service, ANN).pending
    data = {"tool_calls": [{**call, "execute": True}]}
    claimed = user(data=data, platform_context={"tenant_name": "acme"})
    answer = service.post("/api/chat", {"messages": [claimed]}, BOT)
    assert "approval_not_issued" in answer.text
    assert RAN == []


def test_environment_says_what_is_known_of_principals() -> None:
    given = {
        "SAYSO_AUTH__PRINCIPALS__ANN__GROUPS": "sre,leads",
        "SAYSO_AUTH__PRINCIPALS__ANN__KIND": "person",
        "SAYSO_AUTH__PEOPLE__BOB": "bearer|bob,slack|T1|U1",
    }
    auth = load_config(environ=given).auth
    assert (auth.principals["ann"].groups, auth.principals["ann"].kind) == (
        *(["sre", "leads"],),
        "person",
    )
    assert auth.people == {"bob": ["bearer|bob", "slack|T1|U1"]}
