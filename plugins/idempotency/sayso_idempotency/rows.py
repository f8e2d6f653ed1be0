"""The notes of one key in the ledger's store, so that every process and machine knows it.

    idempotency/KEY/head       who answers the request, until when, and which request it is
    idempotency/KEY/reply      the recorded answer
    idempotency/KEY/j/NAME     what its turn has done, until there is an answer
    idempotency-due/HOUR/KEY   what to remove, by the hour; its text names the notes below
    idempotency-of/WHOSE/KEY   whose answer it is, so that it can be erased

`KEY` is a digest of the agent, the principal and the key that the caller sent, `WHOSE` one of a
name: of the principal, of the person behind it, or of the tenant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from sayso import Notes

LEASE = 10.0
"""Seconds after which a process that said nothing of a request counts as dead."""
HOUR = 3600
_DUE = "idempotency-due"
_OF = "idempotency-of"
_SWEPT = "idempotency-swept"
_AT_ONCE = 100


@dataclass(slots=True)
class Head:
    """The state of one key; without an `owner` nobody answers its request now."""

    request: str
    until: float
    owner: str = ""
    lease: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """A recorded answer; `body` is None for one that was too large to keep, or was erased."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: str | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The key is ours, with the notes of an earlier attempt."""

    journal: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Other:
    """The key came with another request before."""


@dataclass(frozen=True, slots=True)
class Running:
    """Another attempt answers the request now."""


Found = Claimed | Reply | Other | Running


def digest(*parts: bytes) -> str:
    """A digest of these parts, each with its length."""
    whole = sha256()
    for part in parts:
        whole.update(b"%d:" % len(part) + part)
    return whole.hexdigest()[:40]


def whose(principal: str | None, tenant: str | None = None) -> str:
    """The digest of a principal's or a person's name, or of a tenant's."""
    if tenant is not None:
        return digest(b"tenant", tenant.encode())
    return digest(b"principal", (principal or "").encode())


def claim(
    notes: Notes, key: str, request: str, owner: str, keep: float, of: Sequence[str] = ()
) -> Found:
    """Take the key for `owner`, unless it has an answer, an owner or another request; `of` says
    whose it is."""
    found = notes.find(f"{_at(key)}/")
    head = _head(found, key)
    if head is not None and head.until > notes.now:
        if head.request != request:
            return Other()
        if (text := found.get(f"{_at(key)}/reply")) is not None:
            return Reply(**json.loads(text))
        if head.owner and head.lease > notes.now:
            return Running()
    else:
        for name in found:
            notes.put(name, None)
        found, head = {}, Head(request, notes.now + keep)
        names = [f"{_OF}/{each}/{key}" for each in of]
        for name in names:
            notes.put(name, "")
        notes.put(f"{_DUE}/{_hour(head.until) + 1}/{key}", " ".join(names))
    head.owner, head.lease = owner, notes.now + LEASE
    _put(notes, key, head)
    begin = f"{_at(key)}/j/"
    journal = {n.removeprefix(begin): text for n, text in found.items() if n.startswith(begin)}
    return Claimed(journal)


def renew(notes: Notes, owners: Mapping[str, str]) -> None:
    """Extend the leases of these keys."""
    for key, owner in owners.items():
        _extended(notes, key, owner)


def note(notes: Notes, key: str, owner: str, name: str, text: str) -> bool:
    """Note what the turn has done; False, and nothing is noted, where the key has another owner."""
    if not _extended(notes, key, owner):
        return False
    notes.put(f"{_at(key)}/j/{name}", text)
    return True


def end(notes: Notes, key: str, owner: str, reply: Reply | None) -> None:
    """Record the answer; None gives the key back, for a repeat that goes on."""
    found = notes.find(f"{_at(key)}/")
    head = _head(found, key)
    if head is None or head.owner != owner:
        return
    journal = [name for name in found if name.startswith(f"{_at(key)}/j/")]
    if reply is None and not journal:
        # Nothing was begun: the key is as new.
        notes.put(f"{_at(key)}/head", None)
        return
    head.owner, head.lease = "", 0.0
    _put(notes, key, head)
    if reply is not None:
        notes.put(f"{_at(key)}/reply", json.dumps(asdict(reply)))
        for name in journal:
            notes.put(name, None)


def sweep(notes: Notes) -> bool:
    """Remove keys whose time is over, a hundred at most; returns whether there may be more."""
    now = _hour(notes.now)
    hour = int(notes.find(_SWEPT).get(_SWEPT, now))
    due = list(notes.find(f"{_DUE}/{hour}/").items())[:_AT_ONCE] if hour <= now else []
    for name, of in due:
        key = name.rsplit("/", 1)[1]
        found = notes.find(f"{_at(key)}/")
        head = _head(found, key)
        # A key that was used again since then has a later hour, too.
        for each in (*found, *of.split()) if head is None or head.until <= notes.now else ():
            notes.put(each, None)
        notes.put(name, None)
    if not due and (hour < now or not notes.find(_SWEPT)):
        notes.put(_SWEPT, str(min(hour + 1, now)))
    return bool(due) or hour < now


def erase(notes: Notes, of: str) -> tuple[int, int]:
    """Remove the answers of this person or tenant, and what their turns have done; returns their
    number, and that of the requests that are being answered now.

    The keys stay without an answer, so that no request is carried out a second time.
    """
    erased = left = 0
    for name in notes.find(f"{_OF}/{of}/"):
        key = name.rsplit("/", 1)[1]
        found = notes.find(f"{_at(key)}/")
        head = _head(found, key)
        if head is not None and head.owner and head.lease > notes.now:
            left += 1
            continue
        notes.put(name, None)
        if head is not None:
            for each in found:
                notes.put(each, None)
            _put(notes, key, Head(head.request, head.until))
            notes.put(f"{_at(key)}/reply", json.dumps(asdict(Reply(200, [], None))))
            erased += 1
    return erased, left


def _at(key: str) -> str:
    return f"idempotency/{key}"


def _hour(at: float) -> int:
    return int(at // HOUR)


def _head(found: Mapping[str, str], key: str) -> Head | None:
    text = found.get(f"{_at(key)}/head")
    return None if text is None else Head(**json.loads(text))


def _put(notes: Notes, key: str, head: Head) -> None:
    notes.put(f"{_at(key)}/head", json.dumps(asdict(head)))


def _extended(notes: Notes, key: str, owner: str) -> bool:
    head = _head(notes.find(f"{_at(key)}/head"), key)
    if head is None or head.owner != owner:
        return False
    head.lease = notes.now + LEASE
    _put(notes, key, head)
    return True
