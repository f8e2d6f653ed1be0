"""People sign in at an identity provider, and their browser has a session."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from fake_provider import CLIENT, SECRET, FakeProvider, running

from databases import empty_schema
from sayso import ConfigError, PluginError, RequestContext, cli
from sayso.testing import Served, user
from sayso_oidc import provider as client
from sayso_oidc.attempt import Attempt, local
from sayso_oidc.sessions import Sessions

HELLO = {"messages": [user("hello")]}


class Who:
    principal: Any = None

    def __call__(self, messages: Any, context: RequestContext) -> str:
        self.principal = context.principal
        return "fine"


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with running() as made:
        yield made


def config(provider: FakeProvider, more: str = "", ledger: str = "memory://") -> str:
    return (
        'plugins = ["v2", "console", "approvals", "oidc"]\n'
        f'[approvals]\nledger = "{ledger}"\n'
        f'[auth.jwt]\nissuer = "{provider.url}"\nname_claim = "email"\n'
        f"[plugin.oidc]\nclient_id = '{CLIENT}'\nclient_secret = '{SECRET}'\n{more}"
    )


class Browser:
    """A browser: it keeps cookies, follows redirects one by one, and says where requests begin."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self.http = stack.enter_context(httpx2.Client())

    def get(self, url: str, site: str = "none") -> Any:
        return self.http.get(url, headers={"sec-fetch-site": site})

    def begin(self, to: str = "/console#inbox") -> str:
        """Press "Sign in"; the address at the provider."""
        sent = self.http.get(f"{self.url}/login", params={"to": to})
        assert sent.status_code == 303, sent.text
        return str(sent.headers["location"])

    def sign_in(self) -> Any:
        """The answer to the provider's redirect."""
        return self.get(self.get(self.begin()).headers["location"], "cross-site")

    def chat(self, **headers: str) -> Any:
        given = {"origin": self.url, "sec_fetch_site": "same-origin"} | headers
        named = {name.replace("_", "-"): value for name, value in given.items() if value}
        return self.http.post(f"{self.url}/api/chat", json=HELLO, headers=named)

    @property
    def cookies(self) -> str:
        """The header with all cookies."""
        return "; ".join(f"{name}={value}" for name, value in self.http.cookies.items())

    def sign_out(self) -> Any:
        return self.http.post(f"{self.url}/logout", headers={"origin": self.url})


Made = Callable[..., tuple[Browser, Who]]
Opened = Callable[[str], Browser]


@pytest.fixture
def opened() -> Iterator[Opened]:
    with ExitStack() as stack:
        yield lambda url: Browser(url, stack)


@pytest.fixture
def made(sayso_served: Served, provider: FakeProvider, opened: Opened) -> Made:
    def make(more: str = "") -> tuple[Browser, Who]:
        who = Who()
        service = sayso_served(who, config=config(provider, more))
        provider.redirect_uris.add(f"{service.url}/login/callback")
        provider.signed_out_to.add(f"{service.url}/")
        return opened(service.url), who

    return make


def why(answer: Any) -> str:
    """The words on the page that says why somebody is not signed in."""
    assert "text/html" in answer.headers["content-type"]
    return unescape(re.sub("<[^>]*>", " ", answer.text))


def test_person_signs_in_and_is_a_principal_with_groups(made: Made, provider: FakeProvider) -> None:
    browser, who = made()
    assert browser.chat().status_code == 401
    signed = browser.sign_in()
    assert (signed.status_code, signed.headers["location"]) == (303, "/console#inbox")
    assert browser.chat().status_code == 200
    one = who.principal
    assert (one, one.issuer, one.subject, one.groups) == ("ann@x", provider.url, "7", {"sre"})
    # The provider has asked a person, so the rules for persons count ann.
    assert (one.kind, one.person) == ("person", "ann@x")


def test_session_is_a_cookie_that_no_script_and_no_other_site_gets(made: Made) -> None:
    browser, _ = made()
    cookies = browser.sign_in().headers.get_list("set-cookie")
    session = next(one for one in cookies if "-session=" in one)
    assert "HttpOnly" in session and "SameSite=lax" in session and "Max-Age=28800" in session
    assert re.match(r"sayso-[0-9a-f]{8}-session=[\w-]{43};", session)
    # It is a loopback address without TLS.
    assert "Secure" not in session and "Domain" not in session


def test_cookies_of_a_public_address_are_secure_and_of_this_host_alone(
    sayso_served: Served, provider: FakeProvider
) -> None:
    where = 'url = "https://agent.example.com/ops/"\n'
    service = sayso_served(Who(), config=config(provider, where))
    sent = httpx2.get(f"{service.url}/login")
    asked = parse_qs(urlsplit(sent.headers["location"]).query)
    assert asked["redirect_uri"] == ["https://agent.example.com/ops/login/callback"]
    cookie = sent.headers["set-cookie"]
    assert cookie.startswith("__Host-sayso-") and "Secure" in cookie and "Path=/;" in cookie


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        # Browsers without the header send an origin with each POST.
        ({"sec_fetch_site": ""}, 200),
        ({"sec_fetch_site": "", "origin": ""}, 403),
        # Another credential is none of a page's own accord; here it is a wrong one.
        ({"authorization": "Bearer x", "sec_fetch_site": "cross-site"}, 401),
    ],
)
def test_session_counts_for_the_service_s_own_pages_alone(
    made: Made, headers: dict[str, str], status: int
) -> None:
    browser, _ = made()
    browser.sign_in()
    assert browser.chat(**headers).status_code == status


def test_page_of_another_site_signs_nobody_out(made: Made) -> None:
    browser, _ = made()
    browser.sign_in()
    for headers in ({"origin": "https://evil.example"}, {}):
        refused = browser.http.post(f"{browser.url}/logout", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "FOREIGN_ORIGIN")
    assert browser.chat().status_code == 200


def test_sign_out_ends_the_session_here_and_at_the_provider(
    made: Made, provider: FakeProvider
) -> None:
    browser, _ = made()
    browser.sign_in()
    copied = browser.cookies
    to = browser.sign_out().json()["to"]
    assert browser.chat().status_code == 401
    assert browser.get(to).headers["location"] == f"{browser.url}/"
    assert provider.ends == ["7"]
    # A copy of the cookie is worth nothing, either.
    assert browser.chat(cookie=copied).status_code == 401


def test_sign_out_works_without_the_provider_and_without_its_sign_out(
    made: Made, provider: FakeProvider
) -> None:
    provider.metadata = {"end_session_endpoint": None}
    browser, _ = made()
    browser.sign_in()
    assert browser.sign_out().json() == {"to": "/"}
    assert browser.chat().status_code == 401
    assert browser.sign_out().json() == {"to": "/"}


def test_new_sign_in_ends_the_session_before_it(made: Made) -> None:
    browser, _ = made()
    browser.sign_in()
    before = browser.cookies
    browser.sign_in()
    assert browser.chat().status_code == 200
    browser.http.cookies.clear()
    assert browser.chat(cookie=before).status_code == 401


def test_session_has_an_end(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="session"):
        made('session = "30d"\n')
    browser, _ = made()
    monkeypatch.setattr(Sessions, "_put", _put_late)
    browser.sign_in()
    assert browser.chat().status_code == 401


_put = Sessions._put


def _put_late(self: Sessions, *args: Any, **named: Any) -> None:
    self._life = -1.0
    _put(self, *args, **named)


def test_other_processes_on_the_store_know_the_session(
    sayso_served: Served, provider: FakeProvider, opened: Opened, tmp_path: Path
) -> None:
    where = "url = 'http://127.0.0.1:1'\n"
    ledger = f"sqlite:///{tmp_path / 'shared.db'}"
    one, other = (
        opened(sayso_served(Who(), config=config(provider, where, ledger)).url) for _ in range(2)
    )
    provider.redirect_uris.add("http://127.0.0.1:1/login/callback")
    back = one.get(one.begin()).headers["location"]
    # Any process goes on with what another one has begun.
    other.http.cookies = one.http.cookies
    signed = other.get(back.replace("http://127.0.0.1:1", other.url))
    assert signed.status_code == 303
    for browser in (one, other):
        browser.http.cookies = other.http.cookies
        assert browser.chat(origin="http://127.0.0.1:1").status_code == 200
    content = b"".join(file.read_bytes() for file in tmp_path.glob("shared.db*") if file.is_file())
    assert b"oidc:" in content and b"ann@x" not in content
    assert all(value.encode() not in content for value in other.http.cookies.values())


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        with empty_schema() as url:
            yield url


@pytest.mark.parametrize("subject", ["--principal=ann@x", "--principal=Ann", "--tenant=acme"])
def test_erasure_ends_the_sessions_of_a_person_or_a_tenant(
    sayso_served: Served,
    provider: FakeProvider,
    opened: Opened,
    tmp_path: Path,
    shared: str,
    subject: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = (
        f'[auth.people]\nAnn = ["{provider.url}|7"]\n[auth.principals."ann@x"]\ntenant = "acme"\n'
    )
    file = tmp_path / "sayso.toml"
    file.write_text(config(provider, more, shared))
    service = sayso_served(Who(), config=file)
    provider.redirect_uris.add(f"{service.url}/login/callback")
    browsers = [opened(service.url) for _ in range(2)]
    for browser in browsers:
        browser.sign_in()
        assert browser.chat().status_code == 200

    def erased(whose: str) -> str:
        assert cli.run(["--config", str(file), "erase", "--yes", whose]) == 0
        return capsys.readouterr().out

    for other in ("--principal=bob@x", "--tenant=other"):
        assert "erased 0 sessions" in erased(other)
    assert [browser.chat().status_code for browser in browsers] == [200, 200]
    assert "erased 2 sessions" in erased(subject)
    assert [browser.chat().status_code for browser in browsers] == [401, 401]
    assert "erased 0 sessions" in erased(subject)
    browsers[0].sign_in()
    assert browsers[0].chat().status_code == 200


def test_answer_counts_once_and_in_the_browser_that_asked(made: Made, opened: Opened) -> None:
    browser, _ = made()
    back = browser.get(browser.begin()).headers["location"]
    assert browser.get(back).status_code == 303
    again = browser.get(back)
    assert (again.status_code, "not begun in this browser" in why(again)) == (403, True)
    # An answer that was begun elsewhere would sign the victim in as the attacker.
    attacker = opened(browser.url)
    planted = attacker.get(attacker.begin()).headers["location"]
    assert "not begun in this browser" in why(browser.get(planted))
    wrong = re.sub("state=[^&]*", "state=x", attacker.get(attacker.begin()).headers["location"])
    assert "not begun in this browser" in why(attacker.get(wrong))


@pytest.mark.parametrize("state", ["a b;c=d,", "\r\nset-cookie: a=b", "\x00", "ü" * 40, ""])
def test_state_of_any_characters_is_told_as_a_wrong_one(made: Made, state: str) -> None:
    browser, _ = made()
    address = f"{browser.url}/login/callback"
    answer = browser.http.get(address, params={"state": state, "code": "one"})
    assert answer.status_code < 500
    assert "not begun in this browser" in why(answer)
    assert len(answer.headers.get_list("set-cookie")) == 1


def test_several_tabs_sign_in_at_once(made: Made) -> None:
    browser, _ = made()
    ways = [browser.begin(f"/console?tab={n}") for n in range(2)]
    for n, way in enumerate(ways):
        signed = browser.get(browser.get(way).headers["location"])
        assert signed.headers["location"] == f"/console?tab={n}"


def test_provider_refuses_a_used_code_a_wrong_verifier_and_a_wrong_address(
    made: Made, provider: FakeProvider
) -> None:
    browser, _ = made()

    def back() -> str:
        return str(browser.get(browser.begin()).headers["location"])

    used = back()
    code = parse_qs(urlsplit(used).query)["code"][0]
    kept = provider.codes.pop(code)
    assert "invalid_grant (the code is unknown, or was used)" in why(browser.get(used))
    provider.codes[code] = kept
    # A code of one attempt, put into another one: its verifier is another.
    other = re.sub("code=[^&]*", f"code={code}", back())
    assert "the code verifier does not match" in why(browser.get(other))
    moved = back()
    provider.codes[parse_qs(urlsplit(moved).query)["code"][0]]["redirect_uri"] = "https://x"
    assert "redirect_uri is another one" in why(browser.get(moved))
    provider.redirect_uris.clear()
    assert browser.get(browser.begin()).status_code == 400


def test_refusal_of_the_provider_is_told_as_text(made: Made, provider: FakeProvider) -> None:
    provider.denies = True
    browser, _ = made()
    refused = browser.sign_in()
    assert refused.status_code == 403 and "<no>" not in refused.text
    assert "refused the sign-in: access_denied (ann said <no>)" in why(refused)
    assert "default-src 'none'" in refused.headers["content-security-policy"]
    assert 'href="/login?to=%2Fconsole%23inbox"' in refused.text


@pytest.mark.parametrize(
    ("claims", "said", "reason"),
    [
        ({"aud": "other"}, "for another audience than plugin.oidc.client_id", "audience"),
        ({"iss": "https://other.example"}, "its issuer is not auth.jwt.issuer", "issuer"),
        ({"nonce": "x"}, "its nonce is another one", "sign_in"),
        ({"nonce": 5}, "its nonce is another one", "sign_in"),
        ({"azp": "other"}, "for another client", "sign_in"),
        ({"exp": 5.0}, "it has expired; compare the clocks", "expired"),
        ({"iat": time.time() + 3600}, "it is not valid yet; compare the clocks", "early"),
        ({"email": None}, "its claim 'email' names nobody", "claims"),
    ],
)
def test_wrong_id_token_signs_nobody_in_and_says_why(
    made: Made,
    provider: FakeProvider,
    claims: dict[str, Any],
    said: str,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider.claims = claims
    browser, _ = made()
    refused = browser.sign_in()
    assert refused.status_code == 403 and said in why(refused)
    assert operators_see(caplog) == [("oidc", reason)]
    assert browser.chat().status_code == 401


def operators_see(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The protocol and the reason of each refused caller in the log."""
    lines = [vars(one) for one in caplog.records if one.name == "sayso.auth"]
    return [(line["protocol"], line["reason"]) for line in lines]


def test_page_of_another_site_and_a_wrong_state_are_seen_by_operators(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    browser, _ = made()
    browser.sign_in()
    assert browser.chat(origin="https://evil.example").status_code == 403
    assert browser.get(f"{browser.url}/login/callback?state=x&code=y").status_code == 403
    assert operators_see(caplog) == [("v2", "foreign_page"), ("oidc", "sign_in")]


def test_answer_of_another_provider_is_refused(made: Made) -> None:
    browser, _ = made()
    back = browser.get(browser.begin()).headers["location"]
    mixed = re.sub("iss=[^&]*", "iss=https%3A%2F%2Fother.example", back)
    assert "of another identity provider" in why(browser.get(mixed))


def test_provider_that_is_down_is_told_and_asked_again(
    made: Made,
    provider: FakeProvider,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.0)
    provider.is_down = True
    browser, _ = made()
    down = browser.get(f"{browser.url}/login")
    assert down.status_code == 503
    assert "127.0.0.1 cannot be reached: it answered 503" in why(down)
    assert operators_see(caplog) == [("oidc", "provider_unreachable")]
    provider.is_down = False
    back = browser.get(browser.begin()).headers["location"]
    provider.is_down = True
    assert "gave no ID token: it answered 503" in why(browser.get(back))


def test_strangers_cause_no_load_at_a_provider_that_is_down(
    made: Made, provider: FakeProvider
) -> None:
    provider.is_down = True
    browser, _ = made()
    for _ in range(3):
        assert browser.get(f"{browser.url}/login").status_code == 503
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://other.example"}, "it is the issuer 'https://other.example', not auth"),
        ({"token_endpoint": "http://id.example/token"}, "its 'token_endpoint' is no address"),
        ({"jwks_uri": None}, "its 'jwks_uri' is no address"),
    ],
)
def test_document_of_the_provider_has_to_be_its_own_and_safe(
    made: Made, provider: FakeProvider, metadata: dict[str, Any], said: str
) -> None:
    provider.metadata = metadata
    browser, _ = made()
    assert said in why(browser.get(f"{browser.url}/login"))


def test_browser_returns_to_a_path_of_this_host_alone() -> None:
    for to in ("/console#inbox", "/console?x=1", "/"):
        assert Attempt.of_cookie(Attempt.new(local(to)).cookie).to == to
    for to in ("//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", ""):
        assert local(to) == "/"


def test_bearer_tokens_count_beside_sessions(
    sayso_served: Served, provider: FakeProvider, opened: Opened
) -> None:
    who = Who()
    tokens = '[auth]\nscheme = "bearer"\n[auth.tokens]\nbot = "a-token-for-a-bot-0123456789"\n'
    service = sayso_served(
        who, config=config(provider).replace("[auth.jwt]", tokens + "[auth.jwt]")
    )
    provider.redirect_uris.add(f"{service.url}/login/callback")
    browser = opened(service.url)
    browser.sign_in()
    assert browser.chat().status_code == 200 and who.principal == "ann@x"
    token = {"authorization": "Bearer a-token-for-a-bot-0123456789"}
    assert browser.chat(**token).status_code == 200 and who.principal == "bot"


def test_start_names_the_settings_that_are_missing(sayso_served: Served) -> None:
    with pytest.raises((ConfigError, PluginError)) as error:
        sayso_served(Who(), config='plugins = ["v2", "oidc"]\n')
    assert "set auth.jwt.issuer, plugin.oidc.client_id" in str(error.value)


def test_nobody_signs_in_under_a_name_without_encryption(
    sayso_served: Served, provider: FakeProvider
) -> None:
    named = config(provider) + '[server]\nhosts = ["agent.example.com"]\n'
    service = sayso_served(Who(), config=named)
    refused = httpx2.get(f"{service.url}/login", headers={"host": "agent.example.com"})
    assert refused.status_code == 403 and "set plugin.oidc.url" in why(refused)


@pytest.mark.parametrize(
    "setting", ['url = "http://agent.example.com"', 'scopes = ["email"]', 'url = "https:///x"']
)
def test_setting_that_is_not_safe_stops_the_start(
    sayso_served: Served, provider: FakeProvider, setting: str
) -> None:
    with pytest.raises((ConfigError, PluginError), match=r"plugin\.oidc"):
        sayso_served(Who(), config=config(provider, f"{setting}\n"))
