"""No approver believes that a call was sent, approved or run that was not, or the opposite."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest
from page_kit import (
    PEOPLE,
    Files,
    Opened,
    deleting,
    look_again,
    press,
    rests,
    run,
    say,
    sees,
    served,
    waiting,
)

from sayso import Agent, Call, Caller, Principal, Proposal, tool
from sayso.testing import Served, Service, scripted, user
from sayso.testing import served as serving

RULE = """
[[approvals.rules]]
tool = "restart"
approvers = ["ann", "bob"]
quorum = 2
"""
ANN = Principal("ann", kind="person", person="ann")
BOB = Principal("bob", kind="person", person="bob")


class Team:
    """A service with two people, and the calls that are proposed to them."""

    def __init__(self, service: Service, ran: list[str]) -> None:
        self.service = service
        self.ran = ran

    def asks(self, name: str, /, **input: Any) -> Proposal:
        caller = Caller("mcp", principal=BOB)
        row: Proposal = run(self.service.host.calls.propose(name, input, caller))
        return row

    def decides(self, row: Proposal, who: Principal, **decision: Any) -> None:
        caller = Caller("cli", principal=who)
        run(self.service.host.calls.decide(row.id, caller, run=False, **decision))

    def state(self, row: Proposal) -> str:
        found = run(self.service.host.calls.look(row.id, Caller("test", principal=BOB)))
        return str(found.state)


@pytest.fixture
def team() -> Iterator[Team]:
    """The service of an agent that says nothing."""
    ran: list[str] = []

    @tool(requires_approval=True, editable=True)
    def restart(name: str) -> str:
        """Restart a service."""
        ran.append(name)
        return "restarted"

    @tool(requires_approval=True)
    def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "deleted"

    agent = Agent(name="kube", model=scripted(), tools=[restart, delete])
    with ExitStack() as stack:
        yield Team(stack.enter_context(serving(agent, config=PEOPLE + RULE)), ran)


def enter(opened: Opened, team: Team, who: str = "ann") -> Any:
    page = opened(team.service)
    page.get_by_label("This service asks for a token").fill(f"a-token-for-{who}-0123456789")
    page.keyboard.press("Enter")
    page.get_by_label("This service asks for a token").wait_for(state="hidden")
    page.get_by_role("link", name="Inbox").click()
    return page


def select_all(page: Any, count: int) -> None:
    boxes = page.get_by_label("Select")
    boxes.nth(count - 1).wait_for()
    for n in range(count):
        boxes.nth(n).check()


@pytest.mark.slow
def test_selected_calls_that_need_more_approvals_are_not_told_as_approved(
    team: Team, opened: Opened
) -> None:
    for name in ("a", "b"):
        team.asks("restart", name=name)
    page = enter(opened, team)
    select_all(page, 2)
    press(page, "Approve the selected")
    page.get_by_text("You have approved it; 1 of 2 approvals").nth(1).wait_for()
    assert page.locator("#inbox-list").get_by_text("Approved restart").count() == 0


@pytest.mark.slow
def test_selected_calls_whose_answer_was_lost_are_not_told_as_undecided(
    team: Team, opened: Opened
) -> None:
    rows = [team.asks("delete", path=path) for path in ("a", "b")]
    page = enter(opened, team)
    select_all(page, 2)

    def lose(route: Any) -> None:
        route.fetch()
        route.abort()

    page.route("**/approvals/decisions", lose)
    press(page, "Approve the selected")
    problem = page.locator("#several-problem")
    problem.get_by_text("may").wait_for()
    assert "None was approved" not in problem.inner_text()
    assert "PENDING" not in [team.state(row) for row in rows]


@pytest.mark.slow
def test_comment_on_a_call_that_was_edited_meanwhile_approves_no_input_unseen(
    team: Team, opened: Opened
) -> None:
    row = team.asks("restart", name="web")
    page = enter(opened, team)
    card = page.get_by_role("region", name="Proposed tool call: restart")
    card.get_by_role("button", name="Comment…").click()
    page.keyboard.type("looks fine")
    # The list is held up from now on; the comment is not.
    page.route("**/approvals?*", lambda route: None)
    page.route("**/approvals/events", lambda route: None)
    seen = run(team.service.host.calls.look(row.id, Caller("test", principal=BOB))).seen
    team.decides(row, BOB, approved=True, edited={"name": "database"}, seen=seen)
    page.keyboard.press("Enter")
    card.get_by_text("looks fine").wait_for()
    page.get_by_text("What was changed").wait_for()
    card.locator("dl.input").get_by_text("database").wait_for()
    assert team.state(row) == "PENDING"
    card.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("Approved restart").wait_for()


@pytest.mark.slow
def test_call_that_was_edited_says_so_and_keeps_what_was_being_written(
    team: Team, opened: Opened
) -> None:
    row = team.asks("restart", name="web")
    page = enter(opened, team)
    card = page.get_by_role("region", name="Proposed tool call: restart")
    card.get_by_role("button", name="Comment…").click()
    page.keyboard.type("looks fine")
    seen = run(team.service.host.calls.look(row.id, Caller("test", principal=BOB))).seen
    team.decides(row, BOB, approved=True, edited={"name": "database"}, seen=seen)
    page.get_by_text("What was changed").wait_for()
    page.get_by_text("looks fine").wait_for()


@pytest.mark.slow
def test_call_of_a_conversation_that_somebody_edits_is_approved_as_it_is_shown_then(
    sayso_served: Served, opened: Opened
) -> None:
    ran: list[str] = []

    @tool(requires_approval=True, editable=True)
    def restart(name: str) -> str:
        """Restart a service."""
        ran.append(name)
        return "restarted"

    agent = Agent(model=scripted([Call("1", "restart", {"name": "web"})], "Done."), tools=[restart])
    service = served(sayso_served, agent, PEOPLE + RULE)
    page = opened(service)
    field = page.get_by_label("This service asks for a token")
    field.fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
    say(page, "restart it")
    card = page.get_by_role("region", name="Proposed tool call: restart")
    card.wait_for()
    rests(page)
    bob = Caller("cli", principal=BOB)
    (row,) = run(service.host.calls.pending(bob)).calls
    decided = {"approved": True, "edited": {"name": "database"}, "seen": row.seen, "run": False}
    run(service.host.calls.decide(row.id, bob, **decided))
    look_again(page)
    page.get_by_text("What was changed").wait_for()
    card.locator("dl.input").get_by_text("database").wait_for()
    press(page, "Approve")
    sees(page, "Done.")
    assert ran == ["database"]


@pytest.mark.slow
def test_decision_of_one_person_is_not_sent_by_the_sign_in_of_another(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a"), "Done.")
    page = opened(served(sayso_served, files.agent, PEOPLE))
    field = page.get_by_label("This service asks for a token")
    field.fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
    say(page, "delete it")
    card = page.get_by_role("region", name="Proposed tool call: delete")
    card.wait_for()
    rests(page)
    page.evaluate("sessionStorage.setItem('sayso.token', 'one-that-has-expired')")
    press(page, "Approve")
    field.fill("a-token-for-bob-0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
    page.wait_for_timeout(1500)
    assert files.ran == []
    assert page.locator("#conversation").get_by_text("delete it").count() == 0


@pytest.mark.slow
def test_call_that_ran_is_told_as_such_whatever_its_output_begins_with(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a"), "Done.", output="Rejected: nothing was")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete it")
    press(page, "Approve")
    sees(page, "Done.")
    assert files.ran == ["a"]
    assert page.locator("summary", has_text="Ran delete").count() == 1


@pytest.mark.slow
def test_stopped_turn_says_that_an_approved_call_may_have_run(
    sayso_served: Served, opened: Opened
) -> None:
    ends = Event()

    @tool(requires_approval=True)
    def delete(path: str) -> str:
        """Delete a file."""
        ends.wait(60)
        return "deleted"

    model = scripted(deleting("a"), "Done.")
    page = opened(served(sayso_served, Agent(model=model, tools=[delete])))
    say(page, "delete it")
    press(page, "Approve")
    press(page, "Stop")
    for text in ("Stopped.", "may have run"):
        sees(page, text)
    ends.set()
    press(page, "Try again")
    sees(page, "Done.")
    assert page.get_by_text("may have run").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("hours", [-7, 7])
def test_time_left_is_told_by_the_clock_of_the_service(
    team: Team, opened: Opened, hours: int
) -> None:
    team.asks("delete", path="a")
    page = opened(team.service, clock=True)
    page.clock.set_system_time(time.time() + hours * 3600)
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Inbox").click()
    page.get_by_text("24 h left").wait_for()


def test_printed_address_signs_in_also_where_the_page_is_open_already(
    team: Team, opened: Opened
) -> None:
    page = opened(team.service)
    field = page.get_by_label("This service asks for a token")
    field.wait_for()
    page.goto(f"{team.service.url}/console#token=a-token-for-ann-0123456789")
    field.wait_for(state="hidden")
    assert "token" not in page.url


@pytest.mark.slow
def test_own_approval_that_a_stop_holds_up_is_not_told_as_anothers(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a"), "Done.")
    service = served(sayso_served, files.agent, PEOPLE)
    page = opened(service)
    field = page.get_by_label("This service asks for a token")
    field.fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
    say(page, "delete it")
    page.get_by_role("region", name="Proposed tool call: delete").wait_for()
    run(service.host.record.freeze(Caller("cli", principal=ANN), "an incident"))
    press(page, "Approve")
    sees(page, "You have approved it; it has not started")
    run(service.host.record.thaw(Caller("cli", principal=ANN)))
    press(page, "Start it now")
    sees(page, "Done.")
    assert files.ran == ["a"]


@pytest.mark.slow
def test_more_calls_than_can_be_approved_at_once_are_told_before_they_are_sent(
    team: Team, opened: Opened
) -> None:
    page = enter(opened, team)
    page.evaluate("""async () => {
      const { offerChoice } = await import("/console/several.js");
      const { Card } = await import("/console/card.js");
      const cards = [...Array(101).keys()].map((n) => {
        const card = new Card({ id: `${n}`, name: "delete", input: {}, mine: true }, () => {});
        document.getElementById("inbox-list").append(card.element);
        return card;
      });
      offerChoice(cards);
      for (const box of document.querySelectorAll("#inbox-list .select input")) box.click();
    }""")
    page.get_by_text("101 calls of delete selected; 100 at most").wait_for()
    assert page.get_by_role("button", name="Approve the selected").is_disabled()


@pytest.mark.slow
def test_name_that_a_decider_only_claims_is_told_as_claimed(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files(deleting("a"), "Done.").agent)
    page = opened(service)
    say(page, "delete it")
    page.get_by_role("region", name="Proposed tool call: delete").wait_for()
    rests(page)
    (row,) = waiting(service)
    said = {"id": row.id, "name": row.name, "input": row.input, "execute": True}
    boss = {"user": {"name": "the boss", "id": "the boss"}}
    service.post("/api/chat", {"messages": [user("", data={"tool_calls": [said]}, **boss)]})
    look_again(page)
    sees(page, "Already approved by the boss (claimed) over another chat")


@pytest.mark.slow
def test_leaving_a_conversation_asks_also_for_decisions_that_are_not_sent(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, Files(deleting("a", "b"), "Done.").agent))
    say(page, "delete them")
    rests(page)
    press(page, "Approve all")
    press(page, "New conversation")
    page.get_by_role("dialog").get_by_text("2 calls wait in this conversation.").wait_for()


@pytest.mark.slow
def test_page_opens_whatever_stands_in_its_fragment(team: Team, opened: Opened) -> None:
    page = opened(team.service)
    page.goto(f"{team.service.url}/console#%")
    page.reload()
    page.get_by_label("This service asks for a token").wait_for()
