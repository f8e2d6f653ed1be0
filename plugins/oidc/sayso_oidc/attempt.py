"""One attempt to sign in. Its browser keeps it in a cookie, so that any process can go on with it
and strangers leave nothing in the store."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import NamedTuple
from urllib.parse import quote, unquote

LIFE = 600
"""Seconds that a person has to sign in at the provider."""
_LONGEST = 2_000


class Attempt(NamedTuple):
    """A secret of the browser, from which `state`, `nonce` and the verifier are derived, and the
    place to which the browser returns."""

    secret: str
    to: str

    @classmethod
    def new(cls, to: str) -> Attempt:
        """A new attempt, which ends at the path `to`."""
        return cls(secrets.token_urlsafe(32), to)

    @classmethod
    def of_cookie(cls, text: str) -> Attempt:
        """The attempt that a cookie holds."""
        secret, _, to = text.partition(".")
        return cls(secret, local(unquote(to)))

    @property
    def cookie(self) -> str:
        """The text of the cookie."""
        return f"{self.secret}.{quote(self.to, safe='')}"

    @property
    def state(self) -> str:
        """It shows that the answer belongs to a question of this browser."""
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """It ties the ID token to this attempt."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """It buys the ID token, together with the code (RFC 7636)."""
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """The challenge of the verifier by the method S256 (RFC 7636, section 4.2)."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())

    def _derived(self, purpose: str) -> str:
        return _text(hmac.digest(self.secret.encode(), purpose.encode(), "sha256"))


def local(to: str) -> str:
    """The path `to` on this host, with query and fragment; "/" for anything else."""
    # Browsers read a backslash as a slash, and leave out line breaks and tabs.
    plain = to.isprintable() and "\\" not in to and len(to) <= _LONGEST
    return to if plain and to.startswith("/") and not to.startswith("//") else "/"


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
