"""The page keeps its things in the browser, each service its own, and works where it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from page_kit import PEOPLE, Files, Opened, deleting, press, rests, say, sees, served

from sayso.testing import Served

FORBIDDEN = """
for (const kind of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, kind, { get() { throw new DOMException("no", "SecurityError"); } });
"""
FULL = """
Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [FORBIDDEN, FULL])
def test_page_works_where_the_browser_keeps_nothing(
    sayso_served: Served, opened: Opened, script: str
) -> None:
    files = Files(deleting("a"), "Done.")
    page = opened(served(sayso_served, files.agent, PEOPLE))
    page.add_init_script(script)
    page.reload()
    field = page.get_by_label("This service asks for a token")
    field.fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
    say(page, "delete it")
    press(page, "Approve")
    sees(page, "Done.")
    assert files.ran == ["a"]
    page.get_by_text("does not keep all of this conversation").wait_for()
    press(page, "New conversation")
    page.locator("#conversation").get_by_text("Done.").wait_for(state="detached")


def passing(here: str, there: str) -> Any:
    """Handle requests as a proxy does that serves `there` below the path of `here`."""

    def handle(route: Any) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace(here, there)))

    return handle


@pytest.mark.slow
def test_several_services_on_one_origin_keep_their_things_apart(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files("Hello, Ann.")
    service = served(sayso_served, files.agent, PEOPLE)
    page = opened(service)
    for place in ("one", "two"):
        below = f"{service.url}/{place}"

        page.route(f"{below}/**", passing(below, service.url))
    field = page.get_by_label("This service asks for a token")
    page.goto(f"{service.url}/one/console#token=a-token-for-ann-0123456789")
    say(page, "hello")
    sees(page, "Hello, Ann.")
    rests(page)
    page.goto(f"{service.url}/two/console")
    field.wait_for()
    assert page.locator("#conversation").inner_text() == ""
    page.goto(f"{service.url}/one/console")
    sees(page, "Hello, Ann.")
    field.wait_for(state="hidden")
