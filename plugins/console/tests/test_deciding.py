"""A person decides what the agent proposes in the conversation of the page."""

from __future__ import annotations

from typing import Any

import pytest
from page_kit import (
    PLUGINS,
    Files,
    Opened,
    Walks,
    as_json,
    decided_elsewhere,
    deleting,
    edits,
    inbox,
    look_again,
    look_through,
    press,
    proposed,
    rests,
    run,
    say,
    sees,
    sent,
    served,
    state,
    waiting,
)

from sayso import (
    Call,
    Caller,
)
from sayso.testing import Served, Service


def booking(*hours: int, pet: str = "Rex") -> list[Call]:
    return [Call(f"call-{n}", "book", {"hours": n, "pet": pet}) for n in hours]


async def decide_last(service: Service, **decision: Any) -> None:
    row = (await service.host.calls.pending(Caller("test"))).calls[0]
    await service.host.calls.decide(row.id, Caller("cli"), run=False, **decision)


def test_approved_call_runs_once_and_shows_its_outcome(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(["I would.", *deleting("a.txt")], "It is gone.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete a.txt")
    card = page.get_by_role("region", name="Proposed tool call")
    card.wait_for()
    assert "Delete a file." in card.inner_text()
    assert card.locator("pre").inner_text() == "a.txt"
    assert page.get_by_role("button", name="Send", exact=True).is_disabled()
    assert files.ran == []
    press(page, "Approve")
    sees(page, "It is gone.")
    rests(page)
    assert files.ran == ["a.txt"]
    page.get_by_text("Ran delete").click()
    sees(page, "deleted a.txt")
    sees(page, "Approved delete")


@pytest.mark.slow
def test_edited_input_is_what_runs(sayso_served: Served, opened: Opened) -> None:
    number = 12345678901234567891
    walks = Walks(booking(number, pet="Rex\u202e"), "Booked.", "Bye.")
    page = opened(served(sayso_served, walks.agent))
    say(page, "a walk for Rex")
    press(page, "Edit…")
    as_json(page)
    field = page.get_by_label("The input that will run, as JSON:")
    shown = field.input_value()
    assert shown == f'{{\n  "hours": {number},\n  "pet": "Rex\\u202e"\n}}'
    field.fill(shown.replace("\\u202e", " and Ben"))
    press(page, "Approve as edited")
    sees(page, "Booked.")
    assert walks.ran == [(number, "Rex and Ben")]
    rests(page)
    page.reload()
    sees(page, "Approved book, edited")
    page.get_by_text("Approved book, edited").click()
    page.locator("details[open] pre").get_by_text("Rex and Ben").wait_for()
    say(page, "thanks")
    sees(page, "Bye.")


@pytest.mark.slow
def test_edit_that_is_refused_says_why_and_can_be_mended(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.", editable=["hours"])
    page = opened(served(sayso_served, walks.agent))
    say(page, "a walk for Rex")
    edits(page, "2 hours")
    field = page.get_by_label("What may change of the input (hours), as JSON:")
    assert field.evaluate("field => field.validationMessage") == "This is no JSON object."
    field.fill('{"hours": "soon"}')
    press(page, "Approve as edited")
    sees(page, "the changed input does not fit the tool: parameter 'hours'")
    assert walks.ran == []
    press(page, "Edit…")
    as_json(page)
    assert field.input_value() == '{"hours": "soon"}'
    page.keyboard.press("Escape")
    edits(page, '{"hours": 2}')
    sees(page, "Booked.")
    assert walks.ran == [(2, "Rex")]


@pytest.mark.slow
def test_edit_beside_other_decisions_is_shown_before_it_is_sent(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1, 2), "Booked.")
    page = opened(served(sayso_served, walks.agent))
    say(page, "two walks for Rex")
    edits(page, '{"hours": 3, "pet": "Ben"}')
    page.locator(".card.approved .input pre").get_by_text("Ben").wait_for()
    press(page, "Approve")
    press(page, "Send decisions")
    sees(page, "Booked.")
    assert sorted(walks.ran) == [(2, "Rex"), (3, "Ben")]


@pytest.mark.slow
def test_input_that_somebody_edits_is_not_approved_with_all_others(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1, 2), "Booked.")
    page = opened(served(sayso_served, walks.agent))
    say(page, "two walks for Rex")
    press(page, "Edit\u2026")
    as_json(page)
    page.locator(".answer textarea").fill('{"hours": 3, "pet": "Ben"}')
    press(page, "Approve all")
    page.get_by_text("1 of 2 decided").wait_for()
    press(page, "Approve as edited")
    press(page, "Send decisions")
    sees(page, "Booked.")
    assert sorted(walks.ran) == [(2, "Rex"), (3, "Ben")]


@pytest.mark.slow
def test_input_is_edited_however_many_other_calls_wait(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)

    async def crowd() -> None:
        for hours in range(100):
            await service.host.calls.propose("book", {"hours": hours, "pet": "Ben"}, Caller("mcp"))

    run(crowd())
    page = opened(service)
    say(page, "a walk for Rex")
    conversation = page.locator("#conversation")
    conversation.get_by_role("button", name="Edit…").click()
    conversation.get_by_role("button", name="Edit as JSON").click()
    conversation.get_by_label(", as JSON:").fill('{"hours": 3, "pet": "Rex"}')
    press(page, "Approve as edited")
    sees(page, "Booked.")
    assert walks.ran == [(3, "Rex")]


@pytest.mark.slow
def test_what_may_not_be_changed_has_no_field_for_it(sayso_served: Served, opened: Opened) -> None:
    page = opened(served(sayso_served, Files(deleting("a.txt")).agent))
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    rests(page)
    with page.expect_response("**/console/approvals") as answer:
        look_again(page)
    assert answer.value.json()["agent"]["editable"] == {}
    assert page.get_by_role("button", name="Edit…").count() == 0


@pytest.mark.slow
def test_rejection_takes_a_reason_to_the_model(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "As you like.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete a.txt")
    press(page, "Reject…")
    page.get_by_label("Why not?").fill("it is still needed")
    page.keyboard.press("Enter")
    sees(page, "As you like.")
    rests(page)
    assert files.ran == []
    assert "it is still needed" in files.results()[0].output
    sees(page, "Rejected delete: it is still needed")


@pytest.mark.slow
def test_several_proposals_are_decided_and_sent_in_one_message(
    sayso_served: Served, opened: Opened
) -> None:
    command = Call("shell", "suggest_commands", {"commands": [{"command": "echo done"}]})
    files = Files([*deleting("a", "b"), command], "All is decided.")
    page = opened(served(sayso_served, files.agent))
    bodies = sent(page)
    say(page, "clean up")
    page.get_by_role("region", name="Proposed command").wait_for()
    press(page, "Approve")
    press(page, "Undo")
    assert page.locator("#decided").inner_text() == "0 of 3 decided"
    press(page, "Approve")
    press(page, "Reject…")
    page.keyboard.type("keep b")
    page.keyboard.press("Enter")
    press(page, "Approve all")
    assert files.ran == []
    press(page, "Send decisions")
    sees(page, "All is decided.")
    rests(page)
    assert files.ran == ["a"]
    assert len(bodies) == 2
    data = bodies[1]["messages"][-1]["data"]
    assert [c["execute"] for c in data["tool_calls"]] == [True, False]
    assert data["tool_calls"][1]["rejection_reason"] == "keep b"
    assert [c["execute"] for c in data["cmds"]] == [True]
    page.get_by_text("Ran echo done").click()
    page.locator("details pre").get_by_text("done", exact=True).wait_for()


@pytest.mark.slow
def test_part_of_the_proposals_can_be_sent(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a", "b"), "Both are done.")
    page = opened(served(sayso_served, files.agent))
    say(page, "clean up")
    press(page, "Approve")
    press(page, "Send decisions")
    sees(page, "Ran delete")
    rests(page)
    assert files.ran == ["a"]
    assert page.get_by_role("region", name="Proposed tool call").count() == 1
    press(page, "Approve")
    sees(page, "Both are done.")
    assert files.ran == ["a", "b"]


@pytest.mark.slow
def test_decision_that_is_refused_leaves_a_way_on(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "Then not.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    decided_elsewhere(service, approved=False, reason="by another")
    press(page, "Approve")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text().split("\n") == ["the call was rejected before", "APPROVAL_CONFLICT"]
    sees(page, "Already rejected over the command line")
    sees(page, "Reason: by another")
    say(page, "what now?")
    sees(page, "Then not.")
    assert files.ran == []


@pytest.mark.slow
def test_call_that_another_approved_can_be_approved_after_all(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a.txt"), "It is gone.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    decided_elsewhere(service, approved=True)
    press(page, "Reject…")
    page.keyboard.press("Enter")
    sees(page, "Already approved over the command line")
    assert files.ran == []
    page.reload()
    sees(page, "Already approved over the command line")
    press(page, "Approve it, too")
    sees(page, "It is gone.")
    assert files.ran == ["a.txt"]


@pytest.mark.slow
def test_rejection_by_another_can_be_passed_on(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "Then not.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    decided_elsewhere(service, approved=False, reason="by another")
    press(page, "Approve")
    press(page, "Reject it, too")
    sees(page, "Then not.")
    assert files.ran == []
    (result,) = files.results()
    assert result.is_error and "by another" in result.output


@pytest.mark.slow
def test_only_the_decision_that_is_refused_is_taken_back(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a.txt", "b.txt"), "One is gone.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete both")
    page.get_by_role("region", name="Proposed tool call").nth(1).wait_for()
    rests(page)
    # The page's own refresh would show it before the decisions are sent.
    page.route("**/console/approvals", lambda route: route.abort())
    decided_elsewhere(service, 1, approved=False, reason="by another")
    press(page, "Approve")
    page.get_by_text("1 of 2 decided").wait_for()
    press(page, "Approve")
    press(page, "Send decisions")
    page.get_by_role("alert").wait_for()
    page.unroute("**/console/approvals")
    look_again(page)
    sees(page, "Already rejected over the command line")
    card = page.get_by_role("region", name="Proposed tool call").filter(has_text="a.txt")
    card.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("1 of 2 decided").wait_for()
    press(page, "Reject it, too")
    press(page, "Send decisions")
    sees(page, "One is gone.")
    assert files.ran == ["a.txt"]


@pytest.mark.slow
def test_call_of_this_conversation_says_when_another_has_decided_it(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)
    ann, bob = opened(service), opened(service)
    say(ann, "a walk for Rex")
    ann.get_by_role("region", name="Proposed tool call").wait_for()
    rests(ann)
    press(ann, "Reject…")
    ann.keyboard.type("it rains")
    look_again(bob)
    inbox(bob)
    edits(bob, '{"hours": 3, "pet": "Ben"}')
    bob.get_by_text("Approved book, edited").wait_for()
    # Ann would approve a call that she does not see.
    look_again(ann)
    card = ann.get_by_role("region", name="Proposed tool call")
    card.get_by_text("Already approved with another input over a console").wait_for()
    assert card.locator(".input pre").all_inner_texts() == ["3", "Ben"]
    assert card.get_by_role("button").all_inner_texts() == ["Approve it, too"]
    ann.locator(".kept").get_by_text("it rains").wait_for()
    assert "Already approved with another input" in ann.locator("#announcer").inner_text()
    press(ann, "Approve it, too")
    sees(ann, "Booked.")
    assert walks.ran == [(3, "Ben")]


@pytest.mark.slow
def test_page_that_shows_the_input_before_an_edit_does_not_start_the_edited_call(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)
    page = opened(service)
    say(page, "a walk for Rex")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    rests(page)
    page.route("**/console/approvals", lambda route: route.abort())
    edited: dict[str, Any] = {"hours": 3, "pet": "Ben"}
    decided_elsewhere(service, approved=True, edited=edited)
    press(page, "Approve")
    sees(page, "the input was changed: revision 2 is what would run")
    assert walks.ran == []


@pytest.mark.slow
def test_page_asks_after_no_call_that_has_not_come_up_in_a_long_list(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1, 2), "Booked.")
    service = served(sayso_served, walks.agent)

    async def crowd() -> None:
        for hours in range(101):
            await service.host.calls.propose("book", {"hours": hours, "pet": "Ben"}, Caller("mcp"))

    run(crowd())
    page = opened(service)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    say(page, "two walks for Rex")
    conversation = page.locator("#conversation")
    conversation.get_by_role("button", name="Edit…").nth(1).wait_for()
    rests(page)
    look_through(page)
    look_through(page)
    # It still asks about calls that another client's calls have pushed off the list.
    ours = [row.id for row in waiting(service) if row.protocol != "mcp"]
    assert len(ours) == 2
    assert [url for url in asked if url.endswith(tuple(ours))] == []
    run(decide_last(service, approved=False, reason="it rains"))
    conversation.get_by_role("button", name="Approve", exact=True).nth(1).click()
    press(page, "Send decisions")
    sees(page, "Reason: it rains")


@pytest.mark.slow
def test_edit_that_comes_after_another_edit_is_told_of_it(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)
    page = opened(service)
    say(page, "a walk for Rex")
    press(page, "Edit\u2026")
    as_json(page)
    page.get_by_label(", as JSON:").fill('{"hours": 2, "pet": "Rex"}')
    decided_elsewhere(service, approved=True, edited={"hours": 3, "pet": "Ben"})
    press(page, "Approve as edited")
    sees(page, "Already approved with another input")
    page.locator(".kept").get_by_text('"hours": 2').wait_for()
    press(page, "Approve it, too")
    sees(page, "Booked.")
    assert walks.ran == [(3, "Ben")]


@pytest.mark.slow
@pytest.mark.parametrize("approved", [True, False])
def test_same_decision_of_another_says_what_stands(
    sayso_served: Served, opened: Opened, approved: bool
) -> None:
    service = served(sayso_served, Walks().agent)
    run(service.host.calls.propose("book", {"hours": 1, "pet": "Rex"}, Caller("mcp")))
    page = opened(service)
    panel = inbox(page)
    if approved:
        panel.get_by_role("button", name="Approve", exact=True).click(trial=True)
        decided_elsewhere(service, approved=True, edited={"hours": 3, "pet": "Ben"})
        panel.get_by_role("button", name="Approve", exact=True).click()
        panel.get_by_text("Already approved with another input").click()
        panel.get_by_text("Ben").wait_for()
    else:
        panel.get_by_role("button", name="Reject…").click()
        page.keyboard.type("it rains")
        decided_elsewhere(service, approved=False, reason="Rex is ill")
        page.keyboard.press("Enter")
        panel.get_by_text("Reason: Rex is ill").wait_for()
        panel.locator(".kept").get_by_text("it rains").wait_for()


@pytest.mark.slow
def test_call_of_this_conversation_that_expires_blocks_no_message(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a.txt"), "Hello.")
    config = PLUGINS + 'ttl = "1s"\n'
    page = opened(served(sayso_served, files.agent, config))
    say(page, "delete a.txt")
    sees(page, "No longer waits: delete. It has expired.")
    say(page, "hello")
    sees(page, "Hello.")


@pytest.mark.slow
def test_decision_whose_answer_was_lost_is_not_told_as_anothers(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    (row,) = proposed(service, "a")
    page = opened(service)

    def lose(route: Any) -> None:
        if route.request.method != "POST":
            return route.continue_()
        route.fetch()
        return route.abort()

    page.route("**/console/approvals/*", lose)
    panel = inbox(page)
    panel.get_by_role("button", name="Approve", exact=True).click()
    panel.get_by_text("Already approved over a console").wait_for()
    assert state(service, row) == "APPROVED"


@pytest.mark.slow
def test_text_in_a_call_stays_while_others_of_its_turn_are_sent(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a", "b"), "One is gone.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete both")
    press(page, "Approve")
    press(page, "Reject…")
    page.keyboard.type("b is needed")
    press(page, "Send decisions")
    sees(page, "Ran delete")
    rests(page)
    assert page.get_by_label("Why not?").input_value() == "b is needed"
    page.get_by_label("Why not?").press("Enter")
    sees(page, "One is gone.")
    assert files.ran == ["a"]


@pytest.mark.slow
def test_end_of_a_long_input_is_not_out_of_sight_unsaid(
    sayso_served: Served, opened: Opened
) -> None:
    command = "ls" + "\n" * 60 + "rm -rf /"
    call = Call("shell", "suggest_commands", {"commands": [{"command": command}]})
    page = opened(served(sayso_served, Files([call]).agent))
    say(page, "look")
    card = page.get_by_role("region", name="Proposed command")
    card.get_by_text("In all: 61 lines, 70 characters").wait_for()
