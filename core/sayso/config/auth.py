"""`[auth]`: the callers that the service accepts, and the facts about each of them.

`[auth.principals]` and `[auth.people]` apply to every scheme; `[auth.jwt]` and `[auth.proxy]` each
apply to the scheme of that name (design, section 6, "People").
"""

# Without `from __future__ import annotations`, whose texts pydantic compiles at each start.

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from sayso.config.settings import Section

PrincipalKind = Literal["person", "service", "agent", "unknown"]
"""The kinds of principals; a principal is unknown until a setting or its credentials state its
kind."""


class PrincipalSettings(Section):
    """`[auth.principals.NAME]`: the facts about the principal of that name."""

    groups: list[str] = []
    """The groups of the principal, beside those that its credentials prove."""
    tenant: str | None = None
    """The tenant of the principal; it replaces the tenant that a request claims."""
    kind: PrincipalKind = "unknown"
    """A "person", a "service" or an "agent"; an agent never decides. A principal of kind "person"
    belongs to the person of its own name, unless [auth.people] names another one."""


class JwtSettings(Section):
    """`[auth.jwt]`: the issuer whose tokens `scheme = "jwt"` accepts and at which people sign in
    with the plugin `oidc`, and the claims that describe them."""

    issuer: str | None = None
    """The issuer of the tokens, exactly as their claim `iss` has it."""
    audience: str | None = None
    """The audience that the tokens must be for: the name of this service at the issuer."""
    jwks: str | None = None
    """The public keys of the issuer (JWKS): a file, or an address that begins with "https://"."""
    name_claim: str = "sub"
    """The claim with the name of the principal; the issuer must never give this name to anybody
    else."""
    groups_claim: str = "groups"
    """The claim with the groups of the principal; dots lead into objects."""
    tenant_claim: str | None = None
    """The claim with the tenant of the principal; if absent, tokens state no tenant."""


class ProxySettings(Section):
    """`[auth.proxy]`: the proxy that has authenticated the caller, for `scheme = "proxy"`."""

    addresses: list[str] = []
    """The addresses of the proxy, or networks such as "10.0.0.0/28"; headers from any other address
    are ignored."""
    user_header: str = "X-Forwarded-User"
    """The header with the name of the caller, which the proxy has to set or to remove."""
    groups_header: str | None = None
    """The header with the groups of the caller, separated by commas, which the proxy has to set or
    to remove; if absent, no header states groups."""

    @field_validator("addresses")
    @classmethod
    def _are_addresses(cls, given: list[str]) -> list[str]:
        for one in given:
            try:
                ipaddress.ip_network(one)
            except ValueError:
                raise ValueError(
                    "expected addresses such as '10.0.0.5' or networks such as '10.0.0.0/28'"
                ) from None
        return given


class AuthSettings(Section):
    """`[auth]`: who may call."""

    scheme: Literal["none", "bearer", "jwt", "proxy"] = "none"
    """"none": everyone may call. "bearer": callers need one of the named tokens. "jwt": they need
    a token of the issuer in [auth.jwt]. "proxy": the service trusts the headers of the proxy in
    [auth.proxy]."""
    tokens_file: Path | None = None
    """File with one token a line: `name = token`, `name = env:NAME`, or `name [group, group] =
    token`. A `#`, first or after a space, begins a comment."""
    tokens: dict[str, SecretStr] = {}
    """Tokens by the name of their principal; "env:NAME" takes one from the environment."""
    principals: dict[str, PrincipalSettings] = {}
    """Facts about principals, by their names: [auth.principals.NAME]."""
    people: dict[str, list[str]] = {}
    """Persons, each with the principals that belong to them: "bearer|alice", "proxy|alice",
    "https://issuer|subject"."""
    auditors: list[str] = []
    """Groups whose members may read the whole log."""
    jwt: JwtSettings = Field(default_factory=JwtSettings)
    """The issuer whose tokens the service accepts."""
    proxy: ProxySettings = Field(default_factory=ProxySettings)
    """The proxy whose headers the service trusts."""

    @field_validator("people")
    @classmethod
    def _each_is_one_person(cls, given: dict[str, list[str]]) -> dict[str, list[str]]:
        owners: dict[str, str] = {}
        for person, keys in given.items():
            for key in keys:
                if not all(part.strip() for part in key.partition("|")):
                    raise ValueError(
                        "expected principals such as 'bearer|alice' or 'https://issuer|subject'"
                    )
                if (owner := owners.setdefault(key, person)) != person:
                    raise ValueError(f"one principal is both {owner!r} and {person!r}")
        return given

    @model_validator(mode="after")
    def _scheme_is_complete(self) -> "AuthSettings":
        if self.scheme == "jwt":
            needed = ("issuer", "audience", "jwks")
            if lacking := [name for name in needed if not getattr(self.jwt, name)]:
                raise ValueError(f"scheme 'jwt' needs {', '.join(lacking)} in [auth.jwt]")
        if self.scheme == "proxy" and not self.proxy.addresses:
            raise ValueError("scheme 'proxy' needs the proxy's addresses in [auth.proxy]")
        return self
