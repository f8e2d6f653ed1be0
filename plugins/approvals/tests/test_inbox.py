"""The inbox over HTTP: visible calls, decisions and refusals."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from inbox import ANN, AUTH, BOB, BOT, EVE, RAN, Inbox, configured, deleting

from sayso import Agent, Call, Caller, ConfigError, InvalidRequest, Ruling, tool
from sayso.testing import Served, scripted, user
from sayso_approvals import listing


def names(answer: Any) -> list[str]:
    assert answer.status == 200, answer.text
    return [one["input"]["path"] for one in answer.json()["approvals"]]


def test_list_shows_what_an_approver_needs(inbox: Inbox) -> None:
    row = inbox.propose("a.txt")
    (one,) = inbox.get().json()["approvals"]
    assert (one["id"], one["type"], one["name"], one["state"]) == (
        *(row.id, "tool_call", "delete"),
        "PENDING",
    )
    assert one["input"] == {"path": "a.txt"} and not one["input_truncated"]
    assert (one["principal"], one["person"], one["protocol"]) == ("ann", "ann", "mcp")
    assert one["votes"] == {"needed": 1, "given": 0}
    assert (one["own"], one["mine"], one["barred"]) == (True, True, None)
    assert one["created"] < one["expires"] and one["seen"].startswith("sha256:")
    (one,) = inbox.get("", BOT).json()["approvals"]
    assert (one["own"], one["mine"], one["barred"]) == (False, False, "AGENT")
    assert inbox.get("", EVE).json()["approvals"] == []


def test_large_input_is_cut_in_the_list_and_whole_by_itself(inbox: Inbox) -> None:
    row = inbox.propose("x" * 5_000)
    (one,) = inbox.get().json()["approvals"]
    assert one["input"] is None and one["input_truncated"]
    assert one["input_begin"].startswith('{"path": "xxx') and len(one["input_begin"]) == 2048
    assert inbox.get(f"/{row.id}").json()["input"] == {"path": "x" * 5_000}


def test_list_is_filtered(inbox: Inbox) -> None:
    first = inbox.propose("one", ANN)
    inbox.propose("two", BOB)
    inbox.propose(who=BOB, name="wipe")
    assert names(inbox.get("?requester=bob&tool=delete")) == ["two"]
    assert names(inbox.get("?q=ONE")) == ["one"]
    assert [one["name"] for one in inbox.get("?tool=wipe").json()["approvals"]] == ["wipe"]
    assert inbox.get("?kind=command").json()["approvals"] == []
    assert inbox.get("?mine=true", BOT).json()["approvals"] == []
    assert len(inbox.get("?mine=true").json()["approvals"]) == 3
    assert inbox.get("?created_after=2999-01-01T00:00:00Z").json()["approvals"] == []
    assert inbox.decide(first.id, False).status == 200
    assert names(inbox.get("?state=rejected")) == ["one"]
    assert len(inbox.get("?state=ALL").json()["approvals"]) == 3
    for wrong in ("state=NEW", "limit=0", "limit=101", "cursor=x", "sort=name", "mine=1"):
        answer = inbox.get(f"?{wrong}")
        assert (answer.status, answer.json()["detail"][0]["loc"][0]) == (422, "query"), wrong
    assert inbox.get("?state=DONE&sort=expires").status == 422
    assert inbox.get("?created_after=now").status == 422
    for order, other in (("expires", "created"), ("created", "expires")):
        cursor = inbox.get(f"?limit=1&sort={order}").json()["next"]
        assert inbox.get(f"?sort={order}&cursor={cursor}").status == 200
        assert inbox.get(f"?sort={other}&cursor={cursor}").status == 422, "of another list"


@pytest.mark.parametrize("query", ["", "&sort=created", "&state=ALL"])
def test_pages_go_on_from_a_cursor_while_calls_leave(inbox: Inbox, query: str) -> None:
    rows = [inbox.propose(str(number)) for number in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = inbox.get(f"?limit=2{query}{cursor}").json()
        seen += [one["input"]["path"] for one in page["approvals"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
        if len(seen) == 2:
            # A call that leaves the list moves no other one.
            gone = rows[int(seen[0])]
            inbox.decide(gone.id, False)
    assert len(seen) == len(set(seen)) == 7


def test_first_page_holds_a_call_of_each_who_asked(inbox: Inbox) -> None:
    for number in range(5):
        inbox.propose(str(number), ANN)
    inbox.propose("late", BOB)
    page = inbox.get("?limit=3").json()
    assert [one["input"]["path"] for one in page["approvals"]] == ["0", "1", "late"]
    rest = inbox.get(f"?limit=3&cursor={page['next']}")
    assert names(rest) == ["2", "3", "4"]


def test_list_without_filters_reads_no_contents_and_is_the_same(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        inbox.propose(str(number), BOB if number == 3 else ANN)
    filtered = [names(inbox.get(f"?limit={limit}&kind=tool_call")) for limit in (2, 100)]

    def read(*_: Any, **__: Any) -> Any:
        raise AssertionError("the list has read calls with their contents")

    monkeypatch.setattr(listing, "_POSITIONS", 2)
    monkeypatch.setattr(listing, "_find", read)
    assert [names(inbox.get(f"?limit={limit}")) for limit in (2, 100)] == filtered
    assert filtered == [["0", "3"], ["0", "1", "2", "3", "4"]]


def test_decision_is_recorded_and_runs_nothing_here(inbox: Inbox) -> None:
    row = inbox.propose()
    answer = inbox.decide(row.id, True)
    assert answer.status == 200, answer.text
    one = answer.json()
    assert (one["state"], one["decision"]["who"], one["decision"]["protocol"]) == (
        *("APPROVED", "bob"),
        "inbox",
    )
    assert RAN == []
    # The same decision again has no effect, and the contrary one is refused.
    assert inbox.decide(row.id, True).json()["state"] == "APPROVED"
    contrary = inbox.decide(row.id, False)
    assert contrary.json()["detail"][0]["type"] == "approval_conflict"


def test_rejection_needs_nothing_and_says_why(inbox: Inbox) -> None:
    row = inbox.propose()
    answer = inbox.post(f"/{row.id}/decision", {"approve": False, "reason": "not now"}, BOB)
    assert answer.json()["decision"]["reason"] == "not now"
    assert answer.json()["output"] == "Rejected: not now"


def test_approval_says_what_was_seen(inbox: Inbox) -> None:
    row, other = inbox.propose("a"), inbox.propose("b")
    blind = inbox.post(f"/{row.id}/decision", {"approve": True}, BOB)
    assert (blind.status, blind.json()["code"]) == (428, "SEEN_REQUIRED")
    body = {"approve": True, "seen": inbox.seen(other.id)}
    stale = inbox.post(f"/{row.id}/decision", body, BOB)
    assert stale.json()["detail"][0]["type"] == "approval_changed"
    assert inbox.get(f"/{row.id}").json()["state"] == "PENDING"


def test_input_is_edited_with_the_approval(inbox: Inbox) -> None:
    row = inbox.propose("a")
    one = inbox.decide(row.id, True, input={"path": "b"}).json()
    assert (one["input"], one["edited"]) == ({"path": "a"}, {"path": "b"})
    assert inbox.seen(row.id) != inbox.seen(inbox.propose("a").id)


def test_call_of_another_tenant_does_not_exist(inbox: Inbox) -> None:
    row = inbox.propose()
    for answer in (
        inbox.get(f"/{row.id}", EVE),
        inbox.post(f"/{row.id}/decision", {"approve": False}, EVE),
        inbox.post(f"/{row.id}/comments", {"text": "hi"}, EVE),
        inbox.post(f"/{row.id}/withdraw", {}, EVE),
        inbox.get("/nope"),
    ):
        assert (answer.status, answer.json()["code"]) == (404, "NOT_FOUND")


def test_agent_sees_and_decides_nothing(inbox: Inbox) -> None:
    row = inbox.propose()
    for approve in (True, False):
        answer = inbox.decide(row.id, approve, BOT)
        assert (answer.status, answer.json()["code"]) == (403, "AGENT")
    several = {"decisions": [{"id": row.id, "approve": False}]}
    (result,) = inbox.post("/decisions", several, BOT).json()["results"]
    assert (result["status"], result["error"]["code"]) == (403, "AGENT")
    # It may withdraw its own call.
    own = inbox.propose(who=BOT)
    assert inbox.post(f"/{own.id}/withdraw", {"reason": "done"}, BOT).status == 200


def test_who_asked_takes_it_back_and_nobody_else(inbox: Inbox) -> None:
    row = inbox.propose()
    refused = inbox.post(f"/{row.id}/withdraw", {}, BOB)
    assert (refused.status, refused.json()["code"]) == (403, "NOT_THE_REQUESTER")
    assert refused.json()["detail"].endswith("; reject it instead")
    taken = inbox.post(f"/{row.id}/withdraw", {"reason": "solved"}, ANN).json()
    assert (taken["state"], taken["decision"]["reason"]) == ("REJECTED", "solved")


def test_comments_are_for_those_who_decide(inbox: Inbox) -> None:
    row = inbox.propose()
    one = inbox.post(f"/{row.id}/comments", {"text": "is that safe?"}, BOB).json()
    assert [(c["who"], c["text"], c["claimed"]) for c in one["comments"]] == [
        ("bob", "is that safe?", False)
    ]
    assert inbox.get().json()["approvals"][0]["comments"] == 1
    decided = inbox.decide(row.id, False, comment="no").json()
    assert [c["text"] for c in decided["comments"]] == ["is that safe?", "no"]
    assert decided["output"] == "Rejected: no reason given"
    for wrong in ({}, {"text": ""}, {"text": "x" * 4_001}, {"text": "x", "more": 1}):
        assert inbox.post(f"/{row.id}/comments", wrong).status == 422
    for _ in range(98):
        inbox.post(f"/{row.id}/comments", {"text": "x"})
    full = inbox.post(f"/{row.id}/comments", {"text": "x"})
    assert full.json()["detail"][0]["type"] == "too_many_comments"


def several(inbox: Inbox, *ids: str, mode: str, **more: Any) -> Any:
    decisions = [{"id": id_, "approve": True, "seen": inbox.seen(id_), **more} for id_ in ids]
    return inbox.post("/decisions", {"mode": mode, "decisions": decisions}, BOB)


def test_several_are_decided_in_one_transaction_or_none(inbox: Inbox) -> None:
    first, second, gone = inbox.propose("1"), inbox.propose("2"), inbox.propose("3")
    inbox.decide(gone.id, False)
    refused = several(inbox, first.id, gone.id, mode="all")
    (item,) = refused.json()["detail"]
    assert (item["type"], item["loc"]) == ("approval_conflict", ["body", "decisions", 1])
    assert inbox.get(f"/{first.id}").json()["state"] == "PENDING"
    done = several(inbox, first.id, second.id, mode="all").json()["results"]
    assert [(one["id"], one["approval"]["state"]) for one in done] == [
        (first.id, "APPROVED"),
        (second.id, "APPROVED"),
    ]
    assert several(inbox, first.id, mode="all", input={"path": "x"}).status == 422


def test_several_may_have_been_edited_and_are_decided_as_they_were_seen(
    sayso_served: Served,
) -> None:
    config = configured('[[approvals.rules]]\ntool = "delete"\nquorum = 2\n')
    inbox = Inbox(sayso_served(deleting(), config=config))
    row = inbox.propose("a")
    before = inbox.seen(row.id)
    assert inbox.decide(row.id, True, ANN, input={"path": "b"}).json()["state"] == "PENDING"
    bob = Caller("inbox", next(one for one in inbox.service.host.tokens if one == BOB))
    with pytest.raises(InvalidRequest, match="revision 2 is what would run"):
        asyncio.run(inbox.service.host.record.decide_all([Ruling(row.id, True, None, before)], bob))
    (done,) = several(inbox, row.id, mode="all").json()["results"]
    assert done["approval"]["state"] == "APPROVED"
    assert inbox.get(f"/{row.id}").json()["edited"] == {"path": "b"}


def test_several_are_decided_each_by_itself(inbox: Inbox) -> None:
    first, gone = inbox.propose("1"), inbox.propose("2")
    inbox.decide(gone.id, False)
    bodies = several(inbox, gone.id, first.id, mode="each").json()["results"]
    assert [one["status"] for one in bodies] == [422, 200]
    assert bodies[0]["error"]["detail"][0]["type"] == "approval_conflict"
    assert bodies[1]["approval"]["state"] == "APPROVED"
    many = {"decisions": [{"id": "x", "approve": False}] * 101}
    assert inbox.post("/decisions", many).status == 422


def test_summary_counts_what_is_open(inbox: Inbox) -> None:
    empty = inbox.get("/summary").json()
    assert empty == {
        "counts": {"PENDING": 0, "APPROVED": 0, "EXECUTING": 0},
        "mine": 0,
        "oldest": None,
        "frozen": None,
    }
    inbox.propose("1")
    inbox.decide(inbox.propose("2").id, True)
    counted = inbox.get("/summary").json()
    assert counted["counts"] == {"PENDING": 1, "APPROVED": 1, "EXECUTING": 0}
    assert counted["mine"] == 1 and counted["oldest"] is not None
    assert inbox.get("/summary", BOT).json()["mine"] == 0
    assert inbox.get("/summary", EVE).json()["counts"]["PENDING"] == 0


def test_log_is_for_auditors(inbox: Inbox) -> None:
    row = inbox.propose()
    inbox.decide(row.id, False)
    refused = inbox.get("/log", ANN)
    assert (refused.status, refused.json()["code"]) == (403, "NOT_AN_AUDITOR")
    page = inbox.get("/log", BOB).json()
    found = [r for r in page["rows"] if r["entry"].get("id") == row.id]
    assert [r["entry"]["event"] for r in found] == ["proposed", "rejected"]
    assert found[1]["previous"] == found[0]["hash"]
    behind = inbox.get(f"/log?after={page['next']}", BOB).json()
    assert behind["rows"] == [] and not behind["more"]
    assert inbox.get("/log?after=x", BOB).status == 422


@pytest.mark.parametrize("path", ["", "/summary", "/events", "/log", "/x"])
def test_nobody_without_credentials_reads_anything(inbox: Inbox, path: str) -> None:
    assert inbox.get(path, None).status == 401


LOOPBACK = '[server]\nhost = "127.0.0.1"\n'
PATHS = {
    "GET": ["", "/summary", "/events", "/log", "/ID"],
    "POST": ["/decisions", "/ID/decision", "/ID/comments", "/ID/withdraw"],
}


def test_without_authentication_the_token_of_the_start_is_needed(sayso_served: Served) -> None:
    inbox = Inbox(sayso_served(deleting(), config=configured(auth=LOOPBACK)))
    service = inbox.service
    row = inbox.propose(who=None)
    token = {"Authorization": f"Bearer {service.host.start_token}"}
    for given in ({}, {"Authorization": "Bearer nope"}, {"Authorization": "Bearer "}):
        for method, paths in PATHS.items():
            for path in paths:
                where = f"/approvals{path.replace('ID', row.id)}"
                answer = (
                    service.get(where, given)
                    if method == "GET"
                    else service.post(where, {"approve": False}, given)
                )
                assert (answer.status, answer.json()["code"]) == (401, "UNAUTHENTICATED"), where
    (one,) = service.get("/approvals", token).json()["approvals"]
    body = {"approve": True, "seen": one["seen"]}
    decided = service.post(f"/approvals/{row.id}/decision", body, token)
    assert decided.json()["state"] == "APPROVED"
    assert service.get("/approvals/log", token).status == 200
    # The token opens only the inbox.
    assert service.post("/auth/ticket", {}, token).status == 404


def test_without_authentication_nobody_decides_on_an_address_that_others_reach(
    sayso_served: Served,
) -> None:
    inbox = Inbox(sayso_served(deleting(), config=configured(auth='[server]\nhost = "0.0.0.0"\n')))
    row = inbox.propose(who=None)
    token = {"Authorization": f"Bearer {inbox.service.host.start_token}"}
    for answer in (
        inbox.get("", None),
        inbox.service.get("/approvals", token),
        inbox.service.post(f"/approvals/{row.id}/decision", {"approve": True}, token),
    ):
        assert (answer.status, answer.json()["code"]) == (403, "AUTH_REQUIRED")


@pytest.mark.parametrize(
    ("listing", "deciding"),
    [
        ("/approvals", "/approvals/{}/decision"),
        ("/approvals?state=ALL", "/approvals/decisions"),
        ("/approvals/grants", "/approvals/grants"),
        ("/console/approvals", "/console/approvals/{}"),
    ],
)
def test_tool_that_fetches_addresses_cannot_decide(
    sayso_served: Served, listing: str, deciding: str
) -> None:
    """The tool could otherwise approve the agent's own call: find its id, then approve it."""
    answers: list[int] = []
    url = id_ = ""

    @tool
    def fetch(path: str, body: dict[str, Any] | None = None) -> str:
        """Fetch an address, with a body by POST."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Origin": url}
        try:
            with urlopen(Request(url + path, data, headers), timeout=60) as answer:
                answers.append(answer.status)
                return str(answer.read().decode())
        except HTTPError as error:
            answers.append(error.code)
            return error.read().decode()

    def decision(ask: Any) -> list[Call]:
        # It would be refused even if it knew the id.
        body = {"approve": True, "decisions": [{"id": id_, "approve": True}]}
        return [Call("3", "fetch", {"path": deciding.format(id_), "body": body})]

    gated = deleting().tools["wipe"]
    looking = [Call("2", "fetch", {"path": listing})]
    model = scripted([Call("1", "wipe", {})], looking, decision, "gave up")
    agent = Agent(name="sly", model=model, tools=[gated, fetch])
    config = f'plugins = ["v2", "approvals", "console"]\n{LOOPBACK}'
    service = sayso_served(agent, config=config)
    url = service.url
    conversation = service.conversation()
    conversation.say("wipe the disk")
    (pending,) = conversation.pending
    id_ = pending["id"]
    assert service.chat(user("go on"))["content"] == "gave up"
    assert answers == [401, 401]
    token = {"Authorization": f"Bearer {service.host.start_token}"}
    assert service.get(f"/approvals/{id_}", token).json()["state"] == "PENDING"
    assert RAN == []


def test_document_describes_every_path(sayso_served: Served) -> None:
    config = configured("", auth=f"{AUTH}[server]\ndocs = true\n")
    inbox = Inbox(sayso_served(deleting(), config=config))
    document = inbox.service.get("/openapi.json", inbox.headers(ANN)).json()
    paths = {path: ops for path, ops in document["paths"].items() if path.startswith("/approvals")}
    routes = {f"{method.upper()} {path}" for path, of in paths.items() for method in of}
    served = {one for one in inbox.service.routes if " /approvals" in one}
    assert routes == {one for one in served if not one.startswith("HEAD ")}
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert {"200", "401", "403", "404", "422", "503"} <= set(operation["responses"])
            if method == "post":
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert schema["additionalProperties"] is False, path
            if "{id}" in path:
                assert operation["parameters"][0]["name"] == "id"
    shown = paths["/approvals"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert "seen" in shown["properties"]["approvals"]["items"]["properties"]
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(paths)))
    # The bodies of errors are the same for all routes.
    assert references == {"#/components/schemas/Error"}


def test_waiters_are_at_least_one(sayso_served: Served) -> None:
    with pytest.raises(ConfigError):
        sayso_served(deleting(), config=configured(auth="[limits]\nwaiters = 0\n"))


RULE = '[[approvals.rules]]\ntool = "delete"\napprovers = ["group:sre"]\n'


def test_refusals_say_who_may_not(sayso_served: Served) -> None:
    config = configured() + f"{RULE}not_requester = true\n"
    inbox = Inbox(sayso_served(deleting(), config=config))
    row = inbox.propose(who=BOB)
    for who, code in ((BOB, "OWN_REQUEST"), (ANN, "NOT_AN_APPROVER"), (BOT, "AGENT")):
        assert inbox.get(f"/{row.id}", who).json()["barred"] == code
        answer = inbox.decide(row.id, True, who)
        assert (answer.status, answer.json()["code"]) == (403, code)
    assert inbox.decide(row.id, False, ANN).json()["code"] == "NOT_AN_APPROVER"
    assert inbox.decide(row.id, False, BOB).json()["state"] == "REJECTED"


def test_votes_are_shown_until_there_are_enough(sayso_served: Served) -> None:
    groups = '[auth.principals.phone]\ngroups = ["sre"]\nkind = "person"\n'
    auth = AUTH.replace("[auth.tokens]\n", '[auth.tokens]\nphone = "token-of-phone"\n') + groups
    config = configured(auth=auth) + f'{RULE}quorum = 2\nreason = "required"\n'
    inbox = Inbox(sayso_served(deleting(), config=config))
    row = inbox.propose()
    bare = inbox.decide(row.id, True)
    assert bare.json()["detail"][0]["type"] == "approval_reason_required"
    first = inbox.decide(row.id, True, BOB, reason="fine").json()
    assert (first["state"], first["votes"]) == ("PENDING", {"needed": 2, "given": 1})
    assert [(one["who"], one["person"], one["claimed"]) for one in first["voted"]] == [
        ("bob", "bob", False)
    ]
    assert first["rule"]["approvers"] == ["group:sre"] and first["rule"]["quorum"] == 2
    assert not first["mine"]
    assert inbox.get("?mine=true", BOB).json()["approvals"] == []
    assert len(inbox.get("?mine=true", "phone").json()["approvals"]) == 1
    last = inbox.decide(row.id, True, "phone", reason="fine, too").json()
    assert (last["state"], last["decision"]["reason"]) == ("APPROVED", "fine, too")
