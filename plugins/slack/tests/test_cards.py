"""Cards in Slack: what they show, and that a press is a decision like any other."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_slack import (
    CHANNEL,
    SECRET,
    TEAM,
    FakeSlack,
    buttons,
    post,
    press,
    signed,
    slack,
    submit,
    until,
)

from sayso import Agent, Caller, PlatformContext, PluginError, Principal, Proposal, tool
from sayso.testing import Service, scripted, served

HEAD = """
plugins = ["v2", "notify", "slack"]
[auth]
scheme = "bearer"
[auth.tokens]
ann = "token-of-ann"
[auth.people]
ann = ["bearer|ann", "slack|T0TEAM|U1ANN"]
bob = ["slack|T0TEAM|U2BOB"]
[auth.principals."slack|T0TEAM|U2BOB"]
groups = ["sre"]
[approvals]
run = "caller"
deciders = "any"
[[approvals.rules]]
tool = "restart"
approvers = ["group:sre"]
not_requester = true
[[approvals.rules]]
tool = "wipe"
approvers = ["ann", "bob"]
quorum = 2
[[approvals.rules]]
tool = "refund"
approvers = ["group:sre"]
reason = "required"
[plugin.notify]
page = "https://agent.example.com/console"
"""


def configured(slack: FakeSlack, more: str = 'inputs = ["*"]', mode: str = "socket") -> str:
    """The text of a sayso.toml."""
    way = 'app_token = "xapp-1"' if mode == "socket" else f'signing_secret = "{SECRET}"'
    return (
        f'{HEAD}[plugin.slack]\nbot_token = "xoxb-1"\n{way}\nteams = ["{TEAM}"]\n'
        f'channel = "{CHANNEL}"\napi = "{slack.api}"\n{more}\n'
    )


def agent() -> Agent:
    """An agent with gated tools."""

    @tool(requires_approval=True, editable=True)
    def delete(path: str) -> str:
        """Delete a file."""
        return f"deleted {path}"

    @tool(requires_approval=True, destructive=False)
    def restart(name: str) -> str:
        """Restart a service."""
        return "restarted"

    @tool(requires_approval=True)
    def refund(amount: int) -> str:
        """Refund money."""
        return "refunded"

    @tool(requires_approval=True)
    def wipe(disk: str) -> str:
        """Wipe a disk."""
        return "wiped"

    tools = [delete, restart, refund, wipe]
    return Agent(name="ops", id="ops", model=scripted(), tools=tools)


@pytest.fixture(scope="module")
def workspace() -> Iterator[FakeSlack]:
    """The module's Slack."""
    with slack() as made:
        yield made


@pytest.fixture(scope="module")
def service(workspace: FakeSlack) -> Iterator[Service]:
    """A service that is connected over Socket Mode."""
    with served(agent(), config=configured(workspace)) as running:
        yield running


def propose(service: Service, tool: str = "delete", who: str = "desk", **given: Any) -> Proposal:
    """A call that a principal proposes, recorded."""
    input = given or {"path": "report.pdf"}
    work = service.host.calls.propose(tool, input, Caller("mcp", Principal(who)))
    return asyncio.run(work)


def row_of(service: Service, id: str) -> Proposal:
    """The call in its present state."""
    found = asyncio.run(service.host.record.settle([id]))
    return found[id]


def shown(workspace: FakeSlack, row: Proposal) -> dict[str, Any]:
    """The message with the card of the call."""
    found: dict[str, Any] = until(lambda: workspace.card(row.id), "the card")
    return found


def test_a_card_shows_the_whole_input_as_text_and_a_press_decides(
    service: Service, workspace: FakeSlack
) -> None:
    row = propose(service, path="<!channel> `*x*` \u202e.pdf")
    card = shown(workspace, row)
    assert [*buttons(card)] == ["Approve", "Reject", "Review"]
    assert buttons(card)["Approve"]["value"] == f"{row.id} {row.seen}"
    assert buttons(card)["Approve"]["confirm"], "an unmarked tool counts as destructive"
    assert buttons(card)["Review"]["url"] == f"https://agent.example.com/console#{row.id}"
    kinds = {block["type"] for block in card["blocks"]}
    assert "mrkdwn" not in json.dumps(card["blocks"]) and "rich_text" in kinds
    (input,) = (b for b in card["blocks"] if b["type"] == "rich_text")
    text = input["elements"][0]["elements"][0]["text"]
    assert "<!channel> `*x*` \\u202e.pdf" in text
    assert "<!channel>" not in card["text"]
    envelope = workspace.send("interactive", press(card, buttons(card)["Approve"]))
    until(lambda: row_of(service, row.id).state == "APPROVED")
    assert envelope in workspace.acks
    given = row_of(service, row.id).decision
    assert given is not None and not given.claimed
    assert (given.who, given.protocol) == ("slack|T0TEAM|U2BOB", "slack")
    until(lambda: not buttons(card))
    assert "was approved by bob" in card["text"], "the person, whom people know"


def test_a_repeated_press_changes_nothing_and_is_answered_with_the_decision(
    service: Service, workspace: FakeSlack
) -> None:
    row = propose(service)
    card = shown(workspace, row)
    payload = press(card, buttons(card)["Approve"])
    for _ in range(3):
        workspace.send("interactive", payload)
    until(lambda: row_of(service, row.id).state == "APPROVED")
    workspace.send("interactive", payload)
    notices = "was approved by bob"
    until(lambda: [m for m in workspace.of("chat.postEphemeral") if notices in m["text"]])
    assert row_of(service, row.id).state == "APPROVED"


def test_a_user_whom_nobody_mapped_decides_nothing(service: Service, workspace: FakeSlack) -> None:
    row = propose(service)
    card = shown(workspace, row)
    workspace.send("interactive", press(card, buttons(card)["Approve"], user="U9GUEST"))
    until(lambda: [m for m in workspace.of("chat.postEphemeral") if m["user"] == "U9GUEST"])
    foreign = press(card, buttons(card)["Approve"], team="T9OTHER")
    workspace.send("interactive", foreign)
    shared = press(card, buttons(card)["Approve"])
    shared["user"]["team_id"] = "T9OTHER"
    envelope = workspace.send("interactive", shared)
    until(lambda: envelope in workspace.acks)
    time.sleep(0.3)
    assert row_of(service, row.id).state == "PENDING"


def test_the_rules_of_approvers_hold_for_a_press(service: Service, workspace: FakeSlack) -> None:
    row = propose(service, "restart", name="db")
    card = shown(workspace, row)
    assert "confirm" not in buttons(card)["Approve"], "its author says that it destroys nothing"
    workspace.send("interactive", press(card, buttons(card)["Approve"], user="U1ANN"))
    until(lambda: [m for m in workspace.of("chat.postEphemeral") if m["user"] == "U1ANN"])
    assert "names others" in workspace.of("chat.postEphemeral")[-1]["text"]
    assert row_of(service, row.id).state == "PENDING"
    workspace.send("interactive", press(card, buttons(card)["Approve"]))
    until(lambda: row_of(service, row.id).state == "APPROVED")


def test_a_card_counts_the_approvals_of_a_quorum(service: Service, workspace: FakeSlack) -> None:
    row = propose(service, "wipe", disk="sda")
    card = shown(workspace, row)
    assert "Approvals: 0 of 2" in json.dumps(card["blocks"])
    for _ in range(2):
        workspace.send("interactive", press(card, buttons(card)["Approve"]))
    until(lambda: "Approvals: 1 of 2" in json.dumps(card["blocks"]), "the count on the card")
    assert "approved by bob" in json.dumps(card["blocks"])
    assert row_of(service, row.id).state == "PENDING", "one person is one approval"
    workspace.send("interactive", press(card, buttons(card)["Approve"], user="U1ANN"))
    until(lambda: row_of(service, row.id).state == "APPROVED")


def test_a_rejection_opens_a_modal_for_its_reason(service: Service, workspace: FakeSlack) -> None:
    row = propose(service)
    card = shown(workspace, row)
    before = len(workspace.of("views.open"))
    workspace.send("interactive", press(card, buttons(card)["Reject"]))
    opened = until(lambda: workspace.of("views.open")[before:])[0]
    assert row_of(service, row.id).state == "PENDING", "only the submission decides"
    view = opened["view"] if isinstance(opened["view"], dict) else json.loads(opened["view"])
    workspace.send("interactive", submit(view, "it holds the payroll"))
    until(lambda: row_of(service, row.id).state == "REJECTED")
    given = row_of(service, row.id).decision
    assert given is not None and given.reason == "it holds the payroll"
    until(lambda: "was rejected by" in card["text"])


def test_an_approval_that_needs_a_reason_asks_for_it(
    service: Service, workspace: FakeSlack
) -> None:
    row = propose(service, "refund", amount=5)
    card = shown(workspace, row)
    before = len(workspace.of("views.open"))
    workspace.send("interactive", press(card, buttons(card)["Approve"]))
    opened = until(lambda: workspace.of("views.open")[before:])[0]
    view = opened["view"] if isinstance(opened["view"], dict) else json.loads(opened["view"])
    workspace.send("interactive", submit(view, "ticket 42"))
    until(lambda: row_of(service, row.id).state == "APPROVED")


def test_a_window_that_slack_does_not_open_is_told_to_who_pressed(
    service: Service, workspace: FakeSlack
) -> None:
    row = propose(service)
    card = shown(workspace, row)
    workspace.failing["views.open"] = 1
    workspace.send("interactive", press(card, buttons(card)["Reject"]))
    until(lambda: [m for m in workspace.of("chat.postEphemeral") if "press again" in m["text"]])
    assert row_of(service, row.id).state == "PENDING"


def test_an_input_that_does_not_fit_has_no_button_that_approves(
    service: Service, workspace: FakeSlack
) -> None:
    row = propose(service, path="x" * 4_000)
    card = shown(workspace, row)
    assert [*buttons(card)] == ["Review"]
    assert "xxxx" not in json.dumps(card)


@pytest.mark.parametrize(("length", "approve"), [(900, True), (2_000, False)])
def test_a_card_that_cannot_show_where_a_call_would_act_has_no_button_that_approves(
    service: Service, workspace: FakeSlack, length: int, approve: bool
) -> None:
    place = f"https://{'a' * length}.example"
    platform = PlatformContext(platform_base_url=place)
    caller = Caller("mcp", Principal("desk"))
    work = service.host.calls.propose("delete", {"path": "x"}, caller, platform=platform)
    card = shown(workspace, asyncio.run(work))
    assert ("Approve" in buttons(card)) == approve
    assert (place in json.dumps(card["blocks"])) == approve


def test_a_call_that_was_edited_since_is_not_approved_by_an_older_card(
    service: Service, workspace: FakeSlack
) -> None:
    row = propose(service, path="old")
    card = shown(workspace, row)
    payload = press(card, buttons(card)["Approve"])
    payload["actions"][0]["value"] = f"{row.id} sha256:{'0' * 64}"
    workspace.send("interactive", payload)
    until(lambda: [m for m in workspace.of("chat.postEphemeral") if "any more" in m["text"]])
    assert row_of(service, row.id).state == "PENDING"


def test_a_decision_made_elsewhere_changes_the_card(service: Service, workspace: FakeSlack) -> None:
    row = propose(service)
    card = shown(workspace, row)
    bob = Caller("inbox", Principal("bob"))
    asyncio.run(service.host.calls.decide(row.id, bob, approved=False, reason="no"))
    until(lambda: "was rejected by bob" in card["text"])
    assert not buttons(card)


def test_a_card_that_cannot_be_changed_is_answered_with_the_recorded_decision(
    workspace: FakeSlack, service: Service
) -> None:
    row = propose(service)
    card = shown(workspace, row)
    workspace.refused.add("chat.update")
    try:
        before = len(workspace.of("chat.postEphemeral"))
        workspace.send("interactive", press(card, buttons(card)["Approve"]))
        notices = until(lambda: workspace.of("chat.postEphemeral")[before:])
        assert "was approved by" in notices[0]["text"]
    finally:
        workspace.refused.clear()
    until(lambda: not buttons(card), "the outbox changing the card later")


def test_slack_that_asks_to_wait_gets_the_card_later(
    service: Service, workspace: FakeSlack
) -> None:
    workspace.limited = 1
    row = propose(service)
    shown(workspace, row)


def test_signed_requests_decide_without_a_token_and_no_others_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sayso.auth")
    with slack() as workspace:
        config = configured(workspace, mode="http")
        with served(agent(), config=config) as running:
            challenge = {"type": "url_verification", "challenge": "3eZbrw1a", "token": "x"}
            answer = post(running, "/slack/events", challenge)
            assert answer.status == 200 and answer.json() == {"challenge": "3eZbrw1a"}
            row = propose(running)
            card = shown(workspace, row)
            payload = press(card, buttons(card)["Approve"])
            old = post(running, "/slack/interactions", payload, at=time.time() - 301)
            assert old.status == 401
            kind = {"Content-Type": "application/json"}
            forged = running.request("POST", "/slack/interactions", json.dumps(payload), kind)
            assert forged.status == 401
            logged = [vars(one) for one in caplog.records if one.name == "sayso.auth"]
            assert [(one["protocol"], one["reason"]) for one in logged] == [
                ("slack", "signature"),
                ("slack", "missing"),
            ]
            for name, value in (("Signature", "v0=\xe9"), ("Request-Timestamp", "soon")):
                odd = {**signed("{}"), f"X-Slack-{name}": value}
                assert running.request("POST", "/slack/events", "{}", odd).status == 401
            assert running.post("/api/chat", {"messages": []}).status == 401
            assert row_of(running, row.id).state == "PENDING"
            assert post(running, "/slack/interactions", payload).status == 200
            until(lambda: row_of(running, row.id).state == "APPROVED")
            for hostile in ("null", '{"type": 5}', "[" * 50_000, '{"type":"block_actions"}'):
                assert post(running, "/slack/interactions", hostile).status in (200, 401)
            assert running.get("/health").status == 200


def test_only_named_fields_are_shown_and_without_all_of_them_nobody_approves_there() -> None:
    with slack() as workspace:
        with served(agent(), config=configured(workspace, "", "http")) as running:
            card = shown(workspace, propose(running, path="payroll"))
            assert [*buttons(card)] == ["Review"]
            assert "payroll" not in json.dumps(workspace.calls)


def test_slack_without_notify_stops_the_start_and_says_what_to_add() -> None:
    with slack() as workspace:
        config = configured(workspace).replace('"notify", ', "").replace("[plugin.notify]", "")
        config = config.replace('page = "https://agent.example.com/console"\n', "")
        with pytest.raises(PluginError, match="needs the plugin 'notify'"):
            with served(agent(), config=config):
                pass


def test_an_app_without_its_tokens_stops_the_start_and_names_them() -> None:
    config = 'plugins = ["v2", "notify", "slack"]\n'
    with pytest.raises(PluginError, match="set bot_token, teams, app_token or signing_secret"):
        with served(agent(), config=config):
            pass
