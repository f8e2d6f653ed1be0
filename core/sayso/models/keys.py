"""A provider's key, read from its source, and read again when the provider refuses it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sayso.config.targets import load_agent
from sayso.errors import ConfigError
from sayso.models.access import check_key

log = logging.getLogger("sayso.models")

_SECONDS = 30.0
"""Seconds that a command which prints a key may take."""


class Key:
    """A key that `read` returns; empty if there is none. Raises what `read` raises."""

    def __init__(self, read: Callable[[], str], model: str) -> None:
        self._read = read
        self._model = model
        self.value = self._checked()

    def __repr__(self) -> str:
        return "Key()"

    async def renewed(self, used: str) -> bool:
        """Read the key again; returns whether it differs from `used`, which was refused."""
        if self.value == used:
            try:
                self.value = await asyncio.to_thread(self._checked)
            except ConfigError as error:
                log.warning("%s", error)
        return bool(self.value) and self.value != used

    def _checked(self) -> str:
        key = self._read()
        check_key(key, self._model)
        return key


def key_for(model: str, settings: Mapping[str, Any], *variables: str) -> Key:
    """The key for `model`: `settings` has it as `api_key`, or says by `key` where it is; else the
    first of the environment's `variables` that is set.

    `key` is "env:NAME", "file:PATH", "command:LINE" or "function:MODULE:NAME".
    """
    if given := settings.get("api_key"):
        return Key(lambda: str(given), model)
    if place := settings.get("key"):
        return Key(_source(str(place), model, Path(settings.get("folder") or ".")), model)
    return Key(lambda: _first_set(variables), model)


def _first_set(variables: Iterable[str]) -> str:
    return next((os.environ[name] for name in variables if os.environ.get(name)), "")


def _source(place: str, model: str, folder: Path) -> Callable[[], str]:
    kind, _, rest = place.partition(":")
    readers: dict[str, Callable[[], str]] = {
        "env": lambda: os.environ.get(rest, ""),
        "file": lambda: (folder / rest).expanduser().read_text("utf-8").strip(),
        "command": lambda: _printed(rest),
        "function": lambda: str(load_agent(rest, folder, "function")()).strip(),
    }
    if kind not in readers or not rest:
        raise ConfigError(
            f"name the place of the key for model {model!r}: 'env:NAME', 'file:PATH', "
            "'command:LINE' or 'function:MODULE:NAME'; write no key into the configuration"
        )

    def read() -> str:
        try:
            found = readers[kind]()
        except ConfigError:
            raise
        except Exception as error:
            # The message of a failed command or function may contain a key.
            why = f"{type(error).__name__}: {error.strerror}" if isinstance(error, OSError) else ""
            shown = why or type(error).__name__
            raise ConfigError(
                f"the key for model {model!r} cannot be read from {place!r}: {shown}"
            ) from None
        if not found:
            raise ConfigError(f"there is no key for model {model!r} in {place!r}")
        return found

    return read


def _printed(line: str) -> str:
    done = subprocess.run(
        shlex.split(line), capture_output=True, text=True, timeout=_SECONDS, check=True
    )
    return done.stdout.strip()
