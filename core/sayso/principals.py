"""Authenticated callers: a name, and the facts about its bearer (design, section 6, "People")."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sayso.config import Config
from sayso.config.auth import AuthSettings, PrincipalKind, PrincipalSettings
from sayso.config.tokens import bearer_tokens


class Principal(str):
    """The name of an authenticated caller, with the proven facts about that caller.

    It is a subclass of str, so it can replace the plain name everywhere. `subject` is the caller's
    name at `issuer`, which vouches for it; without them the plugin's name and the name are used.
    Rules use `groups`, `tenant` and `kind`; `person` is the person to whom the principal belongs.
    `[auth.principals]` and `[auth.people]` add to these facts. `expires` is the time (seconds since
    the epoch) at which the credentials expire; None if they do not say.
    """

    __slots__ = ("expires", "groups", "issuer", "kind", "person", "subject", "tenant")

    expires: float | None
    groups: frozenset[str]
    issuer: str
    kind: PrincipalKind
    person: str | None
    subject: str
    tenant: str | None

    def __new__(
        cls,
        name: str,
        *,
        issuer: str = "",
        subject: str | None = None,
        groups: Iterable[str] = (),
        tenant: str | None = None,
        kind: PrincipalKind = "unknown",
        person: str | None = None,
        expires: float | None = None,
    ) -> Principal:
        """The principal `name`."""
        self = super().__new__(cls, name)
        self.expires = expires
        self.groups = frozenset(groups)
        self.issuer = issuer
        self.subject = str(name) if subject is None else subject
        self.tenant = tenant
        self.kind = kind
        self.person = person
        return self

    @property
    def expired(self) -> bool:
        """Whether the credentials have expired since; connections stay open for longer."""
        return self.expires is not None and time.time() >= self.expires


def is_agent(principal: str | None) -> bool:
    """Whether this principal is an agent; an agent never decides."""
    return isinstance(principal, Principal) and principal.kind == "agent"


def proven_tenant(principal: str | None) -> str | None:
    """The tenant that the credentials prove; None if they prove none."""
    return principal.tenant if isinstance(principal, Principal) else None


def person_of(principal: str | None) -> str | None:
    """The person to whom this principal belongs; None if no setting and no credentials say so."""
    return principal.person if isinstance(principal, Principal) else None


class Directory:
    """The facts of `[auth.principals]` and `[auth.people]` about authenticated callers."""

    def __init__(self, auth: AuthSettings) -> None:
        self._principals = auth.principals
        self._people = {key: person for person, keys in auth.people.items() for key in keys}

    def tokens(self, config: Config) -> dict[Principal, bytes]:
        """The bearer token of each principal, with all facts about it; none with another scheme."""
        if config.auth.scheme != "bearer":
            return {}
        return {
            self.known(Principal(name, groups=token.groups), "bearer"): token.encoded
            for name, token in bearer_tokens(config).items()
        }

    def known(self, principal: str, issuer: str = "") -> Principal:
        """The principal with all known facts about it; `issuer` is its issuer if it has none."""
        given = principal if isinstance(principal, Principal) else Principal(principal)
        said = self._principals.get(str(given)) or PrincipalSettings()
        vouching = given.issuer or issuer
        mapped = self._people.get(f"{vouching}|{given.subject}", given.person)
        kind = given.kind if said.kind == "unknown" else said.kind
        if kind == "unknown" and mapped is not None:
            kind = "person"
        own = str(given) if kind == "person" else None
        return Principal(
            given,
            issuer=vouching,
            subject=given.subject,
            groups=given.groups.union(said.groups),
            tenant=said.tenant or given.tenant,
            kind=kind,
            person=own if mapped is None else mapped,
            expires=given.expires,
        )
