"""The factories of Claude models: at Anthropic, Bedrock, Vertex AI and Foundry.

The module imports the SDK, which takes seconds; it is itself imported only when such a model is
configured, at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso import ConfigError, per_loop
from sayso.models.adapters import Connection, certificates, check_key, checked_address
from sayso_anthropic.model import Claude
from sayso_anthropic.platforms import ANTHROPIC, BEDROCK, FOUNDRY, VERTEX, Client, Platform

DEFAULT_MODEL = "claude-sonnet-5-5"

Settings = Mapping[str, Any]


def anthropic(name: str, settings: Settings) -> Claude:
    """The model `name`, `claude-sonnet-5-5` when empty, at Anthropic or a proxy of it.

    Raises ConfigError when there are no credentials.
    """
    return _connect(ANTHROPIC, name or DEFAULT_MODEL, settings)


def bedrock(name: str, settings: Settings) -> Claude:
    """The model `name` at Amazon Bedrock, in the region and with the credentials of AWS's own
    variables and profiles, or with an API key of Bedrock. Raises ConfigError."""
    return _connect(BEDROCK, name, settings)


def vertex(name: str, settings: Settings) -> Claude:
    """The model `name` at Vertex AI, in `CLOUD_ML_REGION` and `ANTHROPIC_VERTEX_PROJECT_ID`, with
    Google's application default credentials or an access token as key. Raises ConfigError."""
    return _connect(VERTEX, name, settings)


def foundry(name: str, settings: Settings) -> Claude:
    """The model `name` at Microsoft Foundry, in `ANTHROPIC_FOUNDRY_RESOURCE`, with
    `ANTHROPIC_FOUNDRY_API_KEY`. Raises ConfigError."""
    return _connect(FOUNDRY, name, settings)


def _connect(platform: Platform, name: str, settings: Settings) -> Claude:
    if not name:
        raise ConfigError(
            f"model {platform.name!r} needs a model name, "
            f"for example '{platform.name}:{platform.example}'"
        )
    spec = f"{platform.name}:{name}"
    address = platform.address(str(settings.get("base_url") or ""))
    if address:
        checked_address(address, platform.name, "https://api.anthropic.com")
    connection = Connection.of({**settings, "base_url": address})
    key = platform.key(spec, settings)
    # Loaded once here, since loading certificates on each loop would take long.
    trusted = certificates()

    def client() -> Client:
        return platform.client(connection, key.value, trusted)

    _check(platform, client, spec)
    return Claude(name, platform, per_loop(client), key, connection)


def _check(platform: Platform, client: Any, spec: str) -> None:
    """Raise ConfigError where a client cannot be made, or has no credentials."""
    way_out = f"{platform.way_out}, or, to do without a language model, SAYSO_MODEL__NAME=offline"
    try:
        made = client()
        credentials = platform.credentials(made)
    except ConfigError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ConfigError(
            f"the credentials or address for model {spec!r} cannot be read ({kind}); {way_out}"
        ) from None
    if credentials is None:
        raise ConfigError(f"there are no credentials for model {spec!r}; {way_out}")
    check_key(credentials, spec)
