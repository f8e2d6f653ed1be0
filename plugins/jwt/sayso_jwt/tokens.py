"""The facts that a token proves about its bearer, or the reason why it is invalid."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuedAtError,
    InvalidIssuerError,
    InvalidKeyError,
    InvalidSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

from sayso import Principal, Unauthenticated
from sayso_jwt.keys import Key, Keys

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures with a private key only: with a shared secret, the service itself could make
tokens."""
LEEWAY = 30.0
"""Seconds by which the clocks of the issuer and of this machine may differ."""
_WHY: Mapping[type[PyJWTError], tuple[str, str]] = {
    ExpiredSignatureError: ("it has expired", "expired"),
    ImmatureSignatureError: ("it is not valid yet", "early"),
    InvalidIssuedAtError: ("it was issued in the future", "early"),
    InvalidAudienceError: ("it is for another audience than {0.audience_setting}", "audience"),
    InvalidIssuerError: ("its issuer is not {0.issuer_setting}", "issuer"),
    InvalidSignatureError: ("its signature is not of the key that it names", "signature"),
    InvalidKeyError: ("its signature is not of the key that it names", "signature"),
}
"""The words for the caller, and the reason, by the error of the library."""


class Expected(NamedTuple):
    """The issuer and the audience of valid tokens, the claims that describe their bearer, and the
    names of the two settings in errors."""

    issuer: str
    audience: str
    name_claim: str = "sub"
    groups_claim: str = "groups"
    tenant_claim: str | None = None
    issuer_setting: str = "auth.jwt.issuer"
    audience_setting: str = "auth.jwt.audience"


class Refused(Unauthenticated):
    """The token is not valid: `why` for the caller, `reason` for operators."""

    def __init__(self, why: str, reason: str) -> None:
        super().__init__(f"the token does not count: {why}", reason)
        self.why = why

    @property
    def by_time(self) -> bool:
        """Whether a wrong clock may be the cause."""
        return self.reason in ("expired", "early")


class Tokens:
    """Tokens of one issuer for one audience."""

    def __init__(self, expected: Expected, keys: Keys) -> None:
        self._expected = expected
        self._keys = keys

    async def principal(self, token: str) -> Principal:
        """The principal of the token; raises Refused with the cause, never with the token."""
        return self.named(await self.claims(token))

    async def claims(self, token: str) -> Mapping[str, Any]:
        """The claims of a valid token; raises Refused."""
        header = _header(token)
        keys = [key for key in await self._keys.named(header.get("kid")) if _fits(key, header)]
        if not keys:
            raise Refused("the issuer publishes no key of that name and kind", "key")
        failed: PyJWTError | None = None
        for key in keys:
            try:
                return self._decoded(token, key)
            except PyJWTError as error:
                failed = error
        assert failed is not None
        raise _refused(failed, self._expected) from None

    def _decoded(self, token: str, key: Key) -> Mapping[str, Any]:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.public,
            algorithms=ALGORITHMS,
            audience=self._expected.audience,
            issuer=self._expected.issuer,
            leeway=LEEWAY,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims

    def named(self, claims: Mapping[str, Any]) -> Principal:
        """The principal whom the claims describe; raises Refused if they name nobody."""
        settings = self._expected
        name = _claim(claims, settings.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise Refused(f"its claim {settings.name_claim!r} names nobody", "claims")
        tenant = _claim(claims, settings.tenant_claim) if settings.tenant_claim else None
        if settings.tenant_claim and not (isinstance(tenant, str) and tenant):
            # Without a tenant its bearer would see the calls of all tenants.
            raise Refused(f"its claim {settings.tenant_claim!r} names no tenant", "claims")
        return Principal(
            name,
            issuer=claims["iss"],
            subject=claims["sub"],
            groups=_texts(_claim(claims, settings.groups_claim)),
            tenant=tenant,
            expires=float(claims["exp"]) + LEEWAY,
        )


def _header(token: str) -> Mapping[str, Any]:
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
    except PyJWTError:
        raise Refused("it is no JSON web token", "malformed") from None
    if header.get("alg") not in ALGORITHMS:
        raise Refused(f"it is not signed with one of {', '.join(ALGORITHMS)}", "malformed")
    return header


def _fits(key: Key, header: Mapping[str, Any]) -> bool:
    """Whether the key can have made a signature of this algorithm."""
    kinds = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
    return key.alg in (None, header["alg"]) and key.kind == kinds[header["alg"][:2]]


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of that name, or the one within objects that its dots name."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _refused(error: PyJWTError, expected: Expected) -> Refused:
    if isinstance(error, MissingRequiredClaimError):
        return Refused(f"it lacks the claim {error.claim!r}", "claims")
    why, reason = _WHY.get(type(error), ("it is malformed", "malformed"))
    return Refused(why.format(expected), reason)
