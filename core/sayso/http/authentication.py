"""Authentication: plugins' hooks, tokens, proxies and tickets name the caller."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import parse_qs

from sayso.config.auth import ProxySettings
from sayso.errors import AgentError, LedgerUnavailable, RequestError, TurnError, Unauthenticated
from sayso.host import ServiceHost
from sayso.hosting import Host
from sayso.http.sockets import BEARER
from sayso.http.tickets import redeemed
from sayso.plugins.implementations import Impl
from sayso.principals import Principal
from sayso.wire.masking import Secrets, hide

PATIENCE = 30.0
"""Seconds that a plugin may take to identify the caller."""
Name = TypeVar("Name", bound=str)
_Pairs = Iterable[tuple[str, str]]


async def authenticate(
    host: Host, scope: Mapping[str, Any], protocol: str = ""
) -> Principal | None:
    """The principal of a request, from the plugins' hooks, then `[auth]`.

    None if credentials are not required. Raises Unauthenticated if they are required and nothing
    recognises the caller, and AgentError if a hook fails; observers see either. `protocol` is the
    plugin that asks; without it the path says that.
    """
    # Plugins see the host as its documented protocol; only the core makes one.
    assert isinstance(host, ServiceHost)
    try:
        return await _identified(host, scope)
    except (RequestError, TurnError) as error:
        report_refused(host, scope, error, protocol)
        raise


def report_refused(
    host: ServiceHost, scope: Mapping[str, Any], error: Exception, protocol: str = ""
) -> None:
    """Tell the observers that this request was refused because of `error`."""
    reason = getattr(error, "reason", "")
    if isinstance(error, TurnError):
        reason = "unavailable" if isinstance(error, LedgerUnavailable) else "failed"
    client = scope.get("client")
    address = client[0] if client else None
    asked = protocol or host.owners.of(path_of(scope)) or "service"
    host.refused(asked, reason, address)


def path_of(scope: Mapping[str, Any]) -> str:
    """The path as the router sees it: without the prefix of an app that mounts this one."""
    path, root = str(scope.get("path", "")), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


async def _identified(host: ServiceHost, scope: Mapping[str, Any]) -> Principal | None:
    hooks = host.plugins.implementations("authenticate")
    scheme = host.config.auth.scheme
    if not hooks and scheme == "none":
        return None
    pairs = [
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, value in scope["headers"]
    ]
    if scope["type"] == "websocket":
        if ticket := _ticket(scope):
            return await redeemed(host, ticket)
        pairs += _of_subprotocol(pairs)
    if [name for name, _ in pairs].count("authorization") > 1:
        # A proxy before this service may have looked at the other header.
        raise Unauthenticated("there is more than one 'Authorization' header", "malformed")
    headers = dict(pairs)
    for impl in hooks:
        if (principal := await _said(impl, headers, scope, host)) is not None:
            return host.directory.known(principal, impl.plugin)
    match scheme:
        case "bearer":
            return bearer(host.tokens, headers.get("authorization", ""))
        case "proxy":
            return host.directory.known(proxied(host.config.auth.proxy, scope, pairs))
        case "jwt":
            raise _no_token(headers.get("authorization", ""))
    raise Unauthenticated(reason="wrong" if "authorization" in headers else "missing")


async def _said(
    impl: Impl, headers: Mapping[str, str], scope: Mapping[str, Any], host: ServiceHost
) -> str | None:
    """The name that a plugin gives to the caller; None if the plugin does not know it."""
    bound = impl.bound(headers=headers, scope=scope, host=host)
    try:
        async with asyncio.timeout(PATIENCE):
            principal = await host.code.call(bound)
    except (RequestError, TurnError):
        raise
    except Exception as error:
        failed = AgentError(f"plugin {impl.plugin!r} could not say who calls")
        # A lookup by token would fail with the token in its error text.
        given = headers.get("authorization", "")
        hide(failed, Secrets.of([given, given.partition(" ")[2]]))
        raise failed from error
    if principal is None or (isinstance(principal, str) and principal.strip()):
        return principal
    # False or an empty name were hardly meant to admit the caller.
    raise AgentError(
        f"plugin {impl.plugin!r} returned a name for the caller that is no text, or empty"
    )


def bearer(tokens: Mapping[Name, bytes], header: str) -> Name:
    """The principal whose token the `Authorization` header carries; raises Unauthenticated."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise _no_token(header)
    given = token.strip().encode("utf-8", "surrogateescape")
    found: Name | None = None
    for name, known in tokens.items():
        # Compare every token, so that the time does not show which one is close.
        if hmac.compare_digest(known, given):
            found = name
    if found is None:
        raise Unauthenticated("the bearer token is not valid", "wrong")
    return found


def _no_token(header: str) -> Unauthenticated:
    needed = "a bearer token is needed: 'Authorization: Bearer TOKEN'"
    return Unauthenticated(needed, "malformed" if header else "missing")


def proxied(settings: ProxySettings, scope: Mapping[str, Any], pairs: _Pairs) -> Principal:
    """The principal that a trusted proxy names in its headers; raises Unauthenticated."""
    client = scope.get("client")
    if client is None or not _is_among(client[0], tuple(settings.addresses)):
        words = "requests come through the proxy in [auth.proxy]; this one did not"
        raise Unauthenticated(words, "proxy")
    names = _values(pairs, settings.user_header)
    if len(names) != 1 or not names[0].strip():
        words = f"the proxy did not name one caller in {settings.user_header!r}"
        raise Unauthenticated(words, "missing")
    given = _values(pairs, settings.groups_header) if settings.groups_header else []
    groups = {part.strip() for value in given for part in value.split(",")} - {""}
    return Principal(names[0].strip(), issuer="proxy", groups=groups)


def _values(pairs: _Pairs, wanted: str) -> list[str]:
    return [value for name, value in pairs if name == wanted.lower()]


@lru_cache(256)
def _is_among(address: str, networks: tuple[str, ...]) -> bool:
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        return False
    # A socket for both families shows IPv4 addresses within IPv6 addresses.
    plain = getattr(given, "ipv4_mapped", None) or given
    return any(plain in ipaddress.ip_network(network) for network in networks)


def _ticket(scope: Mapping[str, Any]) -> str:
    query = bytes(scope.get("query_string", b"")).decode("latin-1")
    return parse_qs(query).get("ticket", [""])[0] if "ticket=" in query else ""


def _of_subprotocol(pairs: _Pairs) -> list[tuple[str, str]]:
    """The `Authorization` header for the token that a WebSocket subprotocol carries."""
    offered = ",".join(_values(pairs, "sec-websocket-protocol")).split(",")
    found = [one.strip().removeprefix(BEARER) for one in offered if BEARER in one]
    return [("authorization", f"Bearer {_decoded(token)}") for token in found]


def _decoded(token: str) -> str:
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise Unauthenticated(
            f"the subprotocol {BEARER!r} carries the token in base64url; this is none", "malformed"
        ) from None
