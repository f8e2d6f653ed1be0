"""The addresses that notifications may go to: public ones, and the hosts that a setting names.

Callers and settings state addresses to which the service posts. Without this check, one of them
could make the service send requests into the network behind it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit


class Screening:
    """Decides which addresses notifications may go to; `hosts` are trusted without being public."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        self._hosts = frozenset(host.strip("[]").lower() for host in hosts)

    def trusts(self, host: str) -> bool:
        """Whether a setting names this host."""
        return host.lower() in self._hosts

    async def allows(self, url: str) -> bool:
        """Whether a notification may go to this address; a host name is resolved now."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or not host:
            return False
        if parts.username is not None or parts.password is not None:
            return False
        try:
            return self.trusts(host) or all(map(is_public, await _resolved(host, port or 443)))
        except (OSError, UnicodeError):
            return False

    async def pin(self, request: Any) -> None:
        """Have a request, of httpx or httpx2, connect to the very address that was checked: its
        host name might resolve to another one by then.

        The `Host` header and the certificate's name stay those of the host. Raises ConnectionError
        for a host that is not public, OSError for an unknown one.
        """
        host = request.url.host
        if self.trusts(host):
            return
        address = (await _resolved(host, request.url.port or 443))[0]
        shown = f"[{address}]" if ":" in address else address
        if not await self.allows(f"{request.url.scheme}://{shown}/"):
            raise ConnectionError(f"{host!r} is no public address, and no setting names this host")
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)


_NAT64 = [ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48")]


def is_public(address: str) -> bool:
    """Whether an address is public, and so are the addresses that gateways translate it to."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return _is_global(ip)
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    # The last 32 bits: of a NAT64 address, and of the old form "::127.0.0.1".
    last = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    if any(ip in net for net in _NAT64) or int(ip) >> 32 == 0:
        inner.append(last)
    found = [each for each in inner if each is not None]
    return all(map(_is_global, found)) if found else _is_global(ip)


def _is_global(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


async def _resolved(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]
