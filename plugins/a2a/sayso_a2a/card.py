"""The contract's agent card, and the address under which a caller reached the service."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from sayso import ConfigError, Host
from sayso_a2a.settings import Settings

_NETLOC = re.compile(r"[A-Za-z0-9._~-]+(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


def base_url(scope: Mapping[str, Any], settings: Settings) -> str:
    """The service's address without a trailing slash: `url`, or else as the request names it.

    Headers that proxies add count only with `trust_forwarded`; any client can send them.
    """
    if settings.url:
        return settings.url.rstrip("/")
    headers = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}
    scheme = str(scope.get("scheme", "http"))
    netloc = headers.get(b"host", "")
    prefix = str(scope.get("root_path", ""))
    if settings.trust_forwarded:
        scheme = _first(headers, b"x-forwarded-proto") or scheme
        netloc = _first(headers, b"x-forwarded-host") or netloc
        prefix = _first(headers, b"x-forwarded-prefix") or prefix
    if not _NETLOC.fullmatch(netloc):
        host, port = scope.get("server") or ("localhost", None)
        netloc = f"{host}:{port}" if port else str(host)
    secure = scheme.lower() in ("https", "wss")
    prefix = prefix.rstrip("/") if _PREFIX.fullmatch(prefix) else ""
    return f"{'https' if secure else 'http'}://{netloc}{prefix}"


def _first(headers: Mapping[bytes, str], name: bytes) -> str:
    return headers.get(name, "").partition(",")[0].strip()


def simple_card(host: Host, url: str, custom: Mapping[str, Any]) -> dict[str, Any]:
    """The card of `/.well-known/agent.json` (interface.md, rule 7); `custom` fields override it."""
    agent = host.agent
    model, provider = host.model.name or host.model.provider, host.model.provider
    if agent.function is not None:
        model = provider = "custom"
    generated = {
        "name": agent.name,
        "description": agent.description,
        "url": url,
        "skills": list(agent.tools),
        "version": "1.0",
        "metadata": {"framework": "sayso", "model": model, "provider": provider},
    }
    return {**generated, **custom}


def custom_card(host: Host, configured: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of the card given at start-up, or else of the configured one.

    A card may be a mapping, a pydantic model, a dataclass, or a protobuf message of the SDK.
    """
    given = host.extras.get("a2a_agent_card")
    if given is None:
        return dict(configured or {})
    match given:
        case Mapping():
            return dict(given)
        case BaseModel():
            return given.model_dump(mode="json", exclude_none=True)
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return {k: v for k, v in dataclasses.asdict(given).items() if v is not None}
    if hasattr(given, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        found: dict[str, Any] = MessageToDict(given)
        return found
    raise ConfigError(
        f"a2a_agent_card is {type(given).__name__}; give a dict, a pydantic model or a dataclass"
    )
