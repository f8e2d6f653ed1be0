"""The platforms that serve Claude models: the clients of the official SDK, and their credentials.

The messages are the same everywhere; the clients have their own addresses, keys and framing of
streams.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any

import anthropic

from sayso import ConfigError
from sayso.models.adapters import Connection, Key, key_for

Client = Any
"""One of the SDK's asynchronous clients, which share their interface and no base class."""
Make = Callable[..., Client]


@dataclass(frozen=True, slots=True)
class Platform:
    """A way to Claude models.

    `variables` may hold its key, `key_argument` is what its client calls it. `dates_body` says that
    the version of the API stands in the body, `late_system` that a system message may stand among
    the others.
    """

    name: str
    example: str
    make: Make
    variables: tuple[str, ...]
    key_argument: str
    credentials: Callable[[Client], str | None]
    """The key of a client to be checked, empty where it has others; None where it has none."""
    way_out: str
    dates_body: bool = False
    late_system: bool = False

    def address(self, given: str) -> str:
        """The base URL as the SDK wants it; empty for the platform's own."""
        if self is ANTHROPIC:
            given = given or os.environ.get("ANTHROPIC_BASE_URL") or ""
        # The SDK adds both itself; other clients are given an address with the version, or a whole
        # one.
        root = given.rstrip("/").removesuffix("/messages")
        return root if self is VERTEX else root.removesuffix("/v1")

    def key(self, spec: str, settings: Mapping[str, Any]) -> Key:
        """The platform's key; empty where its client finds credentials of its own."""
        return key_for(spec, settings, *self.variables)

    def client(self, connection: Connection, key: str, trusted: SSLContext) -> Client:
        """A client for one event loop."""
        arguments = connection.client(trusted)
        given: dict[str, Any] = {self.key_argument: key} if key else {}
        if connection.base_url:
            given["base_url"] = connection.base_url
        headers: dict[str, Any] = dict(connection.headers)
        if connection.key_header and key:
            headers |= {"authorization": anthropic.Omit(), connection.key_header: key}
        return self.make(
            **given,
            timeout=arguments["timeout"],
            # The SDK would wait for hours if a provider asked for it.
            max_retries=0,
            default_headers=headers,
            default_query=dict(connection.query),
            http_client=anthropic.DefaultAsyncHttpxClient(**arguments),
        )


def _of_anthropic(client: Client) -> str | None:
    header = "authorization" in os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").lower()
    if not (client.api_key or client.auth_token or client.credentials or header):
        return None
    return str(client.api_key or client.auth_token or "")


def _bedrock(**given: Any) -> Client:
    _needs("boto3", "bedrock")
    return anthropic.AsyncAnthropicBedrock(**given)


def _of_bedrock(client: Client) -> str | None:
    if client.api_key:
        return str(client.api_key)
    import boto3

    found = boto3.Session(profile_name=client.aws_profile).get_credentials()
    return None if found is None else ""


def _vertex(**given: Any) -> Client:
    _needs("google.auth", "vertex")
    return anthropic.AsyncAnthropicVertex(**given)


def _of_vertex(client: Client) -> str | None:
    if client.access_token:
        return str(client.access_token) if client.project_id else None
    from google.auth import default

    client.credentials, project = default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    return "" if client.project_id or project else None


def _of_foundry(client: Client) -> str | None:
    return client.api_key or None


def _needs(module: str, extra: str) -> None:
    """Import what a client imports later, within a call; raises ConfigError."""
    try:
        __import__(module)
    except ImportError:
        raise ConfigError(
            f"model {extra!r} needs further packages; try: pip install 'anthropic[{extra}]'"
        ) from None


ANTHROPIC = Platform(
    "anthropic",
    "claude-sonnet-5-5",
    anthropic.AsyncAnthropic,
    (),
    "api_key",
    _of_anthropic,
    "set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN, or a profile)",
    late_system=True,
)
BEDROCK = Platform(
    "bedrock",
    "global.anthropic.claude-sonnet-5-5",
    _bedrock,
    ("AWS_BEARER_TOKEN_BEDROCK",),
    "api_key",
    _of_bedrock,
    "set AWS_REGION, and AWS_PROFILE, AWS_ACCESS_KEY_ID with its secret, or "
    "AWS_BEARER_TOKEN_BEDROCK",
    dates_body=True,
)
VERTEX = Platform(
    "vertex",
    "claude-sonnet-5-5",
    _vertex,
    (),
    "access_token",
    _of_vertex,
    "set CLOUD_ML_REGION and ANTHROPIC_VERTEX_PROJECT_ID, and run "
    "'gcloud auth application-default login' or set GOOGLE_APPLICATION_CREDENTIALS",
    dates_body=True,
)
FOUNDRY = Platform(
    "foundry",
    "claude-sonnet-5-5",
    anthropic.AsyncAnthropicFoundry,
    ("ANTHROPIC_FOUNDRY_API_KEY",),
    "api_key",
    _of_foundry,
    "set ANTHROPIC_FOUNDRY_RESOURCE and ANTHROPIC_FOUNDRY_API_KEY",
    late_system=True,
)
