"""Where notifications may go: to public addresses and to hosts that the configuration names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

import httpx
from a2a.utils.push_url_validator import validate_push_notification_url


class Screening:
    """Which addresses notifications may go to; `hosts` are trusted although they are not public."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(hosts)

    def trusts(self, host: str) -> bool:
        """Whether the configuration names this host."""
        return host in self._hosts

    async def allows(self, url: str) -> bool:
        """Whether a notification may go to this address, as its name resolves now."""
        try:
            parts = urlsplit(url)
            if parts.username is not None or parts.password is not None:
                return False
            if parts.hostname is not None and self.trusts(parts.hostname):
                return parts.scheme in ("http", "https")
        except ValueError:
            return False
        return bool(await validate_push_notification_url(url))


class ScreenedTransport(httpx.AsyncHTTPTransport):
    """Connects to the very address that was screened: a name can change it meanwhile."""

    def __init__(self, screening: Screening) -> None:
        super().__init__(trust_env=False)
        self._screening = screening

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; raises ConnectError for a host that is not public."""
        host = request.url.host
        if self._screening.trusts(host):
            return await super().handle_async_request(request)
        address = await _resolved(host, request.url.port or 443)
        shown = f"[{address}]" if ":" in address else address
        if not await self._screening.allows(f"{request.url.scheme}://{shown}/"):
            raise httpx.ConnectError(f"{host!r} is no public address", request=request)
        request.extensions = {**request.extensions, "sni_hostname": host}
        # The header `Host` stays as the name has it.
        request.url = request.url.copy_with(host=address)
        return await super().handle_async_request(request)


async def _resolved(host: str, port: int) -> str:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def notifying_client(screening: Screening) -> httpx.AsyncClient:
    """The client that posts notifications; it follows no redirect and asks no proxy."""
    transport = ScreenedTransport(screening)
    return httpx.AsyncClient(
        transport=transport, timeout=10.0, follow_redirects=False, trust_env=False
    )
