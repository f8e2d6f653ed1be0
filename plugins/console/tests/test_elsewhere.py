"""Calls of other clients on the page of a service without the plugin `approvals`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from page_kit import (
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
    run,
    say,
    sees,
    served,
)

from sayso import (
    Caller,
)
from sayso.testing import Served, Service


def with_a_reason(service: Service, opened: Opened) -> tuple[Any, Any]:
    """The page, and its list with one call whose rejection has a reason and is not sent yet."""
    proposed(service, "a")
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    page.keyboard.type("not before noon")
    return page, panel


def answering(answer: dict[str, Any]) -> Callable[[Any], None]:
    return lambda route: route.fulfill(**answer)


@pytest.mark.slow
def test_call_of_another_protocol_is_approved_on_the_page(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files("Hello.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "hello")
    sees(page, "Hello.")
    caller = Caller("mcp", client="an editor")
    row = run(service.host.calls.propose("delete", {"path": "x"}, caller, intent="tidy up"))
    look_again(page)
    panel = inbox(page)
    panel.wait_for()
    assert "From: MCP · an editor" in panel.inner_text()
    assert "tidy up" in panel.inner_text()
    page.get_by_role("link", name="Inbox 1 waiting").wait_for()
    panel.get_by_role("region", name="Proposed tool call: delete").wait_for()
    panel.get_by_role("button", name="Approve").click()
    panel.get_by_text("Approved delete").wait_for()
    found = run(service.host.calls.look(row.id, caller))
    assert found is not None
    assert (found.state, files.ran) == ("APPROVED", [])
    assert found.decision is not None
    assert found.decision.protocol == "console"
    done = run(service.host.calls.decide(row.id, caller, approved=True))
    assert (done.state, files.ran) == ("DONE", ["x"])


@pytest.mark.slow
def test_input_of_a_call_of_another_protocol_is_edited_on_the_page(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(editable=["hours"])
    service = served(sayso_served, walks.agent)
    caller, more = Caller("mcp"), 12345678901234567891
    row = run(service.host.calls.propose("book", {"hours": 1, "pet": "Rex"}, caller))
    page = opened(service)
    panel = inbox(page)
    panel.wait_for()
    edits(page, '{"hours": "soon"}')
    panel.get_by_text("the changed input does not fit the tool: parameter 'hours'").wait_for()
    edits(page, f'{{"hours": {more}}}')
    panel.get_by_text("Approved book, edited").wait_for()
    found = run(service.host.calls.look(row.id, caller))
    assert (found.state, found.edited) == ("APPROVED", {"hours": more, "pet": "Rex"})
    done = run(service.host.calls.decide(row.id, caller, approved=True, input=found.runs))
    assert (done.state, walks.ran) == ("DONE", [(more, "Rex")])


@pytest.mark.slow
def test_call_of_another_protocol_is_rejected_with_a_reason(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files()
    service = served(sayso_served, files.agent)
    caller = Caller("a2a")
    row = run(service.host.calls.propose("delete", {"path": "x"}, caller))
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    panel.get_by_text("Rejected delete: not today").wait_for()
    found = run(service.host.calls.look(row.id, caller))
    assert found is not None
    assert (found.state, found.output) == ("REJECTED", "Rejected: not today")


@pytest.mark.slow
def test_decision_that_comes_too_late_says_how_another_decided(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files()
    service = served(sayso_served, files.agent)
    run(service.host.calls.propose("delete", {"path": "x"}, Caller("a2a")))
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    decided_elsewhere(service, approved=True)
    page.keyboard.press("Enter")
    panel.get_by_text("Already approved over the command line").wait_for()
    assert "Already approved over the command line" in page.locator("#announcer").inner_text()


@pytest.mark.slow
def test_call_that_is_gone_while_somebody_works_on_it_says_so(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files()
    service = served(sayso_served, files.agent)
    run(service.host.calls.propose("delete", {"path": "x"}, Caller("a2a")))
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    page.keyboard.type("because")
    decided_elsewhere(service, approved=True)
    look_again(page)
    panel.get_by_text("Already approved over the command line").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("opens", ["Edit…", "Reject…"])
def test_what_somebody_writes_into_a_call_that_goes_stays_until_it_is_dismissed(
    sayso_served: Served, opened: Opened, opens: str
) -> None:
    service = served(sayso_served, Walks([], "Bye.").agent)
    run(service.host.calls.propose("book", {"hours": 1, "pet": "Rex"}, Caller("a2a")))
    page = opened(service, clock=True)
    panel = inbox(page)
    panel.get_by_role("button", name=opens).click()
    if opens == "Edit…":
        as_json(page)
    panel.locator(".answer input, .answer textarea").fill('{"pet": "Rex and Ben"}')
    decided_elsewhere(service, approved=False)
    look_through(page)
    panel.get_by_text("Already rejected over the command line").wait_for()
    page.mouse.move(1, 1)
    page.clock.fast_forward(60_000)
    look_through(page)
    assert panel.locator(".kept pre").inner_text() == '{"pet": "Rex and Ben"}'
    panel.get_by_role("button", name="Dismiss").click()
    assert panel.get_by_text("Rex and Ben").count() == 0
    page.mouse.move(1, 1)
    look_through(page)
    panel.get_by_text("Nothing waits.").wait_for()


@pytest.mark.slow
def test_decision_with_a_text_that_comes_too_late_keeps_the_text(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    page, panel = with_a_reason(service, opened)
    decided_elsewhere(service, approved=True)
    page.keyboard.press("Enter")
    panel.get_by_text("Already approved over the command line").wait_for()
    panel.locator(".kept").get_by_text("not before noon").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "reported"),
    [(None, "this may have been recorded, or not"), (404, "The service refused the request.")],
)
def test_reason_outlives_a_decision_that_could_not_be_sent(
    sayso_served: Served, opened: Opened, status: int | None, reported: str
) -> None:
    def lost(route: Any) -> None:
        # A gateway's answer if no service is behind it.
        route.fulfill(status=status, body="no backend") if status else route.abort()

    service = served(sayso_served, Files().agent)
    page, panel = with_a_reason(service, opened)
    page.route("**/console/approvals/*", lost)
    page.keyboard.press("Enter")
    panel.get_by_text(reported).wait_for()
    page.unroute("**/console/approvals/*")
    panel.get_by_role("button", name="Reject…").click()
    assert panel.get_by_role("textbox").input_value() == "not before noon"
    page.keyboard.press("Enter")
    panel.get_by_text("Rejected delete: not before noon").wait_for()


@pytest.mark.slow
def test_page_says_that_the_service_is_out_of_reach_and_goes_on_by_itself(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    page = opened(service, clock=True)
    proposed(service, "a")
    look_through(page)
    note = page.get_by_role("status").get_by_text("out of reach")
    inbox(page)
    assert note.count() == 0
    for answer in ({"status": 502, "body": "a gateway's page"}, None):
        done = (lambda route: route.abort()) if answer is None else answering(answer)
        page.route("**/console/approvals", done)
        look_again(page)
        note.wait_for()
        page.unroute("**/console/approvals")
        page.clock.fast_forward(10_000)
        note.wait_for(state="detached")


@pytest.mark.slow
def test_own_proposals_do_not_wait_elsewhere(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"))
    page = opened(served(sayso_served, files.agent))
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    with page.expect_response("**/console/approvals") as answer:
        look_again(page)
    assert len(answer.value.json()["approvals"]) == 1
    assert inbox(page).locator(".card").count() == 0
    page.get_by_text("1 call of this conversation waits in the chat.").click()
    press(page, "New conversation")
    press(page, "Stay here")
    sees(page, "delete a.txt")
    press(page, "New conversation")
    press(page, "Begin a new conversation")
    inbox(page).get_by_role("region", name="Proposed tool call").wait_for()
    assert page.locator("#conversation").inner_text() == ""
