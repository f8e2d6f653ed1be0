"""Claims of this process on calls and continuations: until when they hold, and what is held.

A store may lose the end of a call: a standby takes over that had not received it, or an older
database is restored. Its row then names this process as the owner of a call that ended long ago.
Therefore a process renews only the leases of calls that it runs. If a row of its own names a call
that it does not hold, it treats it as a call whose outcome the store does not know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sayso.errors import LedgerUnavailable
from sayso.ledger import Owner, Proposal, Store

logger = logging.getLogger("sayso.ledger")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MARGIN = 0.2
_PRUNED_FROM = 1_000
_KEPT = 1_000
_FUTURE = 4
"""A lease that ends after this many times its length was given before the clock went back."""
MINT = object()
"""The key with which only the ledger makes grants."""


class CallNotStarted(Exception):
    """A claimed call was not started, and never will be on this claim."""


class Claim(NamedTuple):
    """One attempt to claim: a random token, and until when the claimed calls may be started."""

    token: str
    until: float


def boottime() -> float:
    """Seconds of a clock that goes on while this machine sleeps."""
    return time.clock_gettime(_CLOCK)


def margin(lease: float) -> float:
    """Seconds before the end of its lease by which a call must have started, and seconds after it
    until other processes consider its process dead. Allows for clocks of different speed and for
    delays."""
    return lease * _MARGIN


class Beginnings:
    """The calls that this process has started, kept for as long as an approval may name them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._order: deque[tuple[float, str]] = deque()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._known

    def add(self, id_: str) -> None:
        """Note that the call was started; from any thread."""
        now = boottime()
        with self._lock:
            self._known.add(id_)
            self._order.append((now, id_))
            while len(self._order) > _PRUNED_FROM and self._order[0][0] < now - self._seconds:
                self._known.discard(self._order.popleft()[1])


class Grant:
    """The right to run one approved call once; only the ledger makes one.

    `token` is that of the claim, by which the store knows this run from every other. `again` is
    true for an idempotent call whose earlier run has an unknown outcome. The call may start before
    `until` (`boottime`).
    """

    def __init__(
        self,
        proposal: Proposal,
        _mint: object,
        *,
        until: float,
        known: Beginnings,
        token: str,
        again: bool = False,
    ) -> None:
        if _mint is not MINT:
            raise TypeError("a Grant comes from the ledger only")
        self.proposal = proposal
        self.fence = proposal.fence
        self.token = token
        self.again = again
        self.until = until
        self.spent = False
        self._known = known
        # Acquired once: by the start of the call, or by its withdrawal.
        self._word = threading.Lock()
        self._withdrawn = False

    def spend(self) -> None:
        """Use the right; a second use raises RuntimeError."""
        if self.spent:
            raise RuntimeError(f"the grant for call {self.proposal.id!r} is spent")
        self.spent = True

    @property
    def in_time(self) -> bool:
        """Whether the call may still start: no other process considers this one dead yet."""
        return boottime() < self.until

    def begin(self) -> None:
        """Record that the call starts; the caller's next step must be the tool. Raises
        CallNotStarted if it is too late, or the grant was withdrawn."""
        if not self.in_time or not self._word.acquire(blocking=False):
            raise CallNotStarted
        self._known.add(self.proposal.id)

    def withdraw(self) -> bool:
        """Withdraw the grant. True if the call has not started, so that it never will on this
        grant."""
        if not self._withdrawn:
            self._withdrawn = self._word.acquire(blocking=False)
            self.spent |= self._withdrawn
        return self._withdrawn


def begin_all(grants: Sequence[Grant]) -> None:
    """Record that all these calls start, which are carried out in one step. If it is too late for
    one, raises CallNotStarted, and none starts."""
    if not all(grant.in_time for grant in grants):
        raise CallNotStarted
    for grant in grants:
        grant.begin()


@dataclass(frozen=True, slots=True)
class Continuation:
    """The right to continue suspended turns, each with its fence, for one deciding message;
    `token` is that of the claim."""

    turns: Sequence[tuple[str, int]]
    request: str
    token: str = ""


class Holdings:
    """The claims of this process by their tokens: on their way to the store, or held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # None: the claim is on its way, and everything that it claims is held.
        self._ids: dict[str, set[str] | None] = {}

    def send(self, token: str) -> None:
        """Note that the claim is about to be sent."""
        with self._lock:
            self._ids[token] = None

    def keep(self, token: str, ids: Iterable[str]) -> None:
        """Note which calls or turns the claim was granted; without any it is forgotten."""
        with self._lock:
            self._set(token, set(ids))

    def end(self, token: str, ids: Iterable[str] | None = None) -> None:
        """Note that the store has recorded the end of these calls or turns; None: of all."""
        with self._lock:
            held = self._ids.get(token)
            self._set(token, held - set(ids) if held and ids is not None else set())

    def holds(self, token: str, id_: str) -> bool:
        """Whether this process runs the call, continues the turn, or may be about to."""
        with self._lock:
            if token not in self._ids:
                return False
            held = self._ids[token]
            return held is None or id_ in held

    def ids(self) -> list[str]:
        """The calls that this process runs and the turns that it continues."""
        with self._lock:
            return [id_ for held in self._ids.values() for id_ in held or ()]

    def _set(self, token: str, ids: set[str]) -> None:
        if ids:
            self._ids[token] = ids
        else:
            self._ids.pop(token, None)


class Lease:
    """Shows other processes that the process `owner` is alive, from its first claim on.

    It is renewed three times in `seconds`, for what is `held` then.
    """

    def __init__(
        self, store: Store, owner: str, seconds: float, held: Callable[[], Collection[str]]
    ) -> None:
        self._store = store
        self._held_ids = held
        self._owner = owner
        self._seconds = seconds
        self._held = False
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def hold(self) -> None:
        """Start renewing the lease, once; raises LedgerUnavailable."""
        with self._lock:
            if self._held or not self._store.shared:
                return
            self._store.hold(self._owner)
            renewer = threading.Thread(target=self._renew, name="sayso-lease", daemon=True)
            try:
                renewer.start()
            except RuntimeError as error:
                # Without renewal, others would consider this process dead during a long call.
                raise LedgerUnavailable(f"no claim can be kept alive: {error}") from error
            self._held = True

    def stop(self) -> None:
        """Stop renewing the lease."""
        self._stopped.set()

    def _renew(self) -> None:
        while not self._stopped.wait(self._seconds / 3):
            try:
                if ids := self._held_ids():
                    self._store.renew(self._owner, self._seconds, ids)
            except Exception as error:
                logger.warning("the lease of this process could not be renewed: %r", error)


class LeaseClock:
    """Judges leases of `seconds` by a store's clock that somebody may set; from several threads.

    Leases are times of the store's clock, so that processes compare the same. When that clock jumps
    ahead, every lease seems to have run out, and when it jumps back, those of the dead seem to last
    for hours. Therefore each process compares the clock with its own monotonic one, which nobody
    sets.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._ahead: float | None = None
        self._jumped: float | None = None
        self._seen: dict[tuple[str, float], float] = {}

    def has_run_out(self, owner: Owner, now: float) -> bool:
        """Whether `owner` has given no sign of life for its lease; `now` is the store's clock."""
        here = self.watch(now)
        with self._lock:
            if self._just_jumped(here):
                # A living process renews its lease meanwhile, by the clock as it is now.
                return False
            if owner.lease > now + _FUTURE * self._seconds:
                return here > self._first_seen(owner, here) + _FUTURE * self._seconds
            return owner.lease + margin(self._seconds) < now

    def watch(self, now: float) -> float:
        """Note a jump: between two looks the store's clock went farther than ours, or less far, by
        more than a transaction may have waited since it was read. Returns the time of ours."""
        with self._lock:
            here = boottime()
            ahead = now - here
            if self._ahead is not None and abs(ahead - self._ahead) > margin(self._seconds):
                self._jumped = here
            self._ahead = ahead
            return here

    def _just_jumped(self, here: float) -> bool:
        return self._jumped is not None and here < self._jumped + self._seconds + margin(
            self._seconds
        )

    def _first_seen(self, owner: Owner, here: float) -> float:
        if len(self._seen) >= _KEPT:
            self._seen.clear()
        return self._seen.setdefault((owner.id, owner.lease), here)
