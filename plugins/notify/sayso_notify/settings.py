"""`[plugin.notify]`: the channels, by their kind and name."""

# Without `from __future__ import annotations`, whose texts pydantic compiles at each start.

import re
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from sayso import Duration, Plugin
from sayso_notify.notices import ALL, fits

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_ADDRESS = re.compile(r"https?://[^\s/][^\s]*")


class ChannelSettings(Plugin.Settings):
    """The keys that all channels have."""

    events: list[str] = ["*"]
    """The types of notices that the channel sends, such as "approval.*"."""
    tools: list[str] = ["*"]
    """The tools whose calls it is for, such as "restart_*"."""
    reminders: bool = True
    """Whether it reminds at a third and at two thirds of the time that a call may wait."""
    after: Duration | None = Field(default=None, gt=0)
    """For an escalation: the channel hears only of calls that are still pending after this time."""
    inputs: list[str] = []
    """The fields of inputs that leave with a notice; without a name here no value does."""

    @field_validator("events")
    @classmethod
    def _are_known(cls, given: list[str]) -> list[str]:
        for pattern in given:
            if not any(fits([pattern], each) for each in ALL):
                raise ValueError(f"no notice has the type {pattern!r}; there are {', '.join(ALL)}")
        return given


class HookSettings(ChannelSettings):
    """The keys of channels that post to an address."""

    url: SecretStr
    """The address, or "env:NAME". It begins with "https://"; "http://" is for hosts in `hosts`."""
    hosts: list[str] = []
    """Hosts that may be posted to although their addresses are not public."""


class WebhookSettings(HookSettings):
    """`[plugin.notify.webhooks.NAME]`: an address that gets signed JSON (Standard Webhooks)."""

    secret: SecretStr
    """The key of the signatures: "whsec_" and 24 to 64 bytes in base64, or "env:NAME"."""
    old_secret: SecretStr | None = None
    """The key before this one: while it is here, each notice carries both signatures."""
    format: Literal["standard", "cloudevents"] = "standard"
    """The form of the body: that of Standard Webhooks, or a CloudEvent 1.0."""


class TeamsSettings(HookSettings):
    """`[plugin.notify.teams.NAME]`: a workflow of Microsoft Teams that posts a card with a link."""

    events: list[str] = ["approval.requested", "approval.reminder", "approval.escalated"]
    """The types of notices that the channel sends."""


class MailSettings(ChannelSettings):
    """`[plugin.notify.mail.NAME]`: e-mail by SMTP."""

    events: list[str] = [
        "approval.requested",
        "approval.reminder",
        "approval.escalated",
        "approval.expired",
    ]
    """The types of notices that go to `to`."""
    host: str
    """The mail server."""
    port: int = Field(default=587, ge=1, le=65535)
    """Its port."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """How the connection is encrypted: from a command on, from its beginning, or not."""
    user: str | None = None
    """The name to log in with; absent: no login."""
    password: SecretStr | None = None
    """Its password, or "env:NAME"."""
    sender: str
    """The address that notices come from."""
    to: list[str] = Field(min_length=1)
    """The addresses that are told."""
    requesters: dict[str, str] = {}
    """The addresses of those who ask, by the names of principals and persons: they are told of the
    decision, the outcome, and that a call has expired."""


class Settings(Plugin.Settings):
    """`[plugin.notify]`."""

    page: str | None = None
    """The address of the page where people decide, such as "https://agent.example.com/console":
    notices link to it."""
    webhooks: dict[str, WebhookSettings] = {}
    """Addresses that get signed JSON: [plugin.notify.webhooks.NAME]."""
    mail: dict[str, MailSettings] = {}
    """E-mail: [plugin.notify.mail.NAME]."""
    teams: dict[str, TeamsSettings] = {}
    """Workflows of Microsoft Teams: [plugin.notify.teams.NAME]."""

    @field_validator("page")
    @classmethod
    def _as_browsers_open_it(cls, given: str | None) -> str | None:
        if given is not None and not _ADDRESS.fullmatch(given):
            raise ValueError("expected an address such as 'https://agent.example.com/console'")
        return given

    @field_validator("webhooks", "mail", "teams")
    @classmethod
    def _have_names(cls, given: dict[str, object]) -> dict[str, object]:
        if not all(_NAME.fullmatch(name) for name in given):
            raise ValueError("expected names of small letters, digits, '-' and '_'")
        return given
