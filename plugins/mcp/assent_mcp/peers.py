"""What lives as long as a client's session: its `Session`, and its calls that wait."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from assent import Caller, Session

MOST = 10_000
"""Sessions that are remembered at once; the same bound as the SDK's own."""
IDLE = 1800.0
"""Seconds after which a silent session is forgotten, as the SDK does."""

Context = ServerRequestContext[Any, Any]


@dataclass(slots=True)
class Peer:
    """One client session. `waiting` maps a call's digest to the proposal that waits for it."""

    session: Session = field(default_factory=Session)
    waiting: dict[str, str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    seen: float = 0.0


class Peers:
    """The sessions of a transport whose requests name theirs."""

    def __init__(self) -> None:
        self._peers: OrderedDict[str, Peer] = OrderedDict()

    def get(self, key: str) -> Peer:
        """The session `key`, made at its first request."""
        now = time.monotonic()
        while self._peers:
            first, peer = next(iter(self._peers.items()))
            if len(self._peers) <= MOST and now - peer.seen < IDLE:
                break
            del self._peers[first]
        found = self._peers.pop(key, None) or Peer()
        found.seen = now
        self._peers[key] = found
        return found


def is_modern(context: Context) -> bool:
    """Whether the request is of the stateless era, from 2026-07-28 on."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def peer_of(context: Context, caller: Caller) -> Peer:
    """The client session of a request.

    A stateless request over HTTP has a `Session` of its own; calls that wait are found again by
    who asks.
    """
    known: Peer | Peers = context.lifespan_context
    if isinstance(known, Peer):
        return known
    id_ = None if context.request is None else context.request.headers.get("mcp-session-id")
    if id_ is not None and not is_modern(context):
        return known.get(f"session {id_}")
    same = known.get(f"stateless {caller.principal!r} {caller.address!r} {caller.client!r}")
    return Peer(waiting=same.waiting, lock=same.lock)


def caller_of(context: Context) -> Caller:
    """Who calls, as the ledger records it: the principal, the address, the client's own name."""
    principal = address = None
    if context.request is not None:
        principal = principal_of(context)
        if context.request.client is not None:
            address = context.request.client.host
    return Caller("mcp", principal, address, client=_client(context))


def principal_of(context: Context) -> str | None:
    """The authenticated principal; None where nobody asks for one."""
    if context.request is None:
        return None
    principal: str | None = context.request.scope.get("assent.principal")
    return principal


def _client(context: Context) -> str | None:
    params = context.session.client_params
    if params is None:
        return None
    text = f"{params.client_info.name} {params.client_info.version}".strip()
    return "".join(c if c.isprintable() else "?" for c in text)[:200]
