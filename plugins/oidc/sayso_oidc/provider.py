"""The identity provider: its addresses, the way of a browser to it, and the ID token for a code."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit

from sayso import Config, Principal, SaysoError, secret_text
from sayso_jwt.keys import Keys
from sayso_jwt.tokens import Expected, Refused, Tokens
from sayso_jwt.web import fetched, is_safe
from sayso_oidc.attempt import Attempt
from sayso_oidc.settings import OidcSettings

WELL_KNOWN = "/.well-known/openid-configuration"
FRESH = 3_600.0
"""Seconds after which the addresses of the provider are fetched again."""
PAUSE = 5.0
"""The shortest time in seconds between two fetches that fail."""
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_LONGEST = 300


class SignInFailed(SaysoError):
    """Somebody could not be signed in; the text is for that person, `reason` for operators."""

    status = 403
    reason = "sign_in"


class ProviderDown(SignInFailed):
    """The provider does not answer, or not as a provider."""

    status = 503
    reason = "provider_unreachable"


class Provider:
    """The provider of `[auth.jwt]`, as one client sees it. Requests block, so they run on
    threads."""

    def __init__(self, config: Config, settings: OidcSettings) -> None:
        said, self._settings = config.auth.jwt, settings
        assert said.issuer and settings.client_id, "the start has checked them"
        self.issuer = said.issuer
        self._client = settings.client_id
        secret = settings.client_secret
        self._secret = secret_text(secret, "plugin.oidc.client_secret") if secret else None
        claims = (said.name_claim, said.groups_claim, said.tenant_claim)
        self._expected = Expected(
            self.issuer, self._client, *claims, audience_setting="plugin.oidc.client_id"
        )
        self._lock = threading.Lock()
        self._found: Mapping[str, Any] = {}
        self._tokens: Tokens | None = None
        self._at = self._failed_at = -FRESH
        self._failed = ""

    @property
    def name(self) -> str:
        """The name of the provider, for people."""
        return self._settings.name or urlsplit(self.issuer).hostname or self.issuer

    async def way(self, attempt: Attempt, redirect_uri: str) -> str:
        """The address at the provider to which the browser is sent."""
        found = await self._document()
        asked = {
            "response_type": "code",
            "client_id": self._client,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return _with(found["authorization_endpoint"], asked)

    async def way_out(self, id_token: str, back: str) -> str | None:
        """The address at which the browser signs out of the provider, too; None without one."""
        try:
            address = (await self._document()).get("end_session_endpoint")
        except ProviderDown:
            return None
        if not (isinstance(address, str) and is_safe(address)):
            return None
        asked = {"client_id": self._client, "post_logout_redirect_uri": back}
        return _with(address, {**asked, "id_token_hint": id_token})

    async def signed_in(
        self, code: str, attempt: Attempt, redirect_uri: str
    ) -> tuple[Principal, str]:
        """The principal whose ID token the code buys, and that token. Raises SignInFailed."""
        found = await self._document()
        given = await asyncio.to_thread(self._bought, found, code, attempt.verifier, redirect_uri)
        id_token = given.get("id_token")
        if not isinstance(id_token, str):
            raise SignInFailed("The provider sent no ID token; is 'openid' among its scopes?")
        assert self._tokens is not None, "it is made with the document"
        try:
            claims = await self._tokens.claims(id_token)
            principal = self._tokens.named(claims)
        except Refused as error:
            clocks = "; compare the clocks of the provider and of this service"
            more = clocks if error.by_time else ""
            failed = SignInFailed(f"The ID token does not count: {error.why}{more}.")
            failed.reason = error.reason
            raise failed from None
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), attempt.nonce.encode()):
            raise SignInFailed("The ID token is not for this sign-in: its nonce is another one.")
        if claims.get("azp", self._client) != self._client:
            raise SignInFailed("The ID token was made for another client of the provider.")
        return principal, id_token

    def _bought(
        self, found: Mapping[str, Any], code: str, verifier: str, redirect_uri: str
    ) -> Mapping[str, Any]:
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
        form |= {"redirect_uri": redirect_uri}
        headers = {"Accept": "application/json"}
        # OpenID Connect Discovery, section 3: this is the method if a provider names none.
        methods = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if self._secret is None:
            form |= {"client_id": self._client}
        elif "client_secret_basic" in methods:
            pair = f"{quote_plus(self._client)}:{quote_plus(self._secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self._client, "client_secret": self._secret}
        try:
            return _object(fetched(found["token_endpoint"], urlencode(form).encode(), headers))
        except HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, ValueError) as error:
            raise ProviderDown(f"{self.name} gave no ID token: {_cause(error)}.") from None

    async def _document(self) -> Mapping[str, Any]:
        """The provider's metadata (OpenID Connect Discovery, section 4)."""
        if time.monotonic() - self._at > FRESH:
            await asyncio.to_thread(self._discover)
        if not self._found:
            raise ProviderDown(f"{self.name} cannot be reached: {self._failed}.")
        return self._found

    def _discover(self) -> None:
        with self._lock:
            # Several requests may have waited here for the same answer.
            now = time.monotonic()
            if now - self._at <= FRESH or now - self._failed_at < PAUSE:
                return
            try:
                found = _object(fetched(self.issuer.rstrip("/") + WELL_KNOWN))
                self._check(found)
            except (OSError, ValueError) as error:
                # Addresses that were found before remain in use.
                self._failed, self._failed_at = _cause(error), now
                return
            if found["jwks_uri"] != self._found.get("jwks_uri"):
                self._tokens = Tokens(self._expected, Keys(found["jwks_uri"], "jwks_uri"))
            self._found, self._at = found, now

    def _check(self, found: Mapping[str, Any]) -> None:
        if found.get("issuer") != self.issuer:
            raise ValueError(f"it is the issuer {found.get('issuer')!r}, not auth.jwt.issuer")
        for name in _ENDPOINTS:
            address = found.get(name)
            if not (isinstance(address, str) and is_safe(address)):
                raise ValueError(f"its {name!r} is no address that begins with 'https://'")


def _with(address: str, asked: Mapping[str, str]) -> str:
    return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(asked)}"


def _object(text: bytes) -> Mapping[str, Any]:
    said = json.loads(text)
    if not isinstance(said, dict):
        raise ValueError("it answered with no JSON object")
    return said


def _refusal(error: HTTPError) -> SignInFailed:
    """The provider's refusal of a code, in its own words (RFC 6749, section 5.2)."""
    try:
        said = _object(error.read(2**16))
    except (OSError, ValueError):
        said = {}
    if not (kind := said.get("error")):
        return ProviderDown(f"The provider gave no ID token: it answered {error.code}.")
    return refused(str(kind), said.get("error_description"))


def refused(kind: str, description: object) -> SignInFailed:
    """The provider's refusal as an error for people."""
    more = f" ({description})" if isinstance(description, str) and description else ""
    return SignInFailed(f"The provider refused the sign-in: {kind}{more}"[:_LONGEST] + ".")


def _cause(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"it answered {error.code}"
    return str(getattr(error, "reason", None) or error)[:_LONGEST]
