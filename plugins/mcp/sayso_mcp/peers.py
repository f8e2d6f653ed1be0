"""The callers, and what is remembered for as long as a client's session lives."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from sayso import Caller, Session

MOST = 10_000
"""Most sessions, or callers, remembered at once; the same bound as the SDK's own."""
IDLE = 1800.0
"""Seconds after which a silent session is forgotten, as in the SDK."""

Context = ServerRequestContext[Any, Any]
T = TypeVar("T")


@dataclass(slots=True, eq=False, weakref_slot=True)
class Peer:
    """One client session."""

    session: Session = field(default_factory=Session)
    asked: dict[str, list[str]] = field(default_factory=dict)
    """For each request whose person is being asked, its calls."""


class Remembered(Generic[T]):
    """Values by name, made on first use and forgotten when idle."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._known: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, key: str) -> T:
        """The value of `key`, made if there is none."""
        now = time.monotonic()
        while self._known:
            first, (seen, _) = next(iter(self._known.items()))
            if len(self._known) <= MOST and now - seen < IDLE:
                break
            del self._known[first]
        known = self._known.pop(key, None)
        found = self._make() if known is None else known[1]
        self._known[key] = now, found
        return found


Peers = Remembered[Peer]
"""The sessions of a transport whose requests name their session."""


def is_modern(context: Context) -> bool:
    """Whether the request is of the stateless era, from 2026-07-28 on."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def peer_of(context: Context) -> Peer:
    """The client session of a request; each stateless request over HTTP gets one of its own."""
    known: Peer | Peers = context.lifespan_context
    if isinstance(known, Peer):
        return known
    id_ = None if context.request is None else context.request.headers.get("mcp-session-id")
    return Peer() if id_ is None or is_modern(context) else known.get(id_)


def caller_of(context: Context) -> Caller:
    """The caller as the ledger records it: the principal, the address, the client's own name."""
    client = None if context.request is None else context.request.client
    address = None if client is None else client.host
    return Caller("mcp", principal_of(context), address, client=_client(context))


def principal_of(context: Context) -> str | None:
    """The authenticated principal; None if the service requires no authentication."""
    if context.request is None:
        return None
    principal: str | None = context.request.scope.get("sayso.principal")
    return principal


def _client(context: Context) -> str | None:
    params = context.session.client_params
    if params is None:
        return None
    text = f"{params.client_info.name} {params.client_info.version}".strip()
    return "".join(c if c.isprintable() else "?" for c in text)[:200]
