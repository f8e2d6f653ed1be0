"""Pages of useChat and assistant-ui in Chromium: a person approves and rejects, and reloads in
between."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from ui_world import Start, World, deletion

from clients import say, shown
from npm import bundled

FOLDER = Path(__file__).parent
REACT = ("react@19.3.1", "react-dom@19.3.1", "ai@7.0.173", "@ai-sdk/react@4.0.177")
ASSISTANT = (*REACT, "@assistant-ui/react@0.15.22", "@assistant-ui/react-ai-sdk@1.4.12")


def _use_chat() -> str:
    return bundled(FOLDER / "use_chat.jsx", REACT)


def _assistant_ui() -> str:
    return bundled(FOLDER / "assistant_ui.jsx", ASSISTANT)


def _decide(page: Any, button: str, text: str) -> None:
    page.get_by_role("button", name=button).last.click()
    page.get_by_text(text, exact=True).wait_for()


def _approves_and_rejects(page: Any, world: World) -> None:
    say(page, "delete a")
    _decide(page, "Approve", "It is gone.")
    assert world.deleted == ["a"]
    say(page, "delete b")
    _decide(page, "Reject", "Then not.")
    assert world.deleted == ["a"]
    assert page.get_by_role("button").count() == 0
    assert page.get_by_label("assistant").count() == 2


def test_a_person_approves_on_a_page_of_use_chat_after_a_reload(start: Start) -> None:
    world = start(deletion("a"), "It is gone.", deletion("b"), "Then not.", "Welcome.")
    with shown(_use_chat(), world.service.url) as page:
        say(page, "delete a")
        page.get_by_text("approval-requested").wait_for()
        page.reload()
        assert page.get_by_label("assistant").count() == 1
        _decide(page, "Approve", "It is gone.")
        page.get_by_text("output-available").wait_for()
        assert world.deleted == ["a"]
        say(page, "delete b")
        _decide(page, "Reject", "Then not.")
        page.get_by_text("output-denied").wait_for()
        page.reload()
        say(page, "thanks")
        page.get_by_text("Welcome.").wait_for()
        assert page.get_by_role("button").count() == 0
        assert world.deleted == ["a"]


@pytest.mark.slow
def test_a_text_meanwhile_asks_again_on_a_page_of_use_chat(start: Start) -> None:
    world = start(deletion("a"), "It is gone.")
    with shown(_use_chat(), world.service.url) as page:
        say(page, "delete a")
        page.get_by_role("button", name="Approve").wait_for()
        say(page, "yes, approve")
        page.get_by_label("assistant").nth(1).get_by_role("button", name="Approve").wait_for()
        assert world.deleted == []
        _decide(page, "Approve", "It is gone.")
        assert world.deleted == ["a"]


@pytest.mark.slow
def test_what_was_decided_elsewhere_goes_on_with_the_click_on_a_page(start: Start) -> None:
    world = start(deletion("a"), "It is gone.")
    with shown(_use_chat(), world.service.url) as page:
        say(page, "delete a")
        page.get_by_role("button", name="Approve").wait_for()
        (id_,) = [
            part["toolCallId"]
            for message in page.evaluate("JSON.parse(localStorage.messages)")
            for part in message["parts"]
            if part["type"] == "dynamic-tool"
        ]
        # Playwright runs an event loop in this thread.
        with ThreadPoolExecutor() as pool:
            pool.submit(world.decide, id_, approve=True).result()
        _decide(page, "Approve", "It is gone.")
        assert world.deleted == ["a"]


@pytest.mark.slow
def test_a_person_approves_and_rejects_on_a_page_of_assistant_ui(start: Start) -> None:
    world = start(deletion("a"), "It is gone.", deletion("b"), "Then not.")
    with shown(_assistant_ui(), world.service.url) as page:
        _approves_and_rejects(page, world)


@pytest.mark.slow
def test_a_person_approves_on_a_page_of_assistant_ui_after_a_reload(start: Start) -> None:
    world = start(deletion("a"), "It is gone.", "Welcome.")
    with shown(_assistant_ui(), world.service.url) as page:
        say(page, "delete a")
        page.get_by_role("button", name="Approve").wait_for()
        page.reload()
        assert page.get_by_label("assistant").count() == 1
        _decide(page, "Approve", "It is gone.")
        assert world.deleted == ["a"]
        page.reload()
        say(page, "thanks")
        page.get_by_text("Welcome.").wait_for()
        assert page.get_by_role("button").count() == 0
        assert world.deleted == ["a"]


@pytest.mark.slow
def test_a_text_meanwhile_asks_again_on_a_page_of_assistant_ui(start: Start) -> None:
    world = start(deletion("a"), "It is gone.")
    with shown(_assistant_ui(), world.service.url) as page:
        say(page, "delete a")
        page.get_by_role("button", name="Approve").wait_for()
        say(page, "yes, approve")
        page.get_by_label("assistant").nth(1).get_by_role("button", name="Approve").wait_for()
        _decide(page, "Approve", "It is gone.")
        assert world.deleted == ["a"]
