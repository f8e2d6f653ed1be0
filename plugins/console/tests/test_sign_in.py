"""A person signs in to the page at an identity provider, in a real browser."""

from __future__ import annotations

import sys
from pathlib import Path

from sayso import Agent
from sayso.testing import Served, scripted

sys.path.insert(0, str(Path(__file__).parents[2] / "oidc" / "tests"))

from fake_provider import CLIENT, SECRET, running
from page_kit import Opened


def test_person_signs_in_at_the_provider_works_and_signs_out(
    sayso_served: Served, opened: Opened
) -> None:
    with running() as provider:
        config = (
            'plugins = ["v2", "console", "approvals", "oidc"]\n'
            f'[auth.jwt]\nissuer = "{provider.url}"\nname_claim = "email"\n'
            f"[plugin.oidc]\nclient_id = '{CLIENT}'\nclient_secret = '{SECRET}'\nname = 'Acme'\n"
        )
        service = sayso_served(Agent(model=scripted("Hello, ann.")), config=config)
        provider.redirect_uris.add(f"{service.url}/login/callback")
        provider.signed_out_to.add(f"{service.url}/")
        page = opened(service)
        sign_in = page.get_by_role("button", name="Sign in with Acme")
        sign_in.wait_for()
        assert not page.get_by_label("token").is_visible()
        # The keyboard is at the button already.
        page.locator("#provider-go:focus").wait_for()
        page.locator("#text").fill("hi there")
        page.evaluate("location.hash = 'inbox'")
        sign_in.press("Enter")
        page.locator("#you").get_by_text("ann@x (sre)").wait_for()
        assert (
            page.url == f"{service.url}/console#inbox" and not page.locator("#sign-in").is_visible()
        )
        # The draft has outlived the way to the provider.
        page.get_by_role("link", name="Chat").click()
        assert page.locator("#text").input_value() == "hi there"
        page.get_by_role("button", name="Send").click()
        page.get_by_role("article").get_by_text("Hello, ann.").wait_for()
        page.get_by_role("button", name="Sign out").click()
        sign_in.wait_for()
        assert provider.ends == ["7"] and page.url.startswith(f"{service.url}/console")
        assert page.evaluate("document.cookie") == ""
