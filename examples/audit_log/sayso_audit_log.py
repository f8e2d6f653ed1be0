"""Writes all proposals, decisions and runs to a file, one JSON object a line.

[plugin.audit_log]
file = "/var/log/sayso/audit.jsonl"
messages = true                       # what was said, too
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

from sayso import AgentEvent, Host, MessageAdded, Plugin, hookimpl


class AuditLog(Plugin):
    """A sink of the agent's events."""

    name = "audit_log"

    class Settings(Plugin.Settings):
        """`[plugin.audit_log]`."""

        file: str = "audit.jsonl"
        """The file to write; relative to the configuration file."""
        messages: bool = False
        """Write messages as well; they may contain data that must not be kept."""

    settings: Settings

    @hookimpl
    @asynccontextmanager
    async def resources(self, host: Host) -> AsyncIterator[None]:
        """Hold the file open for the service's life, readable for its user alone."""
        path = host.config.path("plugin.audit_log.file", self.settings.file)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            yield
        finally:
            os.close(self._file)

    @hookimpl
    def on_event(self, event: AgentEvent) -> None:
        """Append one line; a single write, so that lines of several processes do not mix."""
        if self.settings.messages or not isinstance(event, MessageAdded):
            os.write(self._file, _line(event))


def _line(event: AgentEvent) -> bytes:
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    document = {"event_type": event.event_type, **values}
    return json.dumps(document, default=_plain).encode() + b"\n"


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
