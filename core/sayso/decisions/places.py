"""The place of a call: the parts of the platform context that an approval binds (design, section 6,
"The deed": "Context").

A client may renew credentials, but not change what they give access to.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from sayso.wire.masking import mask
from sayso.wire.messages import PlatformContext

PLAIN = ("tenant_name", "k8s_namespace", "platform_base_url")
CREDENTIALS = ("platform_token", "kubeconfig", "aws_credentials")
_AWS = {
    "region": ("region", "awsregion", "awsdefaultregion", "defaultregion", "regionname"),
    "role": ("role", "rolearn", "awsrole", "awsrolearn", "assumerolearn"),
    "endpoint": ("endpoint", "endpointurl", "awsendpoint", "awsendpointurl"),
    "account": ("account", "accountid", "awsaccount", "awsaccountid"),
}
_OF_AWS = {alias: name for name, aliases in _AWS.items() for alias in aliases}
_CLUSTER = re.compile(
    r"""
    ["']?\b(server|certificate-authority-data|certificate-authority|insecure-skip-tls-verify
        |proxy-url|tls-server-name|namespace|current-context)["']?\s*:\s*
    ("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,}\]\#]+)
    """,
    re.VERBOSE,
)
_NAMES = re.compile(
    r"""["']?\b(name|cluster)["']?\s*:\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,}\]{\#]+)"""
)
"""The names of fields that say which of several servers a context means."""
_HIDES = re.compile(r"\\[xuU]|:\s*[&*!|>]|<<\s*:")
"""Escapes, anchors and blocks of YAML; this code does not read the values behind them."""


def place(platform: PlatformContext | None) -> dict[str, Any]:
    """The fields of this request's context that a proposal binds and shows.

    A credential is represented by the things that it gives access to; `user_id` is only shown.
    """
    if platform is None:
        return {}
    found: dict[str, Any] = {
        name: value for name in ("user_id", *PLAIN) if (value := getattr(platform, name))
    }
    if "platform_base_url" in found:
        found["platform_base_url"] = _without_user(found["platform_base_url"])
    if platform.platform_token:
        found["platform_token"] = {}
    if platform.kubeconfig:
        found["kubeconfig"] = _cluster(platform.kubeconfig.get_secret_value())
    if platform.aws_credentials:
        found["aws_credentials"] = dict(_account(platform.aws_credentials))
    secrets = platform.secrets()
    return mask(found, secrets) if secrets else found


def differs(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The fields that both contexts state with different values."""
    found = [name for name in PLAIN if name in recorded and name in now]
    changed = [name for name in found if recorded[name] != now[name]]
    one, other = recorded.get("kubeconfig"), now.get("kubeconfig")
    if one is not None and other is not None and one != other:
        changed.append("kubeconfig")
    one, other = recorded.get("aws_credentials", {}), now.get("aws_credentials", {})
    changed += [f"aws_credentials.{n}" for n in one if n in other and one[n] != other[n]]
    return changed


def missing(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The credentials that were present when the call was proposed and are absent now."""
    return [name for name in CREDENTIALS if name in recorded and name not in now]


def restored(recorded: Mapping[str, Any], platform: PlatformContext) -> PlatformContext:
    """The context that the call gets: it has the recorded values, and lacks what was absent when
    the call was proposed."""
    changes: dict[str, Any] = {}
    for name in PLAIN:
        value = getattr(platform, name)
        if name not in recorded and value is not None:
            changes[name] = None
        elif name in recorded and not value:
            changes[name] = recorded[name]
    changes |= {
        name: None
        for name in CREDENTIALS
        if name not in recorded and getattr(platform, name) is not None
    }
    if "aws_credentials" in recorded and platform.aws_credentials:
        stated = _restored_account(recorded["aws_credentials"], platform.aws_credentials)
        if stated != platform.aws_credentials:
            changes["aws_credentials"] = stated
    if not changes:
        return platform
    made = platform.model_copy(update=changes)
    return made


def _without_user(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in url else url


def _cluster(encoded: str) -> dict[str, Any]:
    try:
        text = base64.b64decode("".join(encoded.split()), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return {"digest": _digest(encoded)}
    found: dict[str, Any] = {}
    if _HIDES.search(text):
        return {"digest": _digest(text)}
    for named in _CLUSTER.finditer(text):
        name, value = named[1], named[2].strip("\"'")
        if name == "certificate-authority-data":
            name, value = "certificate-authority", f"sha256:{_digest(value)}"
        found.setdefault(name, []).append(_without_user(value))
    if len(found.get("server", ())) > 1:
        found["names"] = [_digest(str([named.groups() for named in _NAMES.finditer(text)]))]
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _account(credentials: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in credentials.items():
        name = _OF_AWS.get(_plain(key))
        if name is not None and value not in (None, ""):
            yield name, value if isinstance(value, str | int) else str(value)


def _restored_account(
    recorded: Mapping[str, Any], credentials: Mapping[str, Any]
) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in credentials.items()
        if (name := _OF_AWS.get(_plain(key))) is None or name in recorded
    }
    stated = {_OF_AWS.get(_plain(key)) for key, value in kept.items() if value not in (None, "")}
    return kept | {name: value for name, value in recorded.items() if name not in stated}


def _plain(key: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(key).lower())
