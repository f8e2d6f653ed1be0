"""Rules that say who has to approve a call, how many, and until when, over every protocol."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sayso import (
    Agent,
    Call,
    Caller,
    ConfigError,
    InvalidRequest,
    LocalShell,
    Principal,
    Proposal,
    tool,
)
from sayso.cli import run
from sayso.testing import Served, Service, scripted, user

AUTH = """
[auth]
scheme = "bearer"
[auth.tokens]
ann = "token-of-ann"
bob = "token-of-bob"
eve = "token-of-eve"
desk = "token-of-desk"
phone = "token-of-phone"
bot = "token-of-bot"
[auth.principals.ann]
kind = "person"
groups = ["sre"]
[auth.principals.bob]
kind = "person"
groups = ["sre"]
[auth.principals.eve]
kind = "person"
[auth.principals.desk]
kind = "service"
[auth.principals.bot]
kind = "agent"
groups = ["sre"]
[auth.people]
bob = ["bearer|bob", "bearer|phone"]
"""
RAN: list[str] = []


@tool(requires_approval=True, editable=True)
def refund(amount: int) -> str:
    """Pay money back."""
    RAN.append(str(amount))
    return f"paid {amount}"


def config(rule: str, more: str = "") -> str:
    return f'{AUTH}[approvals]\n{more}[[approvals.rules]]\ntool = "*"\n{rule}\n'


Asked = Callable[..., Service]


@pytest.fixture
def serving(sayso_served: Served) -> Asked:
    RAN.clear()

    def serve(rule: str, more: str = "", **options: Any) -> Service:
        model = scripted([Call("1", "refund", {"amount": 5})], *["done"] * 5)
        agent = Agent(**{"model": model, "tools": [refund], **options})
        return sayso_served(agent, config=config(rule, more))

    return serve


def token(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-of-{who}"}


def proposed(service: Service, who: str = "desk", **fields: Any) -> dict[str, Any]:
    """The call that a turn of this caller proposes."""
    reply = service.chat(user("refund 5", **fields), headers=token(who))
    (call,) = reply["data"]["tool_calls"]
    return dict(call)


def decision(call: dict[str, Any], **fields: Any) -> dict[str, Any]:
    fields = fields or {"execute": True}
    return {"messages": [user(data={"tool_calls": [{**call, **fields}]})]}


def decided(service: Service, call: dict[str, Any], who: str, **fields: Any) -> Any:
    return service.post("/api/chat", decision(call, **fields), token(who))


def row_of(service: Service, call: dict[str, Any]) -> Proposal:
    rows = asyncio.run(service.host.record.settle([call["id"]]))
    return rows[call["id"]]


def refused(answer: Any) -> str:
    assert answer.status == 422, answer.text
    return str(answer.json()["detail"][0]["type"])


def test_those_whom_the_rule_names_approve_whatever_deciders_says(serving: Asked) -> None:
    service = serving('approvers = ["group:sre"]')
    call = proposed(service)
    assert refused(decided(service, call, "desk")) == "approval_not_allowed"
    # To other principals the call does not exist.
    assert refused(decided(service, call, "eve")) == "approval_not_issued"
    assert refused(decided(service, call, "bot")) == "approval_not_allowed"
    assert row_of(service, call).state == "PENDING" and RAN == []
    reply = decided(service, call, "ann").json()
    assert reply["data"]["executed_tool_calls"][0]["output"] == "paid 5"
    row = row_of(service, call)
    assert row.decision is not None
    assert (row.state, row.decision.who, RAN) == ("DONE", "ann", ["5"])


def test_person_is_named_by_any_of_its_principals(serving: Asked) -> None:
    service = serving('approvers = ["bob"]')
    call = proposed(service)
    assert decided(service, call, "phone").status == 200
    assert RAN == ["5"]


def test_below_the_quorum_the_call_is_stated_again_with_words(serving: Asked) -> None:
    service = serving('approvers = ["group:sre", "bob"]\nquorum = 2')
    call = proposed(service)
    first = decided(service, call, "ann")
    assert first.status == 200
    reply = first.json()
    (again,) = reply["data"]["tool_calls"]
    assert (again["id"], again["execute"]) == (call["id"], False)
    assert reply["content"] == (
        "refund was approved by ann; it needs one more approval of the group sre, bob."
    )
    (shown,) = reply["data"]["approvals"]
    assert shown["votes"] == {
        "needed": 2,
        "given": 1,
        "by": ["ann"],
        "of": ["group:sre", "bob"],
    }
    # Another principal of the same person is no second person.
    assert decided(service, call, "ann").json()["data"]["tool_calls"]
    assert [vote.person for vote in row_of(service, call).votes] == ["ann"]
    assert RAN == []
    assert decided(service, call, "phone").json()["data"]["executed_tool_calls"]
    row = row_of(service, call)
    assert (row.state, [vote.who for vote in row.votes], RAN) == ("DONE", ["ann"], ["5"])
    assert row.decision is not None and row.decision.who == "phone"


@pytest.mark.parametrize("path", ["/api/sendMessage", "/api/sendMessageStream", "/api/chat-stream"])
def test_old_clients_below_a_quorum_get_words_and_no_error(serving: Asked, path: str) -> None:
    service = serving('approvers = ["group:sre"]\nquorum = 2')
    call = proposed(service)
    answer = service.post(path, decision(call), token("ann"))
    assert answer.status == 200
    assert "needs one more approval" in answer.text and '"error"' not in answer.text
    assert ('"votes"' in answer.text) == path.startswith("/api/chat")
    assert RAN == []
    answer = service.post(path, decision(call), token("bob"))
    assert "paid 5" in answer.text and RAN == ["5"]


def test_one_rejection_of_an_approver_rejects(serving: Asked) -> None:
    service = serving('approvers = ["group:sre"]\nquorum = 2')
    call = proposed(service)
    decided(service, call, "ann")
    assert decided(service, call, "bob", rejection_reason="no").status == 200
    assert row_of(service, call).state == "REJECTED"
    assert refused(decided(service, call, "ann")) == "approval_conflict"


def test_who_got_the_proposal_may_always_reject_it(serving: Asked) -> None:
    for who in ("desk", "bot"):
        service = serving('approvers = ["group:sre"]')
        call = proposed(service, who)
        assert decided(service, call, who, rejection_reason="never mind").status == 200
        assert row_of(service, call).state == "REJECTED"


def test_nobody_approves_what_they_asked_for(serving: Asked) -> None:
    service = serving('approvers = ["group:sre"]\nnot_requester = true')
    call = proposed(service, "phone")
    for who in ("phone", "bob"):
        assert refused(decided(service, call, who)) == "approval_not_allowed"
    assert decided(service, call, "ann").status == 200
    assert RAN == ["5"]


def test_nor_what_a_service_asked_for_in_their_name(serving: Asked) -> None:
    service = serving('approvers = ["group:sre"]\nnot_requester = true')
    call = proposed(service, "desk", user={"id": "ann"})
    assert refused(decided(service, call, "ann")) == "approval_not_allowed"
    assert decided(service, call, "bob").status == 200


def test_editor_asks_anew_and_approves_what_was_edited(serving: Asked) -> None:
    service = serving('approvers = ["group:sre", "eve"]\nquorum = 2')
    call = proposed(service)
    decided(service, call, "ann")
    changed = {**call, "input": {"amount": 1}}
    assert decided(service, changed, "bob").status == 200
    # The vote for the former input is void.
    row = row_of(service, call)
    assert ([vote.person for vote in row.votes], row.runs) == (["bob"], {"amount": 1})
    assert decided(service, changed, "eve").status == 200
    assert RAN == ["1"]


def test_editor_of_a_call_that_others_must_approve_approves_nothing(serving: Asked) -> None:
    service = serving('approvers = ["group:sre"]\nnot_requester = true')
    call = proposed(service)
    changed = {**call, "input": {"amount": 1}}
    assert decided(service, changed, "ann").status == 200
    assert (row_of(service, call).state, RAN) == ("PENDING", [])
    assert refused(decided(service, changed, "ann")) == "approval_not_allowed"
    assert decided(service, changed, "bob").status == 200
    assert RAN == ["1"]


@pytest.mark.parametrize("list_", ["tool_calls", "approvals"])
def test_needed_reason_stands_beside_execute(serving: Asked, list_: str) -> None:
    service = serving('reason = "required"')
    call = proposed(service)
    body: dict[str, Any] = {"id": call["id"], "execute": True}
    body |= {"name": call["name"], "input": call["input"]} if list_ == "tool_calls" else {}
    message = {"messages": [user(data={list_: [body]})]}
    for none in ({}, {"reason": None}, {"reason": " \n"}):
        body |= none
        bare = service.post("/api/chat", message, token("desk"))
        assert refused(bare) == "approval_reason_required"
    body["reason"] = "agreed with the customer"
    assert service.post("/api/chat", message, token("desk")).status == 200
    row = row_of(service, call)
    assert row.decision is not None
    assert (row.decision.approved, row.decision.reason) == (True, "agreed with the customer")


def test_call_waits_no_longer_than_its_rule_says(serving: Asked) -> None:
    service = serving('decide_within = "1s"')
    call = proposed(service)
    row = row_of(service, call)
    assert row.expires - row.created == pytest.approx(1.0)


def test_approved_call_starts_soon_or_never(serving: Asked) -> None:
    service = serving('run_within = "300ms"', 'deciders = "any"\nrun = "caller"\n')
    call = proposed(service)
    decide = service.host.calls.decide
    asyncio.run(decide(call["id"], Caller("x", "ann"), approved=True, run=False))
    row = row_of(service, call)
    assert row.decision is not None
    assert row.expires - row.decision.at == pytest.approx(0.3)
    deadline = time.monotonic() + 30
    while row_of(service, call).state == "APPROVED" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert row_of(service, call).state == "EXPIRED"
    assert refused(decided(service, call, "desk")) == "approval_expired"
    assert RAN == []


def test_terminal_commands_are_matched_as_the_tool_command(serving: Asked) -> None:
    shell = [Call("1", "suggest_commands", {"commands": [{"command": "true"}]})]
    rule = 'approvers = ["ann"]\narguments = { command = "true" }'
    service = serving(rule, model=scripted(shell, "done"), commands=LocalShell())
    reply = service.chat(user("go"), headers=token("desk"))
    (command,) = reply["data"]["cmds"]
    body = {"messages": [user(data={"cmds": [{**command, "execute": True}]})]}
    assert refused(service.post("/api/chat", body, token("desk"))) == "approval_not_allowed"
    assert service.post("/api/chat", body, token("ann")).status == 200


def test_first_rule_that_matches_counts_and_a_newer_one_changes_nothing(serving: Asked) -> None:
    rules = (
        'arguments = { amount = 5 }\napprovers = ["ann"]\n'
        '[[approvals.rules]]\ntool = "refund"\napprovers = ["eve"]'
    )
    service = serving(rules)
    call = proposed(service)
    row = row_of(service, call)
    assert row.terms is not None and row.terms.approvers == ["ann"]
    service.host.policy.rules.clear()
    assert refused(decided(service, call, "desk")) == "approval_not_allowed"


def test_votes_are_rows_of_the_log(serving: Asked) -> None:
    service = serving('approvers = ["group:sre"]\nquorum = 2')
    call = proposed(service)
    decided(service, call, "ann")
    page = asyncio.run(service.host.record.log(None, 1_000))
    (vote,) = [e.row.entry for e in page.events if e.row.entry["event"] == "voted"]
    assert (vote["id"], vote["who"], vote["person"], vote["needed"]) == (
        *(call["id"], "ann", "ann"),
        2,
    )
    row = row_of(service, call)
    assert row.terms is not None and vote["rule"] == row.terms.rule


def test_decision_of_a_single_call_is_bound_by_the_rule_too(serving: Asked) -> None:
    service = serving('approvers = ["group:sre"]\nquorum = 2')
    calls, known = service.host.calls, {str(one): one for one in service.host.tokens}

    async def use() -> None:
        row = await calls.propose("refund", {"amount": 5}, Caller("mcp", known["desk"]))
        with pytest.raises(InvalidRequest) as error:
            await calls.decide(row.id, Caller("mcp", known["desk"]), approved=True)
        assert error.value.items[0]["type"] == "approval_not_allowed"
        first = await calls.decide(row.id, Caller("mcp", known["ann"]), approved=True)
        assert (first.state, RAN) == ("PENDING", [])
        # A name that nobody proved is no approver.
        with pytest.raises(InvalidRequest):
            await calls.decide(row.id, Caller("mcp", "bob"), approved=True)
        with pytest.raises(InvalidRequest):
            forged = Principal("eve", groups=["sre"])
            await calls.decide(row.id, Caller("mcp", forged), approved=True)
        last = await calls.decide(row.id, Caller("mcp", known["bob"]), approved=True)
        assert (last.state, RAN) == ("DONE", ["5"])

    asyncio.run(use())


def test_command_line_rejects_and_approves_nothing_that_a_rule_gives_to_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sayso_served: Served
) -> None:
    file = tmp_path / "sayso.toml"
    more = f'ledger = "sqlite:///{tmp_path}/calls.db"\n'
    file.write_text(config('approvers = ["desk"]', more), "utf-8")
    agent = Agent(model=scripted([Call("1", "refund", {"amount": 5})] * 1), tools=[refund])
    service = sayso_served(agent, config=file)
    call = proposed(service)
    assert run(["approvals", "approve", call["id"], "--config", str(file)]) == 1
    refused = capsys.readouterr().err
    assert "names others who may approve" in refused and "--url" in refused
    assert run(["approvals", "reject", call["id"], "--config", str(file)]) == 0
    assert row_of(service, call).state == "REJECTED"


IMPOSSIBLE = [
    ('approvers = ["nobody"]', "nobody with a token is 'nobody'"),
    ('approvers = ["group:none"]', "in the group 'none'"),
    ('approvers = ["bot"]', "all who may approve are agents"),
    ('approvers = ["ann"]\nquorum = 2', "it needs 2 persons"),
    ('approvers = ["bob", "phone"]\nquorum = 2', "it needs 2 persons"),
    ('approvers = ["desk"]\nnot_requester = true', "it needs 1 persons"),
    ("quorum = 2", "name approvers"),
]


@pytest.mark.parametrize(("rule", "why"), IMPOSSIBLE)
def test_rule_that_nobody_can_meet_stops_the_start(serving: Asked, rule: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        serving(rule)
    assert "approvals.rules, rule 1 ('*') can never be met" in str(error.value)
    assert why in str(error.value)


def test_rules_for_people_need_authentication(sayso_served: Served) -> None:
    rules = '[[approvals.rules]]\ntool = "*"\napprovers = ["ann"]\n'
    with pytest.raises(ConfigError, match="set \\[auth\\]"):
        sayso_served(Agent(model=scripted(), tools=[refund]), config=rules)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ('action = "allow"\napprovers = ["ann"]', "approvers: only where action is 'require'"),
        ("quorum = 0", "quorum"),
        ('approvers = ["group:"]', "'group:NAME'"),
        ('reason = "yes"', "reason"),
    ],
)
def test_wrong_rules_are_refused(serving: Asked, rule: str, why: str) -> None:
    with pytest.raises(ConfigError) as error:
        serving(rule)
    assert why in str(error.value)


def test_cases_of_rules_say_what_is_demanded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ops.py").write_text(
        "from sayso import Agent, tool\n\n@tool(requires_approval=True)\n"
        "def refund(amount: int) -> str:\n    '''Pay.'''\n\nagent = Agent(tools=[refund])\n",
        "utf-8",
    )
    file = tmp_path / "sayso.toml"
    rule = 'approvers = ["group:sre"]\nquorum = 2\nreason = "required"\nrun_within = "1h"'
    file.write_text(f'agent = "ops.py:agent"\n{config(rule)}', "utf-8")
    cases = tmp_path / "cases.toml"
    right = {"approvers": ["group:sre"], "quorum": 2, "reason": "required", "run_within": "1h"}
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in right.items())
    case = '[[case]]\ntool = "refund"\narguments = {amount = 1}\nexpect = "require"\n'
    cases.write_text(case + text)
    assert run(["approvals", "test", str(cases), "--config", str(file)]) == 0
    cases.write_text(cases.read_text().replace("quorum = 2", "quorum = 3"))
    assert run(["approvals", "test", str(cases), "--config", str(file)]) == 1
    assert "quorum 2" in capsys.readouterr().out
    # A grant is the approval of one person, and this call needs two.
    cases.write_text(f"{case}grants = true\n")
    assert run(["approvals", "test", str(cases), "--config", str(file)]) == 1
    assert "grants False, not require; grants True" in capsys.readouterr().out
