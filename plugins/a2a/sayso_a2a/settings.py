"""`[plugin.a2a]`: what the agent-to-agent endpoints can be told."""

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from sayso import Duration, Host, Plugin
from sayso_a2a.rows import Rows, TaskStore

_URL = re.compile(r"https?://[^?#\s]+")
_NAME = re.compile(r"[\w.-]+", re.ASCII)


class Settings(Plugin.Settings):
    """The keys of `[plugin.a2a]`."""

    adapter: str = "simple"
    """Which implementation serves: "simple", "a2a", "both", or a name of the entry-point group
    `sayso.a2a_adapters`."""
    agent_card: dict[str, Any] | None = None
    """Fields of the agent card that stand in place of the generated ones."""
    legacy_card: bool = False
    """Give everybody the official card with the fields of 0.3, which 1.0's schema does not know;
    else only those get them who ask with the header `A2A-Version: 0.3`."""
    url: str | None = None
    """The service's public address, for the cards; absent: as each request names it."""
    trust_forwarded: bool = False
    """Believe the X-Forwarded-* headers when a card names the address; only behind a proxy."""
    task_ttl: Annotated[Duration, Field(gt=0)] = 24 * 3600.0
    """How long a task is kept after its last change."""
    max_tasks: Annotated[int, Field(ge=1)] = 10_000
    """Most tasks that are kept; the oldest go first."""
    database: str | None = None
    """SQLAlchemy address of the official SDK's task store, for several machines."""
    push_notifications: bool = False
    """Let callers of the official protocol have changes of a task posted to an address."""
    push_hosts: list[str] = []
    """Hosts that notifications may go to although their address is not public."""
    extended_card: dict[str, Any] | None = None
    """Fields that the card for authenticated callers has beside the public ones."""
    options: dict[str, Any] = {}
    """Free settings for an adapter of another distribution."""

    @field_validator("url")
    @classmethod
    def _as_cards_state_it(cls, url: str | None) -> str | None:
        if url is not None and not _URL.fullmatch(url):
            raise ValueError("expected an address such as 'https://agents.example/kube'")
        return url

    @field_validator("push_hosts")
    @classmethod
    def _as_addresses_name_them(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            try:
                _NAME.fullmatch(host) or ip_address(host)
            except ValueError:
                raise ValueError("expected names such as 'hooks.example', without a port") from None
        return [host.lower() for host in hosts]


def task_store(host: Host, adapter: str, settings: Settings) -> TaskStore:
    """Where the tasks of an adapter are kept: where the ledger is, in PostgreSQL, a file or
    memory."""
    ledger = host.config.approvals.ledger or ""
    if ledger.startswith("postgresql:"):
        from sayso_a2a.postgres_rows import PostgresRows

        return PostgresRows(adapter, ledger, ttl=settings.task_ttl, most=settings.max_tasks)
    return Rows(adapter, task_file(host), ttl=settings.task_ttl, most=settings.max_tasks)


def task_file(host: Host) -> Path | None:
    """The file that tasks are kept in; None while the ledger is in memory too."""
    if (host.config.approvals.ledger or "").startswith("memory:"):
        return None
    return host.state_dir / "a2a-tasks.db"
