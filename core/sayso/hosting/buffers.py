"""The frames of turns, kept for a while: a client that lost its stream continues reading.

    buffer = host.buffers.open(owner, id)       # owner: the principal, or None for no name
    buffer.put(b'{"type": ...}\\n')              # a frame: one line or event of a stream
    async for frames in buffer.read(after=7):   # those after the seventh, then new ones

Reading starts nothing: no turn, no model call, no decision. The frames are in the memory of the
process that runs the turn; a plugin may find those of others (`elsewhere`).
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, Protocol

from sayso.errors import InvalidRequest, StreamGone, StreamTaken

KEPT = 600.0
"""Seconds that a buffer is kept after the end of its turn."""
MOST = 1000
"""Most buffers of ended turns; the oldest is dropped first."""
BYTES = 8 * 2**20
"""Most bytes of a buffer; of a longer stream the end is kept."""
TOTAL = 256 * 2**20
"""Most bytes of all buffers; beyond that the oldest one of an ended turn is dropped."""


_ID = re.compile(r"[A-Za-z0-9_-]{16,200}")
_EXPECTED = "expected an id that nobody guesses: 16 to 200 letters, digits, '-' or '_'"


class Frames(Protocol):
    """The kept frames of a turn, in this or in another process."""

    @property
    def running(self) -> bool:
        """Whether more may come."""
        ...

    def read(self, after: int = 0) -> AsyncGenerator[list[bytes], None]:
        """The frames after the first `after`, in pieces as they arrive, until the last one.

        Raises StreamGone if one of them is not kept any more.
        """
        ...


Elsewhere = Callable[[str | None, str], Awaitable[Frames | None]]
"""Finds the frames of an owner and id that another process keeps."""


class Buffer:
    """The frames of one turn, numbered from 1, for one loop."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._dropped = 0
        self.size = 0
        """Bytes of the frames."""
        self._changed = asyncio.Event()
        self.ended: float | None = None
        """When the last frame was put, on the monotonic clock."""

    @property
    def running(self) -> bool:
        """Whether more may come."""
        return self.ended is None

    def put(self, *frames: bytes) -> None:
        """Add frames."""
        for frame in frames:
            self._frames.append(frame)
            self.size += len(frame)
        while self.size > BYTES and len(self._frames) > 1:
            self.size -= len(self._frames.popleft())
            self._dropped += 1
        self._wake()

    def end(self) -> None:
        """Mark the last frame as the end."""
        if self.ended is None:
            self.ended = monotonic()
            self._wake()

    async def read(self, after: int = 0) -> AsyncGenerator[list[bytes], None]:
        """The frames after the first `after`, in pieces as they arrive, until the last one.

        Raises StreamGone if one of them is not kept any more.
        """
        while True:
            changed, ended = self._changed, self.ended is not None
            if frames := self._behind(after):
                after += len(frames)
                yield frames
            elif ended:
                return
            else:
                await changed.wait()

    def _behind(self, after: int) -> list[bytes]:
        if after < self._dropped:
            raise StreamGone
        return [*self._frames][after - self._dropped :]

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Buffers:
    """The buffers of a process, each for its owner: to anybody else they do not exist.

    With `offered` a request may ask for its stream to be kept, under the id in its field
    `resumable`; a plugin offers that, and the way to continue reading such a stream.
    """

    def __init__(self) -> None:
        self.offered = False
        self.elsewhere: Elsewhere | None = None
        self._kept: dict[tuple[str | None, str], Buffer] = {}

    def open(self, owner: str | None, id: str, *, replace: bool = False) -> Buffer:
        """A new buffer. Raises StreamTaken if there is one of this owner and id, unless it is to be
        replaced."""
        self._forget()
        if (owner, id) in self._kept and not replace:
            raise StreamTaken
        buffer = self._kept[owner, id] = Buffer()
        return buffer

    def get(self, owner: str | None, id: str) -> Buffer | None:
        """The buffer of this owner and id, while this process keeps it."""
        self._forget()
        return self._kept.get((owner, id))

    async def find(self, owner: str | None, id: str) -> Frames | None:
        """The kept frames of this owner and id, in any process in which their turn runs, else those
        of a turn that ended here."""
        mine = self.get(owner, id)
        if self.elsewhere is None or (mine is not None and mine.running):
            return mine
        others = await self.elsewhere(owner, id)
        return mine or others if others is None or not others.running else others

    def wish(self, fields: Mapping[str, Any]) -> str:
        """The id under which a request with these fields wants its stream kept; empty if it does
        not, or if that is not offered. Raises InvalidRequest."""
        wish = fields.get("resumable") if self.offered else None
        if wish is None:
            return ""
        if not isinstance(wish, str) or not _ID.fullmatch(wish):
            raise InvalidRequest.at(["body", "resumable"], "stream_id", _EXPECTED)
        return wish

    def _forget(self) -> None:
        ended = [(at, key) for key, one in self._kept.items() if (at := one.ended) is not None]
        ended.sort(key=lambda one: one[0])
        old = monotonic() - KEPT
        surplus = len(ended) - MOST
        total = sum(one.size for one in self._kept.values())
        for number, (at, key) in enumerate(ended):
            if at < old or number < surplus or total > TOTAL:
                total -= self._kept.pop(key).size
