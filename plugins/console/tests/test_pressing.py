"""A press on the page counts only for what the person had before them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from page_kit import (
    Files,
    Opened,
    decided_elsewhere,
    deleting,
    inbox,
    look_again,
    look_through,
    proposed,
    say,
    sees,
    sent,
    served,
    state,
)

from sayso.testing import Served


def spot(locator: Any) -> tuple[float, float]:
    """The middle of a button, for a pointer that does not look again before it presses."""
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def stop_clock(page: Any) -> None:
    """Stop the clock: from here on a press comes as soon after a change as possible."""
    from playwright.sync_api import Error

    for ahead in (0.1, 1.0, 10.0):
        try:
            page.clock.pause_at(page.evaluate("Date.now()") / 1000 + ahead)
        except Error:
            # The machine is busy, and that moment has passed.
            continue
        return


ABOVE = """() => {
  const above = document.createElement("p");
  above.style.height = "150px";
  document.querySelector("main").prepend(above);
}"""


def test_press_for_a_call_that_has_just_gone_does_not_decide_the_next_one(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    first, second = proposed(service, "a", "b")
    page = opened(service, clock=True)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.nth(1).click(trial=True)
    here, below = spot(approve.first), spot(approve.nth(1))
    page.mouse.move(*here)
    decided_elsewhere(service, approved=False, reason="by another")
    look_through(page)
    page.mouse.click(*here)
    look_through(page)
    assert state(service, second) == "PENDING"
    page.get_by_text("Already rejected over the command line").wait_for()
    # However long the pointer rests there, nothing moves up under it.
    page.clock.fast_forward(60_000)
    look_through(page)
    page.mouse.click(*here)
    look_through(page)
    assert spot(approve.first) == below
    assert state(service, second) == "PENDING"
    page.mouse.move(1, 1)
    look_through(page)
    page.get_by_text("Already rejected over the command line").wait_for(state="detached")
    approve.click()
    page.locator("#inbox").get_by_text("Approved delete").wait_for()
    assert (state(service, first), state(service, second)) == ("REJECTED", "APPROVED")


@pytest.mark.slow
def test_what_a_flood_pushes_off_the_first_page_is_found_on_further_ones(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    [early] = proposed(service, "early")
    page = opened(service)
    panel = inbox(page)
    cards = panel.get_by_role("region", name="Proposed tool call")
    cards.first.wait_for()
    proposed(service, *map(str, range(105)))
    look_through(page)
    look_through(page)
    # It is still pending, and its card says so.
    assert cards.count() == 101
    cards.filter(has_text="early").get_by_role("button", name="Approve", exact=True).wait_for()
    assert panel.get_by_text("No longer waits").count() == 0
    page.reload()
    cards.nth(99).wait_for()
    assert cards.filter(has_text="early").count() == 0
    panel.get_by_role("button", name="Show more").click()
    cards.nth(105).wait_for()
    panel.get_by_role("button", name="Show more").wait_for(state="hidden")
    cards.filter(has_text="early").get_by_role("button", name="Approve", exact=True).click()
    panel.get_by_text("Approved delete").wait_for()
    assert state(service, early) == "APPROVED"


@pytest.mark.slow
def test_call_that_was_decided_here_keeps_its_place_under_the_pointer(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    first, second = proposed(service, "a", "b")
    page = opened(service)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.nth(1).click(trial=True)
    here, below = spot(approve.first), spot(approve.nth(1))
    page.mouse.click(*here)
    page.locator("#inbox").get_by_text("Approved delete").wait_for()
    page.mouse.click(*here)
    assert spot(approve) == below
    # Another decision needs no wait.
    page.mouse.click(*below)
    page.locator("#inbox").get_by_text("Approved delete").nth(1).wait_for()
    assert (state(service, first), state(service, second)) == ("APPROVED", "APPROVED")


@pytest.mark.slow
def test_button_that_has_just_moved_takes_no_press(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("own"), "It is gone.")
    service = served(sayso_served, files.agent)
    page = opened(service, height=1200, clock=True)
    bodies = sent(page)
    say(page, "delete own")
    approve = page.locator("#conversation").get_by_role("button", name="Approve", exact=True)
    approve.click(trial=True)
    before = spot(approve)
    stop_clock(page)
    page.evaluate(ABOVE)
    after = spot(approve)
    assert after != before
    page.mouse.click(*before)
    page.mouse.click(*after)
    # A press that began too early and ended late does not count either.
    page.mouse.move(*after)
    page.mouse.down()
    page.clock.run_for(1000)
    page.mouse.up()
    look_through(page)
    assert (len(bodies), files.ran) == (1, [])
    page.clock.resume()
    page.mouse.click(*after)
    sees(page, "It is gone.")
    assert files.ran == ["own"]


@pytest.mark.slow
def test_answer_that_comes_after_a_newer_one_takes_no_call_away(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    proposed(service, "a")
    page = opened(service)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.wait_for()
    late: list[Any] = []

    def answer(route: Any) -> None:
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    page.route("**/console/approvals", answer)
    with page.expect_request("**/console/approvals"):
        look_again(page)
    while not late:
        page.wait_for_timeout(20)
    route, before = late[0]
    proposed(service, "b")
    look_through(page)
    approve.nth(1).wait_for()
    with page.expect_event("requestfinished"):
        route.fulfill(response=before)
    look_through(page)
    assert approve.count() == 2
    assert page.get_by_text(re.compile("No longer waits|Already")).count() == 0


@pytest.mark.slow
def test_press_that_begins_on_one_call_does_not_end_on_another(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    _, second = proposed(service, "a", "b")
    page = opened(service)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.nth(1).click(trial=True)
    page.mouse.move(*spot(approve.first))
    page.mouse.down()
    decided_elsewhere(service, approved=True)
    look_through(page)
    page.mouse.up()
    look_through(page)
    assert state(service, second) == "PENDING"


@pytest.mark.slow
def test_key_that_is_held_or_pressed_twice_decides_and_sends_no_more_than_it_was_meant_to(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a", "b"), "Both are gone.")
    page = opened(served(sayso_served, files.agent), clock=True)
    bodies = sent(page)
    say(page, "delete both")
    approve = page.get_by_role("button", name="Approve", exact=True)
    approve.first.click()
    approve.click(trial=True)
    stop_clock(page)
    approve.focus()
    for _ in range(4):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    page.keyboard.press("Enter")
    page.get_by_text("2 of 2 decided").wait_for()
    assert (len(bodies), files.ran) == (1, [])
    page.clock.resume()
    page.get_by_role("button", name="Send decisions").click(trial=True)
    page.keyboard.press("Enter")
    sees(page, "Both are gone.")
