"""Signatures of the card, by which clients know whose it is (A2A 1.0, section 8.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from a2a.types import AgentCard

from sayso import ConfigError, Host, PluginError, install_line
from sayso_a2a.settings import Signing

Sign = Callable[[AgentCard], AgentCard]
_CARDS = 64
"""Signed cards that are kept: a card names the address at which it was asked for. Most signatures
differ each time, and the card's caching headers would differ with them."""
_CURVES = {256: "ES256", 384: "ES384", 521: "ES512"}


def signer(host: Host, settings: Signing) -> Sign:
    """Signs cards with the configured key. Raises PluginError where the packages for it are
    missing, and ConfigError for a key that cannot be used."""
    try:
        from a2a.utils.signing import create_agent_card_signer
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise PluginError(
            f"plugin.a2a.signing needs further packages ({error}); "
            f"try: {install_line('sayso-a2a[signing]')}"
        ) from error
    path = host.config.path("plugin.a2a.signing.key", settings.key)
    try:
        key: Any = load_pem_private_key(Path(path).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"plugin.a2a.signing.key: {str(path)!r} is no private key in PEM without a password "
            f"({type(error).__name__})"
        ) from error
    header: Any = {"kid": settings.kid, "alg": _algorithm(key, path), "typ": "JOSE"}
    if settings.jku:
        header["jku"] = settings.jku
    sign = create_agent_card_signer(key, header)

    @lru_cache(_CARDS)
    def signed(card: bytes) -> AgentCard:
        return sign(AgentCard.FromString(card))

    return lambda card: signed(card.SerializeToString(deterministic=True))


def _algorithm(key: Any, path: Path) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match key:
        case ec.EllipticCurvePrivateKey() if key.curve.key_size in _CURVES:
            return _CURVES[key.curve.key_size]
        case rsa.RSAPrivateKey():
            return "RS256"
        case ed25519.Ed25519PrivateKey():
            return "EdDSA"
    raise ConfigError(f"plugin.a2a.signing.key: {str(path)!r} is of no kind that signs cards")
