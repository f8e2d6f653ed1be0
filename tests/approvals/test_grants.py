"""A standing grant approves equal calls of its holder, as often and as long as it says."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from databases import empty_schema
from sayso import Agent, Call, Caller, ConfigError, tool
from sayso.models import Ask, Model
from sayso.testing import Answer, Served, Service, scripted, user

AUTH = """
plugins = ["v1", "v2", "approvals"]
[auth]
scheme = "bearer"
[auth.tokens]
ann = "token-of-ann"
bob = "token-of-bob"
cid = "token-of-cid"
bot = "token-of-bot"
pager = "token-of-pager"
[auth.people]
bob = ["bearer|pager"]
[auth.principals.ann]
kind = "person"
[auth.principals.bob]
kind = "person"
groups = ["sre"]
[auth.principals.cid]
kind = "person"
groups = ["sre"]
[auth.principals.bot]
kind = "agent"
[approvals]
deciders = "any"
"""
ON = f"{AUTH}grants = true\n"
LIKE = {"tool": "restart", "arguments": {"name": "web"}, "holder": "ann", "reason": "night shift"}


def of(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-of-{who}"}


class Always(Model):
    """A model that asks for these calls, and speaks when it has their results."""

    provider, name = "test", "always"

    def __init__(self, *calls: Call) -> None:
        self._calls = list(calls or [Call("1", "restart", {"name": "web"})])

    async def stream(self, ask: Ask) -> Any:
        has_result = any(hasattr(block, "call_id") for t in ask.turns for block in t.blocks)
        async for event in scripted("done" if has_result else self._calls).stream(ask):
            yield event


class Place:
    """A service with gated tools, and what they have done."""

    def __init__(self, served: Served, config: str = ON, *calls: Call) -> None:
        self.ran: list[str] = []

        @tool(requires_approval=True)
        def restart(name: str, force: bool = False) -> str:
            """Restart a service."""
            self.ran.append(name)
            return f"restarted {name}"

        @tool(requires_approval=True, destructive=True)
        def wipe(name: str) -> str:
            """Wipe a disk."""
            self.ran.append(name)
            return f"wiped {name}"

        @tool(requires_approval=True)
        def rotate(name: str, key: SecretStr = SecretStr("hush")) -> str:  # noqa: B008
            """Rotate a key."""
            self.ran.append(name)
            return f"rotated {name}"

        agent = Agent(name="ops", model=Always(*calls), tools=[restart, wipe, rotate])
        self.service: Service = served(agent, config=config)

    def give(self, who: str = "bob", **more: Any) -> Answer:
        body = {**LIKE, "uses": 3, "seconds": 600, **more}
        return self.service.post("/approvals/grants", body, of(who))

    def grants(self, who: str = "bob") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.service.get("/approvals/grants", of(who)).json()[
            "grants"
        ]
        return found

    def ask(self, who: str = "ann", path: str = "/api/chat", **fields: Any) -> dict[str, Any]:
        body = {"messages": [user("restart web", **fields)]}
        reply: dict[str, Any] = self.service.post(path, body, of(who)).json()
        return reply

    def log(self) -> list[dict[str, Any]]:
        page = asyncio.run(self.service.host.record.log(None, 1_000))
        return [one.row.entry for one in page.events]


def test_covered_call_runs_at_once_and_the_reply_and_the_log_say_why(
    sayso_served: Served,
) -> None:
    place = Place(sayso_served)
    given = place.give()
    assert given.status == 200, given.json()
    grant = given.json()
    assert (grant["state"], grant["who"], grant["uses"], grant["used"]) == ("open", "bob", 3, 0)
    assert grant["arguments"] == {"name": "web", "force": False}
    reply = place.ask()
    assert place.ran == ["web"]
    assert reply["data"]["tool_calls"] == []
    assert reply["content"] == "done\n\n(Allowed by standing grants: restart, given by bob.)"
    (said,) = reply["meta_data"]["granted"]
    assert (said["grant"], said["who"], said["name"]) == (grant["id"], "bob", "restart")
    shown = place.service.get(f"/approvals/{said['id']}", of("bob")).json()
    assert (shown["state"], shown["output"]) == ("DONE", "restarted web")
    assert shown["decision"]["grant"] == grant["id"]
    (used,) = [one for one in place.log() if one.get("grant") == grant["id"]]
    assert (used["event"], used["who"], used["protocol"]) == ("approved", "bob", "grant")
    (created,) = [one for one in place.log() if one["event"] == "grant_created"]
    assert (created["id"], created["holder"], created["who"]) == (grant["id"], "ann", "bob")
    assert [one["used"] for one in place.grants("ann")] == [1]


def test_every_protocol_of_a_turn_says_that_a_grant_allowed_the_call(sayso_served: Served) -> None:
    place = Place(sayso_served)
    assert place.give().status == 200
    assert "standing grants" in place.ask(path="/api/sendMessage")["content"]
    body = {"messages": [user("restart web")]}
    lines = place.service.post("/api/chat-stream", body, of("ann")).text.splitlines()
    events = [json.loads(line) for line in lines]
    assert "under a standing grant" in str(
        [e for e in events if e["type"] == "intermittent_update"]
    )
    assert "standing grants" in str([e for e in events if e["type"] == "text_delta"])
    assert events[-1]["meta_data"]["granted"][0]["who"] == "bob"
    assert place.ran == ["web", "web"]


def test_call_over_its_count_or_time_waits_for_a_person(sayso_served: Served) -> None:
    place = Place(sayso_served)
    assert place.give(uses=1).status == 200
    place.ask()
    assert len(place.ask()["data"]["tool_calls"]) == 1
    assert place.grants()[0]["state"] == "used up"
    assert place.give(seconds=1).status == 200
    time.sleep(1.1)
    assert len(place.ask()["data"]["tool_calls"]) == 1
    assert [one["state"] for one in place.grants()] == ["ended", "used up"]
    assert place.ran == ["web"]


def test_revoked_grant_approves_nothing(sayso_served: Served) -> None:
    place = Place(sayso_served)
    id_ = place.give().json()["id"]
    assert (
        place.service.request("DELETE", f"/approvals/grants/{id_}", headers=of("bot")).status == 403
    )
    gone = place.service.request("DELETE", f"/approvals/grants/{id_}", headers=of("cid"))
    assert (gone.status, gone.json()["state"], gone.json()["revoked_by"]) == (200, "revoked", "cid")
    assert (
        place.service.request("DELETE", "/approvals/grants/nope", headers=of("cid")).status == 404
    )
    assert len(place.ask()["data"]["tool_calls"]) == 1
    assert place.ran == []
    assert [one["event"] for one in place.log() if "grant" in one["event"]] == [
        "grant_created",
        "grant_revoked",
    ]


@pytest.mark.parametrize(
    ("who", "more", "status", "code"),
    [
        ("bob", {"holder": "bob"}, 403, "OWN_REQUEST"),
        ("bob", {"holder": "pager"}, 403, "OWN_REQUEST"),
        ("bot", {}, 403, "AGENT"),
        ("bob", {"tool": "wipe"}, 403, "NOT_GRANTABLE"),
        ("bob", {"tool": "nope"}, 422, "VALUE_ERROR"),
        ("bob", {"arguments": {"nome": "web"}}, 422, "VALUE_ERROR"),
        ("bob", {"arguments": {"force": True}, "match": "pattern"}, 422, "VALUE_ERROR"),
        ("bob", {"uses": 0}, 422, None),
        ("bob", {"seconds": 10**9}, 422, None),
        ("bob", {"reason": ""}, 422, None),
        ("bob", {"context": {"platform_token": "x"}}, 422, None),
    ],
)
def test_grant_that_may_not_be_given_is_refused(
    grants_on: Place, who: str, more: dict[str, Any], status: int, code: str | None
) -> None:
    refused = grants_on.give(who, **more)
    assert refused.status == status, refused.json()
    assert code in (None, "VALUE_ERROR", refused.json().get("code"))
    assert grants_on.grants() == []


@pytest.fixture(scope="module")
def grants_on() -> Iterator[Place]:
    served = Served()
    yield Place(served)
    served.close()


def test_grants_are_off_unless_switched_on(sayso_served: Served) -> None:
    place = Place(sayso_served, AUTH)
    refused = place.give()
    assert (refused.status, refused.json()["code"]) == (403, "GRANTS_OFF")
    assert "approvals.grants" in refused.json()["detail"]


def test_grants_without_authentication_stop_the_start(sayso_served: Served) -> None:
    with pytest.raises(ConfigError, match=r"set \[auth\]"):
        sayso_served(Agent(model="offline"), config="[approvals]\ngrants = true\n")


@pytest.mark.parametrize(
    ("given", "asked", "runs"),
    [
        ({"match": "pattern", "arguments": {"name": "web-*"}}, {"name": "web-7"}, True),
        ({"match": "pattern", "arguments": {"name": "web-*"}}, {"name": "db-7"}, False),
        ({"match": "pattern", "arguments": {"name": "*"}}, {"name": "x", "force": True}, False),
        ({"match": "pattern", "arguments": {"name": "*", "force": "*"}}, {"name": "x"}, True),
        ({"arguments": {"name": "web-*"}}, {"name": "web-7"}, False),
        ({"holder": "cid"}, {"name": "web"}, False),
        ({"context": {"tenant_name": "acme"}}, {"name": "web"}, False),
    ],
)
def test_grant_covers_exactly_what_it_says(
    sayso_served: Served, given: dict[str, Any], asked: dict[str, Any], runs: bool
) -> None:
    place = Place(sayso_served, ON, Call("1", "restart", asked))
    made = place.give(**given)
    assert made.status == 200, made.json()
    reply = place.ask()
    assert (len(place.ran), len(reply["data"]["tool_calls"])) == ((1, 0) if runs else (0, 1))


@pytest.mark.parametrize("more", [{}, {"key": "mine"}])
def test_pattern_leaves_out_a_secret_that_the_service_sets(
    sayso_served: Served, more: dict[str, Any]
) -> None:
    place = Place(sayso_served, ON, Call("1", "rotate", {"name": "web-7", **more}))
    made = place.give(tool="rotate", match="pattern", arguments={"name": "web-*"})
    assert made.status == 200, made.json()
    assert "hush" not in made.text and "key" not in made.json()["arguments"]
    place.ask()
    assert place.ran == ([] if more else ["web-7"])


def test_grant_holds_in_its_place_alone(sayso_served: Served) -> None:
    place = Place(sayso_served)
    assert place.give(context={"tenant_name": "acme"}).status == 200
    place.ask(platform_context={"tenant_name": "other"})
    place.ask(platform_context={"tenant_name": "acme", "k8s_namespace": "prod"})
    assert place.ran == []
    place.ask(platform_context={"tenant_name": "acme", "user_id": "u1"})
    assert place.ran == ["web"]


def test_grant_like_a_call_takes_its_input_requester_and_place(sayso_served: Served) -> None:
    place = Place(sayso_served)
    (call,) = place.ask(platform_context={"tenant_name": "acme"})["data"]["tool_calls"]
    body = {"call": call["id"], "uses": 1, "seconds": 60, "reason": "again and again"}
    made = place.service.post("/approvals/grants", body, of("bob"))
    assert made.status == 200, made.json()
    assert made.json()["context"] == {"tenant_name": "acme"}
    assert (made.json()["holder"], made.json()["arguments"]["name"]) == ("ann", "web")
    place.ask(platform_context={"tenant_name": "acme"})
    assert place.ran == ["web"]


RULE = '[[approvals.rules]]\ntool = "restart"\n'


def test_giver_must_be_one_whom_the_rule_names(sayso_served: Served) -> None:
    place = Place(sayso_served, f'{ON}{RULE}approvers = ["group:sre"]\n')
    refused = place.give("ann", holder="cid")
    assert (refused.status, refused.json()["code"]) in (
        (403, "NOT_AN_APPROVER"),
        (403, "NOT_FOUND"),
    )
    assert place.give("bob").status == 200
    place.ask()
    assert place.ran == ["web"]


def test_one_grant_is_no_quorum(sayso_served: Served) -> None:
    place = Place(sayso_served, f"{ON}{RULE}quorum = 2\n")
    refused = place.give()
    assert (refused.status, refused.json()["code"]) == (403, "QUORUM")


def test_rule_lets_a_destructive_tool_be_granted_or_another_one_not(sayso_served: Served) -> None:
    rules = f'[[approvals.rules]]\ntool = "wipe"\ngrants = true\n{RULE}grants = false\n'
    place = Place(sayso_served, f"{ON}{rules}", Call("1", "wipe", {"name": "web"}))
    assert place.give(tool="wipe").status == 200
    refused = place.give()
    assert (refused.status, refused.json()["code"]) == (403, "NOT_GRANTABLE")
    place.ask()
    assert place.ran == ["web"]


def test_stop_of_all_starts_stops_grants_too(sayso_served: Served) -> None:
    place = Place(sayso_served)
    place.give()
    stop = {"frozen": True, "reason": "an attack"}
    assert place.service.post("/approvals/freeze", stop, of("bob")).status == 200
    (call,) = place.ask()["data"]["tool_calls"]
    assert (place.ran, place.grants()[0]["used"]) == ([], 0)
    assert place.service.get(f"/approvals/{call['id']}", of("bob")).json()["state"] == "PENDING"


def test_grant_for_another_tool_definition_approves_nothing(
    sayso_served: Served, tmp_path: Path
) -> None:
    config = ON + f'ledger = "sqlite:///{tmp_path}/calls.db"\n'
    assert Place(sayso_served, config).give().status == 200

    @tool(requires_approval=True)
    def restart(name: str, force: bool = False, now: bool = True) -> str:
        """Restart a service."""
        raise AssertionError

    agent = Agent(name="ops", model=Always(), tools=[restart])
    other = sayso_served(agent, config=config)
    reply = other.post("/api/chat", {"messages": [user("go")]}, of("ann")).json()
    assert len(reply["data"]["tool_calls"]) == 1


def test_call_with_and_one_without_a_grant_in_one_reply(sayso_served: Served) -> None:
    both = [Call("1", "restart", {"name": "web"}), Call("2", "restart", {"name": "db"})]
    place = Place(sayso_served, ON, *both)
    place.give()
    conversation = place.service.conversation(headers=of("ann"))
    reply = conversation.say("restart both")
    assert place.ran == ["web"]
    assert [one["input"]["name"] for one in reply["data"]["tool_calls"]] == ["db"]
    assert "standing grants: restart" in reply["content"]
    reply = conversation.approve()
    assert (reply["content"], place.ran) == ("done", ["web", "db"])


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store of each kind."""
    if request.param == "postgresql":
        with empty_schema() as url:
            yield url
        return
    yield "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/calls.db"


def test_grant_is_used_no_more_often_than_it_says_over_all_processes(
    sayso_served: Served, ledger: str
) -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    def restart(name: str, force: bool = False) -> str:
        """Restart a service."""
        ran.append(name)
        return "restarted"

    def service() -> Service:
        agent = Agent(name="ops", model=Always(), tools=[restart])
        return sayso_served(agent, config=f'{ON}ledger = "{ledger}"\n')

    services = [service() for _ in range(1 if ledger == "memory://" else 2)]
    body = {**LIKE, "uses": 5, "seconds": 600}
    assert services[0].post("/approvals/grants", body, of("bob")).status == 200

    def ask(number: int) -> int:
        one = services[number % len(services)]
        reply = one.post("/api/chat", {"messages": [user(f"go {number}")]}, of("ann")).json()
        return len(reply["data"]["tool_calls"])

    with ThreadPoolExecutor(8) as pool:
        pending = list(pool.map(ask, range(16)))
    assert (len(ran), sum(pending)) == (5, 11)
    (grant,) = services[0].get("/approvals/grants", of("ann")).json()["grants"]
    assert (grant["used"], grant["state"]) == (5, "used up")


def test_single_call_of_another_protocol_is_approved_when_it_is_proposed(
    sayso_served: Served,
) -> None:
    place = Place(sayso_served)
    place.give()
    calls = place.service.host.calls
    (ann,) = [one for one in place.service.host.tokens if one == "ann"]
    row = asyncio.run(calls.propose("restart", {"name": "web"}, Caller("mcp", ann)))
    assert (row.state, row.decision and row.decision.protocol) == ("APPROVED", "grant")
    done = asyncio.run(calls.decide(row.id, Caller("mcp", ann), approved=True))
    assert (done.state, place.ran) == ("DONE", ["web"])
