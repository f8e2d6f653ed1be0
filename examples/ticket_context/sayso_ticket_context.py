"""Tells the agent about the tickets that a message names ("OPS-17").

[plugin.ticket_context]
source = "tickets.json"                                # {"OPS-17": {...}, ...}
# or
source = "https://tickets.example.org/api/{id}"        # a JSON document for each ticket
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from sayso import ChatRequest, Duration, Host, Plugin, RequestContext, hookimpl

log = logging.getLogger(__name__)
MOST = 5


class TicketContext(Plugin):
    """Adds each ticket to the system context of the one request that names it."""

    name = "ticket_context"

    class Settings(Plugin.Settings):
        """`[plugin.ticket_context]`."""

        source: str
        """A JSON file of tickets by id, or the address of one ticket with {id} in it."""
        timeout: Duration = 3.0
        """How long the service may take."""

    settings: Settings

    @hookimpl
    async def intercept_request(
        self, request: ChatRequest, context: RequestContext, host: Host
    ) -> None:
        """Look up all tickets at once; those that cannot be had are left out."""
        text = request.messages[-1].content
        ids = list(dict.fromkeys(re.findall(r"\b[A-Z]{2,10}-\d+\b", text)))[:MOST]
        tickets = await asyncio.gather(*(self._ticket(id_, host) for id_ in ids))
        for id_, ticket in zip(ids, tickets, strict=True):
            if ticket is not None:
                context.add_system_context(f"Ticket {id_}: {json.dumps(ticket)}")

    async def _ticket(self, id_: str, host: Host) -> Any:
        source = self.settings.source
        try:
            if "://" in source:
                return await asyncio.to_thread(self._fetched, source.replace("{id}", quote(id_)))
            file = host.config.path("plugin.ticket_context.source", source)
            return await asyncio.to_thread(_read, file, id_)
        except (OSError, HTTPException, ValueError) as error:
            log.warning("ticket %s cannot be had: %s", id_, error)
            return None

    def _fetched(self, url: str) -> Any:
        try:
            with urlopen(url, timeout=self.settings.timeout) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise OSError(f"the service answered {error.code}") from None


def _read(file: Path, id_: str) -> Any:
    tickets = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(tickets, dict):
        raise ValueError(f"{file.name} holds no object of tickets by id")
    return tickets.get(id_)
