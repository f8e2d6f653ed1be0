"""An identity provider that keeps to the wire, and refuses what a real one refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT, SECRET = "sayso", "a-secret:of%the client"


class FakeProvider:
    """Its one user is ann; the switches make it wrong, slow or absent."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.url = ""
        self.redirect_uris: set[str] = set()
        self.signed_out_to: set[str] = set()
        self.codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.denies = self.is_down = False
        self.ends: list[str] = []
        self.asked: list[str] = []

    def answer(self, method: str, target: str, body: str, authorization: str) -> Answer:
        """Status, headers and body for a request."""
        path, query = urlsplit(target).path, _one(urlsplit(target).query)
        self.asked.append(path)
        if self.is_down:
            return 503, {}, "<h1>down</h1>"
        match method, path:
            case "GET", "/.well-known/openid-configuration":
                return _json(200, self.document())
            case "GET", "/keys":
                public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
                return _json(200, {"keys": [{**public, "kid": "k", "use": "sig", "alg": "RS256"}]})
            case "GET", "/authorize":
                return self.authorize(query)
            case "POST", "/token":
                return self.token(_one(body), authorization)
            case "GET", "/end":
                return self.end(query)
        return 404, {}, "no"

    def document(self) -> dict[str, Any]:
        """The metadata (OpenID Connect Discovery, section 3)."""
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "end_session_endpoint": f"{self.url}/end",
            "code_challenge_methods_supported": ["S256"],
        } | self.metadata

    def authorize(self, asked: dict[str, str]) -> Answer:
        """The browser comes: ann is signed in there already."""
        if asked.get("client_id") != CLIENT or asked.get("redirect_uri") not in self.redirect_uris:
            # A provider shows these errors itself: it may not send the browser to that address.
            return 400, {}, "invalid client_id or redirect_uri"
        back = {"state": asked.get("state", "")}
        if self.denies:
            back |= {"error": "access_denied", "error_description": "ann said <no>"}
        elif asked.get("code_challenge_method") != "S256" or "openid" not in asked["scope"].split():
            back |= {"error": "invalid_request"}
        else:
            back |= {"code": secrets.token_urlsafe(16), "iss": self.url}
            self.codes[back["code"]] = asked
        return 302, {"Location": f"{asked['redirect_uri']}?{urlencode(back)}"}, ""

    def token(self, form: dict[str, str], authorization: str) -> Answer:
        """A code for an ID token, once (RFC 6749, section 4.1.3; RFC 7636, section 4.6)."""
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        # RFC 6749, section 2.3.1: both are form-encoded before they are joined.
        if given != "sayso:a-secret%3Aof%25the+client":
            return _json(401, {"error": "invalid_client"})
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None:
            return _refused("the code is unknown, or was used")
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return _refused("redirect_uri is another one")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return _refused("the code verifier does not match")
        claims = {"iss": self.url, "aud": CLIENT, "sub": "7", "exp": time.time() + 60}
        claims |= {"iat": time.time(), "nonce": asked["nonce"], "email": "ann@x", "groups": ["sre"]}
        token = jwt.encode({**claims, **self.claims}, self.key, "RS256", headers={"kid": "k"})
        return _json(200, {"access_token": "x", "token_type": "Bearer", "id_token": token})

    def end(self, asked: dict[str, str]) -> Answer:
        """RP-initiated logout."""
        hint = jwt.decode(asked["id_token_hint"], options={"verify_signature": False})
        if asked.get("post_logout_redirect_uri") not in self.signed_out_to:
            return 400, {}, "invalid post_logout_redirect_uri"
        self.ends.append(hint["sub"])
        return 302, {"Location": asked["post_logout_redirect_uri"]}, ""


Answer = tuple[int, dict[str, str], str]


def _json(status: int, body: Any) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(body)


def _refused(why: str) -> Answer:
    return _json(400, {"error": "invalid_grant", "error_description": why})


def _one(form: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(form).items()}


@contextmanager
def running() -> Iterator[FakeProvider]:
    """The provider on a loopback port."""
    made = FakeProvider()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            given = self.headers.get("authorization", "")
            status, headers, text = made.answer(self.command, self.path, body, given)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
