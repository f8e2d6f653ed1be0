"""How an adapter reaches its provider, from the settings that its factory is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

import httpx2

from sayso.models.access import PLAIN, REPLY, bounded

FIRST_BYTE = 10
"""The default of `first_byte_timeout`, as a multiple of `timeout`."""


@dataclass(frozen=True, slots=True, repr=False)
class Connection:
    """The settings of `[model]` and `[model.options]` for a connection (`settings` of a factory).

    `timeout` limits the silence between two pieces of an answer, `first_byte_timeout` the wait for
    the first one, both in seconds; `retries` limits further calls before the first piece.
    `extra_body` is added to each request, `omit` names the fields to leave out of it.
    """

    base_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    effort: str = ""
    key_header: str = ""
    retries: int = 2
    timeout: float = 60.0
    first_byte_timeout: float = 600.0
    connect_timeout: float = 10.0
    reply: int = REPLY

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Connection:
        """The connection that a factory's settings describe."""
        names = cls.__dataclass_fields__.keys() & settings.keys()
        given = {name: settings[name] for name in names if settings[name] is not None}
        given["omit"] = tuple(given.get("omit", ()))
        given["timeout"] = float(given.get("timeout", 60.0))
        given.setdefault("first_byte_timeout", FIRST_BYTE * given["timeout"])
        return cls(**given)

    def client(self, trusted: SSLContext, **headers: str) -> dict[str, Any]:
        """The arguments of an HTTP client: certificates, time limits, `headers` and bounds."""
        longest = max(self.first_byte_timeout, self.timeout)
        return {
            "verify": trusted,
            "timeout": httpx2.Timeout(longest, connect=min(longest, self.connect_timeout)),
            "headers": {**PLAIN, **self.headers, **headers},
            # The whole conversation would go to another address than the configured one.
            "follow_redirects": False,
            "event_hooks": bounded(self.reply, self.timeout),
            "limits": httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
        }
