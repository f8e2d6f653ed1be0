"""The page asks for a token, and forgets it."""

from __future__ import annotations

import pytest
from page_kit import (
    PLUGINS,
    TOKENS,
    Files,
    Opened,
    look_again,
    look_through,
    press,
    rests,
    say,
    sees,
    sent,
    served,
)

from sayso.testing import Served


def test_token_is_asked_for_and_kept_in_this_tab_only(sayso_served: Served, opened: Opened) -> None:
    files = Files("Hello, Ann.", "Hello again.")
    page = opened(served(sayso_served, files.agent, PLUGINS + TOKENS))
    field = page.get_by_label("This service asks for a token")
    field.fill("a-wrong-token")
    page.keyboard.press("Enter")
    page.get_by_text("That token was not accepted.").wait_for()
    say(page, "hello")
    page.get_by_role("alert").wait_for()
    field.fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    sees(page, "Hello, Ann.")
    rests(page)
    assert field.is_hidden()
    page.reload()
    say(page, "hello again")
    sees(page, "Hello again.")
    assert "a-token" not in page.evaluate("JSON.stringify(localStorage)")
    assert page.context.cookies() == []
    press(page, "Sign out")
    field.wait_for()
    assert page.evaluate("sessionStorage.getItem('sayso.token')") is None


@pytest.mark.slow
def test_message_that_was_sent_again_by_hand_is_not_sent_by_signing_in(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files("Hello, Ann.", "Hello once more.")
    page = opened(served(sayso_served, files.agent, PLUGINS + TOKENS))
    bodies = sent(page)
    page.get_by_label("This service asks for a token").wait_for()
    say(page, "hello")
    page.get_by_role("alert").wait_for()
    # The page's own refresh takes time; the person does not wait for it.
    page.route("**/console/approvals", lambda route: route.abort())
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    page.locator("#token-note").get_by_text("The service could not be reached.").wait_for()
    press(page, "Try again")
    sees(page, "Hello, Ann.")
    rests(page)
    page.unroute("**/console/approvals")
    look_again(page)
    page.locator("#sign-in").wait_for(state="hidden")
    look_through(page)
    rests(page)
    assert len(bodies) == 2
    assert len(files.model.asks) == 1
    sees(page, "Hello, Ann.")


@pytest.mark.slow
def test_accepted_token_leads_the_keyboard_on_to_the_message_field(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, Files("Hello, Ann.").agent, PLUGINS + TOKENS))
    field = page.get_by_label("This service asks for a token")
    field.wait_for()
    page.keyboard.type("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
    page.keyboard.type("hello")
    page.keyboard.press("Enter")
    sees(page, "Hello, Ann.")


@pytest.mark.slow
def test_token_that_could_not_be_sent_is_told(sayso_served: Served, opened: Opened) -> None:
    page = opened(served(sayso_served, Files().agent, PLUGINS + TOKENS.replace("-", " ")))
    field = page.get_by_label("This service asks for a token")
    field.fill("a token for ann 0123456789\u200b")
    page.keyboard.press("Enter")
    page.locator("#token-note").get_by_text("holds a character that cannot be sent").wait_for()
    page.route("**/console/approvals", lambda route: route.abort())
    field.fill("a token for ann 0123456789")
    page.keyboard.press("Enter")
    page.locator("#token-note").get_by_text("The service could not be reached.").wait_for()
    page.unroute("**/console/approvals")
    field.fill("a token for ann 0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
