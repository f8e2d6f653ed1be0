"""The server as an OAuth resource, and Sayso as the OAuth client of one."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from test_mcp_client import call, using

from sayso_mcp import ClientCredentials, mcp_server

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TOKENS = {"scheme": "bearer", "tokens": {"agent": "token-x"}}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}
TRANSPORTS = pytest.mark.parametrize("transport", ["streamable-http", "sse"])


class Issuer:
    """An authorization server that issues one token, to one client."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def answer(self, status: int, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                known = self.path == "/.well-known/oauth-authorization-server"
                self.answer(200 if known else 404, issuer.metadata if known else {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                given = self.headers.get("authorization", "").removeprefix("Basic ")
                issuer.asked.append(parse_qs(body.decode()))
                if base64.b64decode(given) != b"sayso:secret-1":
                    self.answer(401, {"error": "invalid_client"})
                    return
                token = {"access_token": "token-x", "token_type": "Bearer", "expires_in": 3600}
                self.answer(200, token)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.metadata = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "grant_types_supported": ["client_credentials"],
            "response_types_supported": ["code"],
        }
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """A running authorization server."""
    made = Issuer()
    yield made
    made.server.shutdown()
    made.server.server_close()


@TRANSPORTS
def test_client_without_a_token_is_told_where_one_is_given(
    serve: Any, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sayso.auth")

    async def run() -> None:
        issuers = ["https://login.example"]
        async with (
            serve(transport=transport, auth=TOKENS, authorization_servers=issuers) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            challenge = ""
            for headers, wrong in (({}, False), ({"authorization": "Bearer no"}, True)):
                refused = await http.get(served.url, headers={**HEADERS, **headers})
                assert refused.status_code == 401
                challenge = refused.headers["www-authenticate"]
                assert ('error="invalid_token"' in challenge) is wrong
            where = challenge.partition('resource_metadata="')[2].rstrip('"')
            reported = (await http.get(where)).json()
            assert reported["resource"] == served.url
            assert reported["authorization_servers"] == issuers
            root = where.rpartition("/")[0]
            assert (await http.get(root)).json() == reported
            logged = [vars(one) for one in caplog.records if one.name == "sayso.auth"]
            assert [(one["protocol"], one["reason"]) for one in logged] == [
                ("mcp", "missing"),
                ("mcp", "wrong"),
            ]

    asyncio.run(run())


def test_metadata_names_the_address_that_is_configured(serve: Any) -> None:
    async def run() -> None:
        issuers, url = ["https://login.example"], "https://tools.example/mcp"
        async with (
            serve(auth=TOKENS, authorization_servers=issuers, url=url) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            refused = await http.get(served.url, headers=HEADERS)
            where = "https://tools.example/.well-known/oauth-protected-resource/mcp"
            assert f'resource_metadata="{where}"' in refused.headers["www-authenticate"]
            path = served.url.replace("/mcp", "/.well-known/oauth-protected-resource")
            assert (await http.get(path)).json()["resource"] == url

    asyncio.run(run())


@TRANSPORTS
def test_token_is_asked_for_with_the_credentials_of_the_service(
    tmp_path: Path, serve: Any, issuer: Issuer, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    mine = ClientCredentials(issuer.url, "sayso", "secret-1")

    async def run() -> None:
        known = [issuer.url]
        async with serve(transport=transport, auth=TOKENS, authorization_servers=known) as served:
            source = mcp_server(served.url, oauth=mine, requires_approval=False)
            async with using(tmp_path, source) as host:
                assert (await call(host, "add", a=1, b=2)).output == "3"
                assert (await call(host, "add", a=2, b=2)).output == "4"
            (asked,) = issuer.asked
            assert asked["grant_type"] == ["client_credentials"]
            assert asked["resource"] == [served.url]

    asyncio.run(run())
    assert "secret-1" not in caplog.text + repr(mine)
    assert "token-x" not in caplog.text


def test_credentials_go_to_their_issuer_only(
    tmp_path: Path, serve: Any, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with serve(auth=TOKENS, authorization_servers=[issuer.url]) as served:
            mine = ClientCredentials("https://login.example", "sayso", "secret-1")
            source = mcp_server(served.url, oauth=mine, prefix="far_")
            async with using(tmp_path, source) as host:
                assert not [name for name in host.agent.tools if name.startswith("far_")]
        assert issuer.asked == []
        assert "is away" in caplog.text

    asyncio.run(run())


@pytest.mark.parametrize("server", ["npx some-server", "https://me:word@tools.example/mcp"])
def test_credentials_are_for_an_address_without_others(server: str) -> None:
    mine = ClientCredentials("https://login.example", "sayso", "secret-1")
    with pytest.raises(ValueError, match="oauth is for a URL"):
        mcp_server(server, oauth=mine)


def test_token_of_the_issuer_is_taken_for_this_server_alone(tmp_path: Path, serve: Any) -> None:
    made = ec.generate_private_key(ec.SECP256R1())
    algorithm: Any = jwt.algorithms.get_default_algorithms()["ES256"]
    public = algorithm.to_jwk(made.public_key(), as_dict=True)
    (tmp_path / "jwks.json").write_text(
        json.dumps({"keys": [{**public, "kid": "k", "use": "sig"}]})
    )
    issuer, here = "https://login.example", "https://tools.example/mcp"

    def token(audience: str) -> str:
        claims = {"iss": issuer, "aud": audience, "sub": "ann", "exp": int(time.time()) + 600}
        return jwt.encode(claims, made, "ES256", {"kid": "k"})

    auth = {
        "scheme": "jwt",
        "jwt": {"issuer": issuer, "audience": here, "jwks": str(tmp_path / "jwks.json")},
    }

    async def run() -> None:
        async with (
            serve(auth=auth, plugins=["mcp", "jwt"], url=here) as served,
            httpx2.AsyncClient(timeout=60) as http,
        ):
            for audience, taken in ((here, True), ("https://other.example/mcp", False)):
                headers = {**HEADERS, "authorization": f"Bearer {token(audience)}"}
                call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
                answer = await http.post(served.url, json=call, headers=headers)
                assert (answer.status_code == 200) is taken, answer.text
            challenge = answer.headers["www-authenticate"]
            assert 'error="invalid_token"' in challenge
            path = served.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
            assert path.replace("http://", "").partition("/")[2] in challenge
            metadata = (await http.get(path)).json()
            assert (metadata["resource"], metadata["authorization_servers"]) == (here, [issuer])

    asyncio.run(run())
