"""Callers prove their identity by tokens of an identity provider."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from websockets.sync.client import connect

from sayso import ConfigError, PluginError, RequestContext
from sayso.testing import Served, Service, user
from sayso_jwt import keys as cache

ISSUER = "https://id.example/realms/staff"
HELLO = {"messages": [user("hello")]}


class Provider:
    """An identity provider: a private key for each id, and a server of the public keys."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.asked = 0
        self.broken = False
        self.url = ""
        self.add("a")

    def add(self, kid: str, *, curve: bool = False) -> None:
        """Begin to sign with another key."""
        if curve:
            self.keys[kid] = ec.generate_private_key(ec.SECP256R1())
        else:
            self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwks(self) -> str:
        """The public keys, beside some that are not for signatures."""
        known: list[Any] = [{"kty": "oct", "kid": "s", "k": "c2VjcmV0"}, {"kty": "new"}, 5]
        for kid, key in self.keys.items():
            made = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
            known.append({**json.loads(made.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        return json.dumps({"keys": known})

    def token(self, kid: str | None = "a", alg: str = "RS256", key: Any = None, **more: Any) -> str:
        """A token of ann's that is valid for a minute; claims of None are left out."""
        claims = {"iss": ISSUER, "aud": "sayso", "sub": "7", "exp": time.time() + 60} | more
        given = {name: value for name, value in claims.items() if value is not None}
        headers = {"kid": kid} if kid else None
        return jwt.encode(given, key or self.keys[kid or "a"], algorithm=alg, headers=headers)


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked += 1
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/keys")
                self.end_headers()
                return
            body = b"no" if made.broken else made.jwks().encode()
            self.send_response(503 if made.broken else 200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with _server(Handler) as port:
        made.url = f"http://127.0.0.1:{port}/keys"
        yield made


@contextmanager
def _server(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def config(jwks: str, more: str = "") -> str:
    return (
        f'[auth]\nscheme = "jwt"\n[auth.jwt]\nissuer = "{ISSUER}"\naudience = "sayso"\n'
        f'jwks = "{jwks}"\n{more}'
    )


class Who:
    principal: Any = None

    def __call__(self, messages: Any, context: RequestContext) -> str:
        self.principal = context.principal
        return "fine"


Ask = Callable[[str], Any]


def asking(service: Service) -> Ask:
    return lambda token: service.post(
        "/api/chat", HELLO, {"Authorization": f"Bearer {token}"} if token else {}
    )


def test_token_names_the_principal_with_groups_and_tenant(
    sayso_served: Served, provider: Provider
) -> None:
    more = 'name_claim = "email"\ngroups_claim = "realm_access.roles"\ntenant_claim = "org"\n'
    people = f'[auth.people]\nAnn = ["{ISSUER}|7"]\n'
    who = Who()
    ask = asking(sayso_served(who, config=config(provider.url, more + people)))
    claims = {"email": "ann@x", "org": "acme", "realm_access": {"roles": ["sre", "dev", 5]}}
    assert ask(provider.token(**claims)).status == 200
    one = who.principal
    assert (one, one.issuer, one.subject, one.tenant) == ("ann@x", ISSUER, "7", "acme")
    assert (one.groups, one.person, one.kind) == ({"sre", "dev"}, "Ann", "person")
    assert "names no tenant" in ask(provider.token(**claims | {"org": None})).json()["detail"]
    assert "names nobody" in ask(provider.token(**claims | {"email": 5})).json()["detail"]


def test_refusal_names_the_cause_and_never_the_token(
    sayso_served: Served, provider: Provider, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(provider.jwks(), "utf-8")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now, text = time.time(), provider.token()
    wrong = {
        provider.token(exp=now - 60): "has expired",
        provider.token(exp=None): "lacks the claim 'exp'",
        provider.token(sub=None): "lacks the claim 'sub'",
        provider.token(nbf=now + 120): "is not valid yet",
        provider.token(aud="other"): "for another audience",
        provider.token(aud=None): "lacks the claim 'aud'",
        provider.token(iss=ISSUER + "/"): "its issuer is not",
        provider.token(key=other): "its signature is not",
        provider.token(kid="z", key=other): "publishes no key",
        provider.token(kid="s", alg="HS256", key="c" * 40): "it is not signed with one of",
        jwt.encode({"sub": "7"}, None, algorithm="none"): "it is not signed with one of",
        f"{text[:-4]}AAAA": "its signature is not",
        "e30.e30.e30": "it is not signed with one of",
        "x": "it is no JSON web token",
    }
    ask = asking(sayso_served(Who(), config=config(str(file))))
    assert ask(text).status == 200
    for token, why in wrong.items():
        refused = ask(token)
        assert (refused.status, refused.json()["code"]) == (401, "UNAUTHENTICATED")
        assert why in refused.json()["detail"], (why, refused.text)
        assert token not in refused.text
    assert ask("").status == 401


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reasons that the log gives, each the first time."""
    return [vars(one)["reason"] for one in caplog.records if one.name == "sayso.auth"]


def test_operators_see_the_reason_of_each_refusal(
    sayso_served: Served, provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sayso.auth")
    file = tmp_path / "keys.json"
    file.write_text(provider.jwks(), "utf-8")
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = time.time()
    ask = asking(sayso_served(Who(), config=config(str(file))))
    tokens = {
        "missing": "",
        "malformed": "x",
        "expired": provider.token(exp=now - 60),
        "early": provider.token(nbf=now + 120),
        "audience": provider.token(aud="other"),
        "issuer": provider.token(iss=f"{ISSUER}/"),
        "signature": provider.token(key=other),
        "key": provider.token(kid="z", key=other),
        "claims": provider.token(sub=None),
    }
    for token in tokens.values():
        assert ask(token).status == 401
    assert refused(caplog) == list(tokens)
    said = "".join(str(vars(one)) for one in caplog.records)
    assert not [token for token in tokens.values() if len(token) > 1 and token in said]


def test_operators_see_that_the_keys_cannot_be_had(
    sayso_served: Served, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.broken = True
    assert asking(sayso_served(Who(), config=config(provider.url)))(provider.token()).status == 503
    assert refused(caplog) == ["provider_unreachable"]


def test_clocks_may_differ_by_half_a_minute(sayso_served: Served, provider: Provider) -> None:
    ask = asking(sayso_served(Who(), config=config(provider.url)))
    assert ask(provider.token(exp=time.time() - 15)).status == 200
    assert ask(provider.token(nbf=time.time() + 15)).status == 200


def test_issuer_changes_its_keys_and_strange_ones_cost_it_nothing(
    sayso_served: Served, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = asking(sayso_served(Who(), config=config(provider.url)))
    for _ in range(3):
        assert ask(provider.token()).status == 200
    assert provider.asked == 1
    provider.add("b", curve=True)
    # The keys were fetched a moment ago, so they are not fetched again before the pause is over.
    for _ in range(3):
        assert ask(provider.token("b", "ES256")).status == 401
    assert provider.asked == 1
    monkeypatch.setattr(cache, "PAUSE", 0.0)
    assert ask(provider.token("b", "ES256")).status == 200
    assert ask(provider.token()).status == 200
    assert provider.asked == 2
    # A key of one type cannot have made a signature of the other.
    assert ask(provider.token("b", "RS256", provider.keys["a"])).status == 401


def test_known_keys_stay_good_while_the_address_does_not_answer(
    sayso_served: Served, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = asking(sayso_served(Who(), config=config(provider.url)))
    provider.broken = True
    early = ask(provider.token())
    assert (early.status, early.json()["code"]) == (503, "BUSY")
    monkeypatch.setattr(cache, "PAUSE", 0.0)
    provider.broken = False
    assert ask(provider.token()).status == 200
    provider.broken = True
    monkeypatch.setattr(cache, "FRESH", 0.0)
    assert ask(provider.token()).status == 200
    monkeypatch.setattr(cache, "STALE", 0.0)
    assert ask(provider.token()).status == 503


def test_no_answer_leads_to_keys_elsewhere(sayso_served: Served, provider: Provider) -> None:
    where = provider.url.replace("/keys", "/moved")
    assert asking(sayso_served(Who(), config=config(where)))(provider.token()).status == 503
    assert provider.asked == 1


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("http://id.example/keys", "over https://"),
        ("ftp://127.0.0.1/keys", "over https://"),
        ("missing.json", "cannot be read"),
        ("empty.json", "holds no public key"),
    ],
)
def test_start_stops_without_keys(
    sayso_served: Served, tmp_path: Path, where: str, why: str
) -> None:
    (tmp_path / "empty.json").write_text('{"keys": [{"kty": "oct", "k": "AA"}]}', "utf-8")
    given = where if "://" in where else str(tmp_path / where)
    with pytest.raises((ConfigError, PluginError)) as error:
        sayso_served(Who(), config=config(given))
    assert why in str(error.value)


def test_plugin_without_its_scheme_stops_the_start(sayso_served: Served) -> None:
    with pytest.raises((ConfigError, PluginError)) as error:
        sayso_served(Who(), config='plugins = ["v2", "jwt"]\n')
    assert "names 'jwt' in its plugins list, but auth.scheme is 'none'" in str(error.value)


def test_scheme_makes_the_plugin_active_beside_a_list(
    sayso_served: Served, provider: Provider
) -> None:
    service = sayso_served(Who(), config='plugins = ["v2"]\n' + config(provider.url))
    assert service.host.plugins.names == ("v2", "jwt")
    assert asking(service)("").status == 401


def after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let principals see a clock that is an hour ahead."""
    monkeypatch.setattr("sayso.principals.time", SimpleNamespace(time=lambda: time.time() + 3600))


def test_an_open_websocket_takes_no_turn_after_its_token_has_expired(
    sayso_served: Served, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = Who()
    service = sayso_served(who, config=config(provider.url))
    headers = {"Authorization": f"Bearer {provider.token()}"}
    address = service.url.replace("http", "ws") + "/api/chat-ws"
    with connect(address, additional_headers=headers) as socket:
        socket.send(json.dumps(HELLO))
        assert [json.loads(socket.recv())["type"] for _ in range(2)] == ["text_delta", "done"]
        who.principal = None
        after_an_hour(monkeypatch)
        socket.send(json.dumps(HELLO))
        refused = json.loads(socket.recv())
    assert (refused["type"], refused["code"]) == ("error", "UNAUTHENTICATED")
    assert "have expired" in refused["error"]
    assert who.principal is None


def test_an_open_stream_of_approvals_ends_when_its_token_expires(
    sayso_served: Served, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso_approvals.events.BEAT", 0.1)
    service = sayso_served(Who(), config=config(provider.url, "[plugin.approvals]\n"))
    headers = {"Authorization": f"Bearer {provider.token()}"}
    address = f"{service.url}/approvals/events"
    with httpx.stream("GET", address, headers=headers, timeout=20.0) as stream:
        parts = stream.iter_bytes()
        while b": still there" not in next(parts):
            pass
        after_an_hour(monkeypatch)
        assert all(b"event:" not in part for part in parts)
