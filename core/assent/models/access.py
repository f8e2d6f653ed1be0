"""Where a provider is and the key to it, checked at the start.

Later, either would look like a connection that was lost.
"""

from __future__ import annotations

import httpx2

from assent.errors import ConfigError


def checked_address(address: str, provider: str, example: str) -> httpx2.URL:
    """`address` as a URL. Raises ConfigError for any but an http(s) one."""
    try:
        url = httpx2.URL(address)
    except (httpx2.InvalidURL, ValueError):
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise ConfigError(
            f"the base URL of model {provider!r} is no http(s) address; try one such as {example!r}"
        )
    return url


def check_key(key: str, model: str) -> None:
    """Raise ConfigError, which does not show it, for a key that no header can carry."""
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise ConfigError(
            f"the key for model {model!r} has a line end, a space around it or a character that "
            "no request can carry; set it without"
        )
