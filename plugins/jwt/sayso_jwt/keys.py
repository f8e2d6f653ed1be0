"""The public keys of an issuer, from a file or an address, with a cache."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from sayso import Busy, ConfigError
from sayso_jwt.web import fetched, is_safe

logger = logging.getLogger("sayso.jwt")
FRESH = 600.0
"""Seconds after which the keys are fetched again."""
STALE = 86_400.0
"""Seconds for which known keys remain valid while no new ones can be fetched."""
PAUSE = 30.0
"""The shortest time in seconds between two fetches, so that tokens with unknown keys cause no more
load at the issuer."""


class Unreachable(Busy):
    """503: no keys can be had, so nobody's token can be checked."""

    reason = "provider_unreachable"

    def __init__(self) -> None:
        super().__init__("the keys that tokens are checked with cannot be had now")


class Key(NamedTuple):
    """A public key: its id, its algorithm if that is stated, its type, such as "RSA", and the
    object that checks signatures."""

    id: str | None
    alg: str | None
    kind: str
    public: Any


class Keys:
    """The keys at `where`. Several loops use them at once; blocking work runs on threads.

    `setting` is the name of `where` in errors.
    """

    def __init__(self, where: str | Path, setting: str = "auth.jwt.jwks") -> None:
        self._where = where
        self._setting = setting
        self._keys: Sequence[Key] = ()
        self._fetched = self._tried = -STALE
        self._lock = threading.Lock()
        if isinstance(where, Path):
            self._load_file(where)
        elif not is_safe(where):
            raise ConfigError(
                f"{setting}: keys come from a file or over https://; anybody between here and "
                "there could put others in their place"
            )

    async def named(self, kid: str | None) -> Sequence[Key]:
        """The keys with this id, or all if a token names none; empty if the issuer has no such key.
        Raises Unreachable while no keys can be fetched."""
        if not self._fresh or not self._found(kid):
            await asyncio.to_thread(self._refresh, kid)
        if time.monotonic() - self._fetched > STALE:
            raise Unreachable
        return self._found(kid)

    @property
    def _fresh(self) -> bool:
        return time.monotonic() - self._fetched < FRESH

    def _found(self, kid: str | None) -> Sequence[Key]:
        return [key for key in self._keys if kid is None or key.id == kid]

    def _refresh(self, kid: str | None) -> None:
        with self._lock:
            # Several requests may have waited here for the same answer.
            known = self._fresh and self._found(kid)
            if known or time.monotonic() - self._tried < PAUSE:
                return
            self._tried = time.monotonic()
            try:
                self._keys = _keys(_read(self._where))
                self._fetched = time.monotonic()
            except (OSError, ValueError) as error:
                logger.warning("%s cannot be read: %s", self._setting, error)

    def _load_file(self, path: Path) -> None:
        try:
            self._keys = _keys(_read(path))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._setting} cannot be read: {str(path)!r}: {error}") from None
        self._fetched = time.monotonic()


def _read(where: str | Path) -> bytes:
    return where.read_bytes() if isinstance(where, Path) else fetched(where)


def _keys(text: bytes) -> Sequence[Key]:
    """The public keys for signatures; ValueError if there is none."""
    said = json.loads(text)
    given = said.get("keys") if isinstance(said, dict) else None
    found = [key for one in given or () if (key := _key(one)) is not None]
    if not found:
        raise ValueError("it holds no public key for signatures, as {'keys': [...]}")
    return found


def _key(given: Any) -> Key | None:
    # A shared secret, or a key for encryption, cannot check a signature.
    if not isinstance(given, dict) or given.get("kty") == "oct" or given.get("use") == "enc":
        return None
    try:
        public = PyJWK(given).key
    except PyJWTError:
        # Issuers may also publish keys of types that this code does not know.
        return None
    return Key(given.get("kid"), given.get("alg"), given["kty"], public)
