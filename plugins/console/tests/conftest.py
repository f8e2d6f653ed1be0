"""A real Chromium that drives the page; without it the tests of the page are skipped, except in
continuous integration."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The helpers beside the tests.
sys.path.insert(0, str(Path(__file__).parent))

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PATIENCE = 60_000.0
"""Milliseconds that the browser waits for an element."""

Opened = Callable[..., Any]


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}; the tests of the page must run here")
    pytest.skip(f"{what}; the tests of the page are skipped")


# Its driver runs an event loop in this thread, so it ends before the next module begins.
@pytest.fixture(scope="module")
def profile() -> Iterator[Any]:
    """One browser profile for a module; each test has a tab of its own, with the tab's storage."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed; try: pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        _missing("there is no chromium on the path; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=FLAGS, timeout=2 * PATIENCE
        )
        yield _profile_of(browser)
        browser.close()


def _profile_of(browser: Any) -> Any:
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    return context


@pytest.fixture
def opened(profile: Any) -> Iterator[Opened]:
    """Open the console of a service; `width` and `height` are in pixels.

    With `clock` the page has a profile of its own, and a clock that the test may stop. Errors that
    the page reports fail the test: exceptions, refused scripts, blocked content.
    """
    pages: list[Any] = []
    wrong: list[str] = []

    def note(message: Any) -> None:
        # The page itself shows this status.
        if message.type == "error" and "Failed to load resource" not in message.text:
            wrong.append(message.text)

    def open_page(service: Any, *, width: int = 900, height: int = 800, clock: bool = False) -> Any:
        page = (_profile_of(profile.browser) if clock else profile).new_page()
        pages.append(page)
        if clock:
            page.clock.install()
        page.set_viewport_size({"width": width, "height": height})
        page.on("console", note)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        fragment = "" if service.host.guarded else f"#token={service.host.start_token}"
        page.goto(f"{service.url}/console{fragment}")
        return page

    yield open_page
    for page in pages:
        page.close() if page.context is profile else page.context.close()
    assert wrong == []
