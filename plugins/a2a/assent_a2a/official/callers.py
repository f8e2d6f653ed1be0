"""Who calls, as the SDK takes it, and which version of the protocol they speak."""

from __future__ import annotations

from a2a.auth.user import User
from a2a.server.context import ServerCallContext


class Principal(User):
    """The authenticated caller, to whom tasks belong; without authentication there is one."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        """Whether somebody vouched for the caller."""
        return self._name is not None

    @property
    def user_name(self) -> str:
        """The principal's name; empty without authentication."""
        return self._name or ""


def speaks_0_3(context: ServerCallContext) -> bool:
    """Whether the call is one of A2A 0.3, which says no version or this one."""
    version: str = context.state["headers"].get("a2a-version", "").strip()
    return not version or version.startswith("0.")
