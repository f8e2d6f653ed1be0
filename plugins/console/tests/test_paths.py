"""The console's paths over HTTP: who gets what, and what is refused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest

from sayso import Agent, Call, Caller, LocalShell, Proposal, tool
from sayso.testing import Answer, Served, Service, scripted, served, user
from sayso_console import Console

FILES = tuple(Console.public_paths)
CONFIG = 'plugins = ["v2", "console"]\n'
TOKENS = """
[auth]
scheme = "bearer"
tokens = { ann = "token-of-ann-0123456789", bob = "token-of-bob-0123456789" }
"""
ANN = {"Authorization": "Bearer token-of-ann-0123456789"}
BOB = {"Authorization": "Bearer token-of-bob-0123456789"}


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else []


def propose(service: Service, caller: Caller | None = None, path: str = "x") -> Proposal:
    work = service.host.calls.propose("delete", {"path": path}, caller or Caller("mcp"))
    return asyncio.run(work)


def look(service: Service, row: Proposal) -> Proposal:
    found = asyncio.run(service.host.calls.look(row.id, Caller("test", row.principal)))
    assert found is not None
    return found


def opens(service: Service) -> dict[str, str]:
    """The headers that the page of the person who started the service sends, on a service without
    authentication."""
    token = f"Bearer {service.host.start_token}"
    return {} if service.host.guarded else {"Authorization": token}


def decide(service: Service, id: str, body: Any, **headers: str) -> Answer:
    given = (
        {"Origin": service.url}
        | opens(service)
        | {k.replace("_", "-"): v for k, v in headers.items()}
    )
    return service.post(f"/console/approvals/{id}", body, given)


def listed(service: Service, **headers: str) -> list[dict[str, Any]]:
    answer = service.get("/console/approvals", opens(service) | headers)
    assert answer.status == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["approvals"]
    return rows


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(Agent(name="files", model=scripted(), tools=[delete]), config=CONFIG) as running:
        yield running


@pytest.mark.parametrize("path", FILES)
def test_files_are_kept_to_themselves(service: Service, path: str) -> None:
    answer = service.get(path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"


def test_page_names_only_its_own_files(service: Service) -> None:
    page = service.get("/console").text
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    for banned in ("style=", "onclick=", "<style", "onerror="):
        assert banned not in page
    script = "".join(service.get(path).text for path in FILES if path.endswith(".js"))
    assert "import(" not in script
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in script


def test_console_is_not_there_unless_it_is_named() -> None:
    with served(lambda messages, context: "fine", config='plugins = ["v2"]') as service:
        assert service.get("/console").status == 404
        assert service.get("/console/approvals").status == 404


def test_installed_console_waits_to_be_named() -> None:
    with served(lambda messages, context: "fine") as service:
        assert service.post("/api/chat", {}).status == 400
        assert service.get("/console").status == 404


def test_what_waits_is_listed_with_all_that_a_person_needs(service: Service) -> None:
    row = propose(service, Caller("mcp", client="an editor"), "listed.txt")
    (found,) = [item for item in listed(service) if item["id"] == row.id]
    assert found["name"] == "delete"
    assert found["type"] == "tool_call"
    assert found["input"] == {"path": "listed.txt"}
    assert found["description"] == "Delete a file."
    assert (found["protocol"], found["client"]) == ("mcp", "an editor")
    assert found["created"] < found["expires"]
    assert service.get("/console/approvals", opens(service)).headers["cache-control"] == "no-store"


def test_call_whose_texts_no_json_holds_hides_nothing_that_waits(sayso_served: Served) -> None:
    half = "cut \ud83d"
    about = {"a": {"type": half, "limit": float("nan")}}
    call = {"id": "1", "name": half, "input": {"a": 1}, "intent": half}
    call |= {"tool_description": half, "input_description": about}
    command = {"command": "ls", "intent": half}
    approval = {"id": "2", "type": "tool_call", "name": "n", "input": {}, "description": half}
    data = {"tool_calls": [call], "cmds": [command], "approvals": [approval]}
    service = sayso_served(lambda messages, context: {"data": data}, config=CONFIG)
    sent = service.chat("go")["data"]["tool_calls"][0]
    first, second, third = listed(service)
    assert first["name"] == first["intent"] == first["description"] == sent["name"] == "cut ?"
    assert first["input_description"] == {"a": {"type": "cut ?", "limit": None}}
    assert second["intent"] == third["description"] == "cut ?"
    approved = {"role": "user", "content": "", "data": {"tool_calls": [{**sent, "execute": True}]}}
    assert service.ask(approved).status == 200


def test_call_after_half_a_character_of_the_model_is_listed(sayso_served: Served) -> None:
    model = scripted(["It goes \ud83d", Call("1", "delete", {"path": "x"})])
    service = sayso_served(Agent(model=model, tools=[delete]), config=CONFIG)
    service.chat("go")
    (found,) = listed(service)
    assert found["intent"] == "It goes ?"


def test_call_that_expires_after_the_year_9999_hides_nothing_that_waits(
    sayso_served: Served,
) -> None:
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=CONFIG)
    service.host.ledger.ttl = 1e300
    late = propose(service)
    service.host.ledger.ttl = 60.0
    soon = propose(service)
    first, second = listed(service)
    assert first["id"] == soon.id
    assert (second["id"], second["expires"]) == (late.id, "9999-12-31T23:59:59+00:00")


def test_decision_is_recorded_and_nothing_runs(service: Service) -> None:
    row = propose(service)
    answer = decide(service, row.id, {"approve": True})
    assert (answer.status, answer.json()["id"], answer.json()["state"]) == (
        200,
        row.id,
        "APPROVED",
    )
    assert look(service, row).output is None
    assert row.id not in [item["id"] for item in listed(service)]
    again = decide(service, row.id, {"approve": True})
    assert again.json()["state"] == "APPROVED"


def test_decision_that_contradicts_is_refused(service: Service) -> None:
    row = propose(service)
    assert decide(service, row.id, {"approve": False, "reason": "no"}).json()["state"] == "REJECTED"
    answer = decide(service, row.id, {"approve": True})
    assert answer.status == 422
    assert answer.json()["detail"][0]["type"] == "approval_conflict"
    assert look(service, row).output == "Rejected: no"


def test_who_decided_when_is_told_to_whom_the_call_is_visible(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=CONFIG + TOKENS)
    row = propose(service, Caller("mcp", "ann"))
    path = f"/console/approvals/{row.id}"
    before = {"id": row.id, "state": "PENDING", "edited": None, "decision": None}
    assert service.get(path, ANN).json().items() >= before.items()
    decide(service, row.id, {"approve": False, "reason": "no"}, **ANN)
    found = service.get(path, ANN).json()
    at = found["decision"].pop("at")
    assert datetime.fromisoformat(at).tzinfo is not None
    assert found["state"] == "REJECTED"
    assert found["decision"] == {
        "approved": False,
        "who": "ann",
        "claimed": False,
        "protocol": "console",
        "reason": "no",
    }
    assert service.get(path, BOB).status == 404
    assert service.get(path).status == 401
    assert service.get(path, ANN | {"Origin": "https://evil.example"}).status == 403


@pytest.mark.parametrize("approve", [True, False])
def test_unknown_call_is_404(service: Service, approve: bool) -> None:
    answer = decide(service, "0" * 32, {"approve": approve})
    assert (answer.status, answer.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        (b"no json", ["body"], "json_invalid"),
        ({}, ["body", "approve"], "missing"),
        ({"approve": 1}, ["body", "approve"], "bool_type"),
        ({"approve": True, "input": []}, ["body", "input"], "dict_type"),
        ({"approve": True, "other": {}}, ["body", "other"], "extra_forbidden"),
        ({"approve": False, "reason": "x" * 4001}, ["body", "reason"], "string_too_long"),
        (b'{"approve":true,"input":{"path":NaN}}', ["body"], "json_invalid"),
        (b'{"approve":true,"input":{"path":1e999}}', ["body"], "finite_number"),
        ({"approve": True, "input": {"path": nested(64)}}, ["body"], "too_deep"),
        ({"approve": True, "input": {"path": [0] * 500_001}}, ["body"], "too_many_values"),
    ],
)
def test_wrong_decision_is_refused(service: Service, body: Any, loc: list[str], kind: str) -> None:
    row = propose(service)
    answer = decide(service, row.id, body)
    assert answer.status == 422
    (item,) = answer.json()["detail"]
    assert (item["loc"], item["type"]) == (loc, kind)
    assert look(service, row).state == "PENDING"


def test_input_of_a_tool_that_is_not_editable_cannot_be_changed(service: Service) -> None:
    row = propose(service)
    answer = decide(service, row.id, {"approve": True, "input": {"path": "y"}})
    assert (answer.status, answer.json()["detail"][0]["type"]) == (422, "approval_changed")
    assert look(service, row).state == "PENDING"


def test_only_json_of_bounded_size_is_read(service: Service) -> None:
    row = propose(service)
    assert decide(service, row.id, {"approve": True}, Content_Type="text/plain").status == 415
    large = {"approve": False, "reason": "x" * 11_000_000}
    assert decide(service, row.id, large).status == 413
    assert look(service, row).state == "PENDING"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "x"])
def test_foreign_pages_may_neither_read_nor_decide(service: Service, origin: str) -> None:
    row = propose(service)
    answer = decide(service, row.id, {"approve": True}, Origin=origin)
    assert (answer.status, answer.json()["code"]) == (403, "FOREIGN_ORIGIN")
    assert service.get("/console/approvals", opens(service) | {"Origin": origin}).status == 403
    assert look(service, row).state == "PENDING"


def test_decision_without_an_origin_is_refused(service: Service) -> None:
    row = propose(service)
    path = f"/console/approvals/{row.id}"
    assert service.post(path, {"approve": True}, opens(service)).status == 403
    assert look(service, row).state == "PENDING"


def test_foreign_embedding_may_not_read(service: Service) -> None:
    site = {"Sec-Fetch-Site": "cross-site"}
    answer = service.get("/console/approvals", opens(service) | site)
    assert answer.status == 403


def test_origins_of_the_configuration_may_decide_but_not_all_of_them(
    sayso_served: Served,
) -> None:
    agent = Agent(model=scripted(), tools=[delete])
    named = '[server]\ncors_origins = ["https://help.example"]\n'
    service = sayso_served(agent, config=CONFIG + named)
    row = propose(service)
    assert decide(service, row.id, {"approve": True}, Origin="https://help.example").status == 200
    every = sayso_served(agent, config=CONFIG + '[server]\ncors_origins = ["*"]\n')
    other = propose(every)
    assert decide(every, other.id, {"approve": True}, Origin="https://x.example").status == 403


def test_with_tokens_only_the_files_are_for_everybody(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=CONFIG + TOKENS)
    for path in FILES:
        assert service.get(path).status == 200
        assert service.request("HEAD", path).status == 200
        assert service.request("POST", path).status == 401
    assert service.get("/console/approvals").status == 401
    assert decide(service, "0" * 32, {"approve": True}).status == 401
    assert service.get("/console/other").status == 401


def test_proposals_of_another_principal_do_not_exist(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=CONFIG + TOKENS)
    row = propose(service, Caller("mcp", "ann"))
    assert listed(service, **BOB) == []
    assert decide(service, row.id, {"approve": True}, **BOB).status == 404
    assert [item["id"] for item in listed(service, **ANN)] == [row.id]
    assert decide(service, row.id, {"approve": True}, **ANN).status == 200
    decision = look(service, row).decision
    assert decision is not None
    assert (decision.who, decision.claimed, decision.protocol) == ("ann", False, "console")


def test_deciders_of_the_configuration_see_all(sayso_served: Served) -> None:
    config = CONFIG + TOKENS + '[approvals]\ndeciders = "any"\n'
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=config)
    row = propose(service, Caller("mcp", "ann"))
    assert [item["principal"] for item in listed(service, **BOB)] == ["ann"]
    assert decide(service, row.id, {"approve": True}, **BOB).status == 200


def test_approved_calls_of_a_chat_run_in_that_chat(sayso_served: Served) -> None:
    shell = Call("2", "suggest_commands", {"commands": [{"command": "echo by hand"}]})
    model = scripted([Call("1", "delete", {"path": "x"}), shell], "Both are done.")
    agent = Agent(model=model, tools=[delete], commands=LocalShell())
    service = sayso_served(agent, config=CONFIG)
    talk = service.conversation()
    talk.say("clean up")
    rows = listed(service)
    assert sorted(row["type"] for row in rows) == ["command", "tool_call"]
    for row in rows:
        assert decide(service, row["id"], {"approve": True}).json()["state"] == "APPROVED"
    reply = talk.approve()
    assert reply["data"]["executed_tool_calls"][0]["output"] == "deleted x"
    assert "by hand" in reply["data"]["executed_cmds"][0]["output"]


def test_expired_calls_are_settled_and_not_listed(sayso_served: Served) -> None:
    config = CONFIG + '[approvals]\nttl = "0.3s"\n'
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=config)
    row = propose(service)
    deadline = time.monotonic() + 60
    while listed(service) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert listed(service) == []
    assert look(service, row).state == "EXPIRED"
    answer = decide(service, row.id, {"approve": True})
    assert answer.json()["detail"][0]["type"] == "approval_expired"


def pages(service: Service) -> Iterator[list[Any]]:
    """The pending calls, page by page."""
    query = ""
    while True:
        answer = service.get(f"/console/approvals{query}", opens(service)).json()
        yield answer["approvals"]
        if answer["next"] is None:
            return
        query = f"?after={quote(answer['next'])}"


def test_list_is_bounded_newest_first_and_has_further_pages(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=CONFIG)
    rows = [propose(service, path=str(n)) for n in range(205)]
    found = list(pages(service))
    assert [len(page) for page in found] == [100, 100, 5]
    assert [item["id"] for page in found for item in page] == [row.id for row in rows[::-1]]


def test_a_page_has_so_many_bytes_or_one_call(sayso_served: Served) -> None:
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=CONFIG)
    sizes = [10, 700_000, 2_000_000, 700_000, 10]
    rows = [propose(service, path="x" * size) for size in sizes]
    found = list(pages(service))
    assert [item["id"] for page in found for item in page] == [row.id for row in rows[::-1]]
    assert [len(page) for page in found] == [2, 1, 2]


def test_a_flood_of_one_principal_hides_nobody_elses_call(sayso_served: Served) -> None:
    config = CONFIG + '[approvals]\ndeciders = "any"\n' + TOKENS
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=config)
    first = {name: propose(service, Caller("mcp", name)) for name in ("ann", "bob")}
    flood = [propose(service, Caller("mcp", "eve"), path=str(n)) for n in range(300)]
    late = propose(service, Caller("mcp", "ann"))
    ids = [item["id"] for item in listed(service, **BOB)]
    assert ids[:4] == [late.id, flood[-1].id, first["bob"].id, flood[-2].id]
    assert first["ann"].id in ids and len(ids) == 100


def test_a_place_that_is_none_is_refused(service: Service) -> None:
    for after in ("x", "1:2", "a:b:c:d"):
        assert service.get(f"/console/approvals?after={after}", opens(service)).status == 422


@pytest.mark.parametrize(
    ("host", "status", "code"),
    [("127.0.0.1", 401, "UNAUTHENTICATED"), ("0.0.0.0", 403, "AUTH_REQUIRED")],
)
def test_without_authentication_a_tool_that_fetches_addresses_decides_nothing(
    sayso_served: Served, host: str, status: int, code: str
) -> None:
    config = f'{CONFIG}[server]\nhost = "{host}"\n'
    service = sayso_served(Agent(model=scripted(), tools=[delete]), config=config)
    row = propose(service)
    page = {"Origin": service.url}
    for answer in (
        service.get("/console/approvals", page),
        service.get(f"/console/approvals/{row.id}", page),
        service.post(f"/console/approvals/{row.id}", {"approve": True}, page),
        service.get("/console/approvals", page | {"Authorization": "Bearer guessed"}),
    ):
        assert (answer.status, answer.json()["code"]) == (status, code)
    assert look(service, row).state == "PENDING"


def test_developer_reads_the_prompt_as_the_model_got_it_and_no_secret(sayso_served: Served) -> None:
    agent = Agent(model=scripted("Fine."), system_prompt="Be brief.")
    service = sayso_served(agent, config=f"{CONFIG}[server]\ndocs = true\n{TOKENS}")
    platform = {"tenant_name": "acme", "platform_token": "a-secret-of-ann-0123"}
    said = user("the token is a-secret-of-ann-0123", platform_context=platform)
    assert service.post("/api/chat", {"messages": [said]}, ANN).status == 200
    [call] = service.get("/console/prompt", ANN).json()["calls"]
    assert call["system"] == "Be brief." and call["tools"] == []
    assert call["turns"][0]["blocks"][0]["text"].startswith("the token is ")
    assert "a-secret-of-ann-0123" not in service.get("/console/prompt", ANN).text
    assert service.get("/console/prompt", BOB).json() == {"calls": []}
    assert service.get("/console/prompt").status == 401


def test_prompts_are_kept_for_developers_alone(service: Service) -> None:
    assert service.get("/console/prompt", opens(service)).status == 404
