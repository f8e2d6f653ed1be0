"""Pages of the clients' makers in a real Chromium, at the address of a service."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

HTML = '<!doctype html><meta charset="utf-8"><div id="root"></div><script>{script}</script>'
PATIENCE = 60_000.0
"""Milliseconds that the browser waits for an element."""


@contextmanager
def shown(script: str, url: str) -> Iterator[Any]:
    """A tab with a page that is this script, at the path `/page` of the service at `url`.

    Exceptions of the page fail the test.
    """
    wrong: list[str] = []
    # A script inside HTML ends at the first closing tag, also in a string.
    html = HTML.replace("{script}", re.sub(r"</(?=script)", r"<\\/", script))
    with _browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.route(f"{url}/page", lambda route: route.fulfill(body=html, content_type="text/html"))
        page.goto(f"{url}/page")
        yield page
    assert wrong == []


def say(page: Any, text: str) -> None:
    """Write a message as a person does, and send it."""
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


@contextmanager
def _browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed; try: pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        _missing("there is no chromium on the path; on Debian: apt-get install chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags, timeout=120_000)
        yield browser
        browser.close()


def _missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{what}; the tests of the clients must run here")
    pytest.skip(what)
