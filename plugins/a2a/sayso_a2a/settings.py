"""`[plugin.a2a]`: the settings of the agent-to-agent endpoints."""

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from sayso import Duration, Host, Plugin
from sayso_a2a.rows import Rows, TaskStore

_URL = re.compile(r"https?://[^?#\s]+")
_NAME = re.compile(r"[\w.-]+", re.ASCII)


Approvals = Literal["client", "inbox", "deny"]


class Signing(Plugin.Settings):
    """The keys of `[plugin.a2a.signing]`."""

    key: Path
    """File with the private key, in PEM, of which others have the public one."""
    kid: str
    """The name of the key in the header of the signature."""
    jku: str | None = None
    """Address of the public keys (JWKS), stated in the header of the signature; absent: this
    service's own, `/.well-known/jwks.json`."""


class Settings(Plugin.Settings):
    """The keys of `[plugin.a2a]`."""

    adapter: str = "simple"
    """The implementation: "simple", "a2a", "both", or a name of the entry-point group
    `sayso.a2a_adapters`."""
    agent_card: dict[str, Any] | None = None
    """Fields of the agent card that replace the generated ones."""
    approvals: Approvals = "client"
    """The approver of gated calls. "client": the caller, by a message on the task; "inbox": only a
    person on the page, by the API or at the command line; "deny": nobody, so gated calls do not
    run over A2A."""
    url: str | None = None
    """The service's public address, for the cards; by default as each request names it."""
    trust_forwarded: bool = False
    """Trust the X-Forwarded-* headers when a card names the address; only behind a proxy."""
    task_ttl: Annotated[Duration, Field(gt=0)] = 24 * 3600.0
    """How long a task is kept after its last change."""
    max_tasks: Annotated[int, Field(ge=1)] = 10_000
    """Most tasks that are kept; the oldest are deleted first."""
    database: str | None = None
    """SQLAlchemy address of the official SDK's task store, for several machines."""
    push_notifications: bool = False
    """Whether callers of the official protocol may have changes of a task posted to an address."""
    push_hosts: list[str] = []
    """Hosts that notifications may go to although their address is not public."""
    extended_card: dict[str, Any] | None = None
    """Fields that only the card for authenticated callers has."""
    grpc_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """TCP port for the official protocol over gRPC; absent: it is not served, 0: a free one."""
    grpc_url: str | None = None
    """Address for gRPC in the cards, such as "agents.example:443"; absent: the host that the
    request names, with `grpc_port`."""
    signing: Signing | None = None
    """How cards and notifications of the official protocol are signed; absent: they are not."""
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


TASK_FILE = "a2a-tasks.db"


def task_store(host: Host, adapter: str, settings: Settings) -> TaskStore:
    """The store for an adapter's tasks: PostgreSQL if the ledger is there, a file or memory."""
    ledger = host.config.approvals.ledger or ""
    if ledger.startswith("postgresql:"):
        from sayso_a2a.postgres_rows import PostgresRows

        return PostgresRows(adapter, ledger, ttl=settings.task_ttl, most=settings.max_tasks)
    return Rows(adapter, task_file(host), ttl=settings.task_ttl, most=settings.max_tasks)


def task_file(host: Host) -> Path | None:
    """The file of the tasks; None if the ledger is in memory, too."""
    if (host.config.approvals.ledger or "").startswith("memory:"):
        return None
    return host.state_dir / TASK_FILE
