"""CopilotKit's own chat in Chromium: a person approves and rejects, and reloads in between."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from agui_world import Start, deletion

from clients import shown
from npm import bundled

pytestmark = pytest.mark.slow
PACKAGES = (
    *("react@19.3.1", "react-dom@19.3.1"),
    *("@copilotkit/react-core@1.74.0", "@ag-ui/client@0.0.59"),
)


def _page() -> str:
    return bundled(Path(__file__).parent / "copilot.jsx", PACKAGES)


def _say(page: Any, text: str) -> None:
    page.get_by_role("textbox").fill(text)
    page.get_by_role("textbox").press("Enter")


def _decide(page: Any, button: str, text: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()
    page.get_by_text(text).wait_for()


def test_a_person_approves_and_rejects_in_copilotkits_chat(start: Start) -> None:
    world = start(deletion("a"), "It is gone.", deletion("b"), "Then not.", "Welcome.")
    with shown(_page(), world.service.url) as page:
        _say(page, "delete a")
        _decide(page, "Approve", "It is gone.")
        assert world.deleted == ["a"]
        _say(page, "delete b")
        _decide(page, "Reject", "Then not.")
        _say(page, "thanks")
        page.get_by_text("Welcome.").wait_for()
        assert page.get_by_role("button", name="Approve", exact=True).count() == 0
        assert world.deleted == ["a"]


def test_a_person_approves_in_copilotkits_chat_after_a_reload(start: Start) -> None:
    world = start(deletion("a"), "It is gone.", "Welcome.")
    with shown(_page(), world.service.url) as page:
        _say(page, "delete a")
        page.get_by_role("button", name="Approve", exact=True).wait_for()
        page.reload()
        page.get_by_text("delete a", exact=True).wait_for()
        _decide(page, "Approve", "It is gone.")
        assert world.deleted == ["a"]
        page.reload()
        page.get_by_text("It is gone.").wait_for()
        _say(page, "thanks")
        page.get_by_text("Welcome.").wait_for()
        assert page.get_by_role("button", name="Approve", exact=True).count() == 0
        assert world.deleted == ["a"]
