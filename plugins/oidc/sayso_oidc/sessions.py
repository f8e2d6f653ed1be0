"""Sessions of people who have signed in: encrypted notes in the approvals store, so that each
process on the store knows them, on whichever machine."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from cryptography.fernet import Fernet

from sayso import Host, Notes, Principal, Subject

_NOTES = "oidc:"
_OF = f"{_NOTES}of:"
_SWEEP = 3_600.0
_FIELDS = ("issuer", "subject", "tenant")


class Session(NamedTuple):
    """The principal, and the ID token that names the session to the provider as it ends."""

    principal: Principal
    id_token: str


class Sessions:
    """The sessions of one service, each for `life` seconds.

    The cookie has the id of a session; the store has the digest of that id and what only the id
    decrypts, so that a reader of the store can neither use nor read a session. Beside it stand
    digests of the person's and the tenant's names, by which sessions are erased.
    """

    def __init__(self, host: Host, life: float) -> None:
        self._host = host
        self._life = life
        self._swept = -_SWEEP

    async def begin(self, principal: Principal, id_token: str) -> str:
        """The id of a new session."""
        id_ = secrets.token_urlsafe(32)
        said = {name: getattr(principal, name) for name in _FIELDS}
        said |= {"name": str(principal), "groups": sorted(principal.groups), "token": id_token}
        text = _box(id_).encrypt(json.dumps(said).encode()).decode()
        late = time.monotonic() - self._swept > _SWEEP
        known, name = self._host.known(principal), _name(id_)
        whose = {_of(str(principal)), _of(known.person or str(principal))}
        whose |= {_of(None, known.tenant)} if known.tenant is not None else set()
        of = [place + name.removeprefix(_NOTES) for place in sorted(whose)]
        put = partial(self._put, name=name, text=text, of=of, sweeps=late)
        await self._host.record.notes(put)
        if late:
            self._swept = time.monotonic()
        return id_

    async def found(self, id_: str) -> Session | None:
        """The session of that id; None if it has ended."""
        found = await self._host.record.notes(partial(_valid, name=_name(id_)))
        if found is None:
            return None
        ends, text = found
        said = json.loads(_box(id_).decrypt(text))
        token, name = said.pop("token"), said.pop("name")
        # A person has signed in at the provider; [auth.principals] may say otherwise.
        return Session(Principal(name, kind="person", expires=ends, **said), token)

    async def end(self, id_: str) -> None:
        """End the session at once, in all processes."""
        await self._host.record.notes(lambda notes: notes.put(_name(id_), None))

    def _put(self, notes: Notes, name: str, text: str, of: Sequence[str], sweeps: bool) -> None:
        if sweeps:
            for other, old in notes.find(_NOTES).items():
                if _ends(old) < notes.now:
                    notes.put(other, None)
        ends = f"{notes.now + self._life:.0f}"
        notes.put(name, f"{ends} {text}")
        for place in of:
            notes.put(place, ends)


def erase(notes: Notes, subject: Subject) -> int:
    """End all sessions of a principal, a person or a tenant; returns their number."""
    ended = 0
    for place in notes.find(_of(subject.principal, subject.tenant)):
        name = _NOTES + place.rsplit(":", 1)[1]
        ended += _valid(notes, name) is not None
        notes.put(name, None)
        notes.put(place, None)
    return ended


def _of(principal: str | None, tenant: str | None = None) -> str:
    """The beginning of the names of the notes that say whose a session is."""
    kind, name = ("tenant", tenant) if tenant is not None else ("principal", principal or "")
    text = f"{kind}:{name}".encode("utf-8", "surrogatepass")
    return f"{_OF}{sha256(text).hexdigest()}:"


def _valid(notes: Notes, name: str) -> tuple[float, str] | None:
    """The end of a session that has not ended, and its text."""
    note = notes.find(name).get(name)
    if note is None or _ends(note) <= notes.now:
        return None
    return _ends(note), note.partition(" ")[2]


def _ends(note: str) -> float:
    return float(note.partition(" ")[0])


def _name(id_: str) -> str:
    return _NOTES + sha256(id_.encode("utf-8", "surrogateescape")).hexdigest()


def _box(id_: str) -> Fernet:
    key = sha256(b"session:" + id_.encode("utf-8", "surrogateescape")).digest()
    return Fernet(base64.urlsafe_b64encode(key))
