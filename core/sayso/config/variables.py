"""Secrets of settings that the environment may hold."""

from __future__ import annotations

import os

from pydantic import SecretStr

from sayso.errors import ConfigError


def secret_text(given: SecretStr, setting: str) -> str:
    """The text of a secret; "env:NAME" names the variable of the environment that has it.

    Raises ConfigError, which names the `setting` and never the secret, for a missing variable.
    """
    text = given.get_secret_value()
    if not text.startswith("env:"):
        return text
    name = text.removeprefix("env:")
    if not (found := os.environ.get(name, "").strip()):
        raise ConfigError(f"the variable {name!r}, which {setting} names, is not set")
    return found
