"""A service with the OpenAI-compatible endpoint, and its client from OpenAI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI

from sayso import Call, Caller
from sayso.testing import Service

CONFIG = 'plugins = ["openai_api", "v2", "console"]\n[server]\nhost = "127.0.0.1"\n'


ELSEWHERE = Caller("console")


@dataclass
class World:
    """A service, its client, and what its tool has deleted."""

    service: Service
    client: OpenAI
    model: Any
    deleted: list[str] = field(default_factory=list)

    def decide(self, id: str, *, approve: bool, reason: str = "no") -> None:
        """Decide as a person on another surface, such as the console."""
        calls = self.service.host.calls
        why = None if approve else reason
        asyncio.run(calls.decide(id, ELSEWHERE, approved=approve, reason=why, run=False))

    def waiting(self) -> list[str]:
        """The ids of the pending calls, as the console lists them."""
        page = asyncio.run(self.service.host.calls.pending(ELSEWHERE))
        return [row.id for row in page.calls]


Start = Callable[..., World]


def deletion(*names: str) -> list[Call]:
    """A step of the model that asks for these deletions."""
    return [Call(f"call_{n}", "delete", {"name": name}) for n, name in enumerate(names)]
