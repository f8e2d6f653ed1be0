"""`[plugin.oidc]`."""

# Without `from __future__ import annotations`, whose texts pydantic compiles at each start.

from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from sayso import Duration, Plugin
from sayso_jwt.web import is_safe


class OidcSettings(Plugin.Settings):
    """`[plugin.oidc]`: this service as a client of the identity provider, whose address and claims
    are in [auth.jwt]."""

    client_id: str | None = None
    """The id of this service at the provider; ID tokens must be for this audience."""
    client_secret: SecretStr | None = None
    """The secret of this service at the provider, or "env:NAME"; absent for a public client."""
    url: str | None = None
    """The address at which browsers reach this service, such as "https://agent.example.com".
    Register its /login/callback at the provider. Needed unless the service is on a loopback
    address."""
    name: str | None = None
    """The name of the provider on the button "Sign in with ..."; absent: the host of the issuer."""
    scopes: list[str] = ["openid", "profile", "email"]
    """The scopes that the provider is asked for."""
    session: Duration = Field(default=28_800.0, ge=60, le=604_800)
    """The time after which people have to sign in again, at most 7 days."""

    @field_validator("url")
    @classmethod
    def _is_safe(cls, given: Any) -> Any:
        parts = urlsplit(given or "")
        if given is not None and (not is_safe(given) or parts.query or parts.fragment):
            raise ValueError("expected an address that begins with 'https://'")
        return given and given.rstrip("/")

    @field_validator("scopes")
    @classmethod
    def _is_openid(cls, given: list[str]) -> list[str]:
        if "openid" not in given:
            raise ValueError("expected 'openid' among the scopes")
        return given
