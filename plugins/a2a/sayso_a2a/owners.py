"""The owner of a task as stores have it: the principal's name, with its tenant if it has one."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, unquote

from sayso import Principal, Subject

_MARK = "\x1f"
Owned = Callable[[str], bool]
"""Whether an owner is meant."""


def owner_of(principal: str | None) -> str:
    """The owner of the tasks of this principal; empty without authentication."""
    name, tenant = str(principal or ""), _tenant(principal)
    if tenant is None and not name.startswith(_MARK):
        return name
    # Two tenants may have principals of one name.
    return f"{_MARK}{quote(tenant or '', errors='surrogatepass')}{_MARK}{name}"


def principal_of(owner: str) -> str | None:
    """The principal whose tasks have this owner; None without authentication."""
    if not owner.startswith(_MARK):
        return owner or None
    tenant, _, name = owner[1:].partition(_MARK)
    return Principal(name, tenant=unquote(tenant, errors="surrogatepass") or None)


def belongs_to(subject: Subject) -> Owned:
    """Whether tasks of an owner are those of the principal, or of the tenant."""

    def belongs(owner: str) -> bool:
        principal = principal_of(owner)
        if subject.tenant is not None:
            return _tenant(principal) == subject.tenant
        return principal is not None and principal == subject.principal

    return belongs


def _tenant(principal: str | None) -> str | None:
    return principal.tenant if isinstance(principal, Principal) else None
