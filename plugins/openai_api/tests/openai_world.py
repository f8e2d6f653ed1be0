"""A service with the OpenAI-compatible endpoint, and its client from OpenAI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI

from sayso import Call
from sayso.testing import Service

CONFIG = 'plugins = ["openai_api", "v2", "console"]\n[server]\nhost = "127.0.0.1"\n'


@dataclass
class World:
    """A service, its client, and what its tool has deleted."""

    service: Service
    client: OpenAI
    model: Any
    deleted: list[str] = field(default_factory=list)

    def decide(self, id: str, *, approve: bool, reason: str = "no") -> None:
        """What a person does on the page."""
        body = {"approve": approve} | ({} if approve else {"reason": reason})
        headers = {"Origin": self.service.url}
        answer = self.service.post(f"/console/approvals/{id}", body, headers)
        assert answer.status == 200, answer.text

    def waiting(self) -> list[str]:
        """The ids of what waits, as the page lists them."""
        listed = self.service.get("/console/approvals", {"Sec-Fetch-Site": "same-origin"})
        return [one["id"] for one in listed.json()["approvals"]]


Start = Callable[..., World]


def deletion(*names: str) -> list[Call]:
    """A step of the model that asks for these deletions."""
    return [Call(f"call_{n}", "delete", {"name": name}) for n, name in enumerate(names)]
