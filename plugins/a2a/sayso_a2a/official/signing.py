"""The service's own signatures: of its card, and of what it posts to others.

The first shows clients whose card it is (A2A 1.0, section 8.4), the second whose notification. Both
are verified with the public key at `/.well-known/jwks.json`.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from a2a.types import AgentCard

from sayso import ConfigError, Host, PluginError, install_line
from sayso_a2a.settings import Signing

JWKS = "/.well-known/jwks.json"
_CARDS = 64
"""Most signed cards that are kept: a card names the address at which it was requested. Most
signatures differ each time, and the card's caching headers would differ with them."""
_CURVES = {256: "ES256", 384: "ES384", 521: "ES512"}
_VALID = 300
"""Seconds for which the signature of a notification is valid."""


class Signer:
    """Signs with the configured key. Raises PluginError if its packages are missing, and
    ConfigError for an unusable key."""

    def __init__(self, host: Host, settings: Signing) -> None:
        try:
            import jwt
            from a2a.utils.signing import create_agent_card_signer
        except ImportError as error:
            raise PluginError(
                f"plugin.a2a.signing needs further packages ({error}); "
                f"try: {install_line('sayso-a2a[signing]')}"
            ) from error
        self._jwt = jwt
        self._new_signer = create_agent_card_signer
        self._settings = settings
        self._key, self._algorithm = _key_of(host, settings)
        self._signed = lru_cache(_CARDS)(self._sign)

    def card(self, card: AgentCard, url: str) -> AgentCard:
        """The signed card of a service at `url`."""
        jku = self._settings.jku or f"{url}{JWKS}"
        return self._signed(card.SerializeToString(deterministic=True), jku)

    def _sign(self, card: bytes, jku: str) -> AgentCard:
        header: Any = {"kid": self._settings.kid, "alg": self._algorithm, "typ": "JOSE", "jku": jku}
        sign: Callable[[AgentCard], AgentCard] = self._new_signer(self._key, header)
        return sign(AgentCard.FromString(card))

    def token(self, body: bytes, audience: str) -> str:
        """A token (JWT) that says that this very body is ours, for the address it is sent to."""
        now = int(time.time())
        claims = {
            "iat": now,
            "exp": now + _VALID,
            "jti": secrets.token_hex(16),
            "aud": audience,
            "request_body_sha256": hashlib.sha256(body).hexdigest(),
        }
        header = {"kid": self._settings.kid}
        return self._jwt.encode(claims, self._key, self._algorithm, header)

    def jwks(self) -> dict[str, Any]:
        """The public key, in the form of JWKS (RFC 7517)."""
        kind: Any = self._jwt.algorithms.get_default_algorithms()[self._algorithm]
        key = kind.to_jwk(self._key.public_key(), as_dict=True)
        named = {"kid": self._settings.kid, "alg": self._algorithm, "use": "sig"}
        return {"keys": [{**key, **named}]}


def _key_of(host: Host, settings: Signing) -> tuple[Any, str]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = host.config.path("plugin.a2a.signing.key", settings.key)
    try:
        key = load_pem_private_key(Path(path).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"plugin.a2a.signing.key: {str(path)!r} is no private key in PEM without a password "
            f"({type(error).__name__})"
        ) from error
    match key:
        case ec.EllipticCurvePrivateKey() if key.curve.key_size in _CURVES:
            return key, _CURVES[key.curve.key_size]
        case rsa.RSAPrivateKey():
            return key, "RS256"
        case ed25519.Ed25519PrivateKey():
            return key, "EdDSA"
    raise ConfigError(f"plugin.a2a.signing.key: {str(path)!r} is of no kind that signs")
