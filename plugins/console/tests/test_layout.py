"""The page by keyboard, on narrow screens, and between directions of writing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from page_kit import (
    PLUGINS,
    TOKENS,
    Files,
    Opened,
    deleting,
    inbox,
    press,
    rests,
    run,
    say,
    sees,
    served,
)

from sayso import (
    Agent,
    Call,
    Caller,
    ModelError,
    tool,
)
from sayso.testing import Served, scripted

PLACES = """(pre) => {
  const found = {};
  const walk = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data;
    for (const char of "3>9") {
      const at = text.indexOf(char);
      if (at < 0) continue;
      const range = document.createRange();
      range.setStart(walk.currentNode, at);
      range.setEnd(walk.currentNode, at + 1);
      found[char] = range.getBoundingClientRect().left;
    }
  }
  return [found["3"], found[">"], found["9"]];
}"""


@pytest.mark.slow
def test_focus_goes_to_the_message_field_where_the_pressed_button_goes_away(
    sayso_served: Served, opened: Opened
) -> None:
    more = threading.Event()
    at_field = "e => e === document.activeElement"

    def agent(messages: Any, context: Any) -> Iterator[str]:
        yield "half a reply"
        more.wait(60)

    files = Files(deleting("a.txt", "b.txt"), ModelError("bad_request", "no"), "Both are gone.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete both")
    press(page, "Approve")
    press(page, "Approve")
    for button in ("Send decisions", "Try again"):
        pressed = page.get_by_role("button", name=button, exact=True)
        pressed.click(trial=True)
        pressed.press("Enter")
        assert page.locator("#text").evaluate(at_field), button
    sees(page, "Both are gone.")
    page = opened(served(sayso_served, agent))
    say(page, "begin")
    sees(page, "half a reply")
    pressed = page.get_by_role("button", name="Stop", exact=True)
    pressed.click(trial=True)
    pressed.press("Enter")
    rests(page)
    assert page.locator("#text").evaluate(at_field)
    more.set()


@pytest.mark.slow
def test_page_works_by_keyboard_alone(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "It is gone.")
    from playwright.sync_api import expect

    page = opened(served(sayso_served, files.agent))
    page.keyboard.type("delete")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("a.txt")
    page.keyboard.press("Enter")
    approve = page.get_by_role("button", name="Approve", exact=True)
    approve.wait_for()
    expect(approve).to_be_enabled(timeout=60_000)
    # The focus stays in the message field: a key meant for it decides nothing.
    page.keyboard.press("Enter")
    assert files.ran == []
    assert page.locator("#text").evaluate("e => e === document.activeElement")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert approve.evaluate("e => e === document.activeElement")
    page.keyboard.press("Enter")
    sees(page, "It is gone.")
    assert files.ran == ["a.txt"]


@pytest.mark.slow
def test_narrow_page_has_room_for_the_name_and_says_why_nothing_can_be_sent(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a"))
    files.agent.name = "help-desk"
    page = opened(served(sayso_served, files.agent, PLUGINS + TOKENS), width=360, height=640)
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    name = page.get_by_role("heading", name="help-desk")
    name.wait_for()
    page.get_by_role("button", name="Sign out").wait_for()
    assert name.bounding_box()["height"] < 30  # one line
    say(page, "delete a")
    page.get_by_text("Decide the calls above first.").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 375])
def test_narrow_page_has_its_buttons_side_by_side_below_the_name_and_what_waits(
    sayso_served: Served, opened: Opened, width: int
) -> None:
    files = Files()
    files.agent.name = "help-desk"
    service = served(sayso_served, files.agent, PLUGINS + TOKENS)
    run(service.host.calls.propose("delete", {"path": "a"}, Caller("mcp", principal="ann")))
    page = opened(service, width=width, height=640)
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Inbox 1 waiting").wait_for()
    name = page.get_by_role("heading", name="help-desk").bounding_box()
    waiting = page.get_by_role("link", name="Inbox 1 waiting").bounding_box()
    talks = page.get_by_text("Conversations", exact=True).bounding_box()
    new = page.get_by_role("button", name="New conversation").bounding_box()
    assert abs(talks["y"] - new["y"]) < 4
    assert name["y"] + name["height"] < new["y"] < waiting["y"]
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.slow
def test_narrow_page_does_not_scroll_sideways(sayso_served: Served, opened: Opened) -> None:
    long = "x" * 400
    files = Files(long, deleting(long, "b"), long, output=long)
    service = served(sayso_served, files.agent)
    run(service.host.calls.propose("delete", {"path": long}, Caller("mcp")))
    page = opened(service, width=360, height=640)
    inbox(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.get_by_role("link", name="Chat").click()
    say(page, long)
    sees(page, long)
    say(page, "go on")
    page.locator("#decisions").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.locator("#conversation").get_by_role("button", name="Reject…").first.click()
    page.keyboard.type(long)
    page.keyboard.press("Enter")
    press(page, "Approve all")
    press(page, "Send decisions")
    page.get_by_text("Ran delete").wait_for()
    rests(page)
    page.get_by_text("Ran delete").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.slow
def test_text_between_right_to_left_letters_keeps_its_order_in_a_card(
    sayso_served: Served, opened: Opened
) -> None:
    @tool(requires_approval=True)
    def alert(rule: str) -> str:
        """Set an alert."""
        return "set"

    rule = "\u05d0 3 > 9 \u05d1"
    agent = Agent(model=scripted([Call("1", "alert", {"rule": rule})], "set"), tools=[alert])
    page = opened(served(sayso_served, agent))
    say(page, "alert me")
    value = page.locator(".card pre").first
    value.wait_for()
    places = value.evaluate(PLACES)
    assert places == sorted(places)
    assert value.inner_text() == rule
