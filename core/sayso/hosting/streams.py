"""The events of a running turn, in the form that protocols consume."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Protocol

from sayso.config import Config
from sayso.context import Caller
from sayso.errors import NotStarted, RequestError
from sayso.hosting.buffers import Buffer, Buffers
from sayso.wire.chat import encode_lines, sendable
from sayso.wire.events import Done, ErrorEvent, Event, IntermittentUpdate, TextDelta
from sayso.wire.failures import Failure
from sayso.wire.messages import ChatRequest
from sayso.workers import Channel
from sayso.workers.running import StartedTurn

logger = logging.getLogger("sayso.turn")

SILENCE = 14.0
"""Seconds without a word after which a stream sends an empty status line: within 15, since this is
checked once a second. Proxies cut off a stream that is silent for a minute."""
_WAITING_BYTES = 1 << 18
_WAITING_STATUS = 1 << 22
"""Waiting amount above which only the last of further status lines is kept: their sender never
pauses."""
_OVERHEAD = 64
_TERMINAL = (Done, ErrorEvent)


class Sink(Protocol):
    """Takes a turn's events, in order."""

    def put_nowait(self, item: Event, /) -> bool:
        """Queue the event, from any thread; True asks to await `space` before the next."""
        ...

    def say(self, piece: str, /) -> bool:
        """Queue a piece of the reply's text, like its TextDelta with `put_nowait`."""
        ...

    async def space(self) -> None:
        """Return when the reader has caught up."""
        ...


class EventChannel(Channel[Event | str]):
    """The queued events of a turn; a `str` stands for the TextDelta with it.

    Most events of a turn are pieces of text, which nobody needs as objects of their own.
    """

    def __init__(self) -> None:
        super().__init__(_WAITING_BYTES, size=_size)
        self._last_status: IntermittentUpdate | None = None
        # Status lines come from the threads of tools. The kept one must neither be overtaken by
        # later ones nor be left behind by a reader who takes all waiting items at this moment.
        self._order = threading.Lock()
        # Whether putting a piece takes more than appending it, now or at some earlier time.
        self._slow = False

    @property
    def said(self) -> int:
        """How much was said, for somebody who asks whether more has come meanwhile."""
        return self._put

    def close(self, error: BaseException | None = None) -> None:
        self._slow = True
        super().close(error)

    def cancel(self) -> None:
        self._slow = True
        super().cancel()

    def put_nowait(self, item: Event | str) -> bool:
        """Put an item, as in every channel.

        A status line after the end is dropped without an error. Of those that a slow reader leaves
        waiting beyond the limit, only the last is kept.
        """
        if type(item) is not IntermittentUpdate:
            if self._last_status is not None:
                with self._order:
                    self._put_last_status()
            return super().put_nowait(item)
        if self._closed or self.cancelled:
            return False
        with self._order:
            if self._put - self._taken > _WAITING_STATUS:
                self._last_status = item
                self._slow = True
            else:
                self._put_last_status()
                self._put_status(item)
        return self.full

    def say(self, piece: str, /) -> bool:
        """`put_nowait` for a piece of text, by the shortest path."""
        if self._slow or type(piece) is not str:
            return self.put_nowait(piece if type(piece) is str else TextDelta(piece))
        self._put += len(piece) + _OVERHEAD
        self._items.append(piece)
        if self._waiter is not None:
            self._wake()
        return self._put - self._taken > _WAITING_BYTES

    def _put_last_status(self) -> None:
        status, self._last_status = self._last_status, None
        if status is not None:
            self._put_status(status)

    def _put_status(self, status: IntermittentUpdate) -> None:
        self._put += _size(status)
        self._items.append(status)
        if self._waiter is not None:
            self._wake()

    def _take(self) -> list[Event | str]:
        items = super()._take()
        if items and not self._left:
            with self._order:
                if self._items:
                    # More items have arrived meanwhile, and the kept line comes after them.
                    self._put_last_status()
                elif self._last_status is not None:
                    items.append(self._last_status)
                    self._last_status = None
        if items and type(items[-1]) is IntermittentUpdate:
            # A tool that outlives its turn may send one at the same moment.
            ends = (n for n, item in enumerate(items, 1) if type(item) in _TERMINAL)
            del items[next(ends, len(items)) :]
        return items


class Turns(Protocol):
    """The operations that a stream needs of the host: to start its turn, and to explain a
    failure."""

    config: Config

    @property
    def buffers(self) -> Buffers:
        """The buffers in which streams are kept."""
        ...

    def begin(self, request: ChatRequest, caller: Caller, sink: Sink) -> StartedTurn:
        """Start a turn whose events go into `sink`."""
        ...

    def failure_of(self, started: StartedTurn) -> BaseException | None:
        """Why an ended turn gave no answer; None if it gave one."""
        ...

    def failure(self, error: BaseException) -> Failure:
        """The failure to show a caller for `error`."""
        ...


class EventStream:
    """The events of one turn, for the loop that made it.

    `ready()` returns all waiting events, to be sent in one write; `lines()` returns the same as
    NDJSON; iterating returns one by one. `failure` says how the turn failed, once its `error` event
    was read. `aclose()` says that the client has gone: the turn is cancelled, or finished unseen
    with `server.on_disconnect = "continue"`, or where it is kept for the client to read on; a
    claimed tool always finishes.
    """

    def __init__(
        self, host: Turns, request: ChatRequest, caller: Caller, running: set[EventStream]
    ) -> None:
        """Start the turn; the stream is in `running` until the turn has ended."""
        self._host = host
        self._running = running
        self._channel = EventChannel()
        self._ended = False
        self._end_sent = False
        self.failure: Failure | None = None
        self._kept: Buffer | None = None
        self._unseen: asyncio.Task[None] | None = None
        self._written_out = False
        self._said = (0, monotonic())
        try:
            if caller.keep:
                self._kept = host.buffers.open(caller.principal, caller.keep)
            self._started = host.begin(request, caller, self._channel)
        except (NotStarted, RequestError) as error:
            self._ended = True
            self.failure = host.failure(error)
            self._channel.put_nowait(self.failure.event())
            self._channel.close()
            return
        running.add(self)
        self._work = self._started.running
        self._work.on_end(self._finish)

    def _finish(self) -> None:
        """Send how the turn ended, if it did not send `done` itself."""
        self._ended = True
        self._running.discard(self)
        error = self._host.failure_of(self._started)
        if error is not None:
            self.failure = self._host.failure(error)
            self._channel.put_nowait(self.failure.event())
        self._channel.close()

    async def ready(self) -> list[Event]:
        """All waiting events, at least one; an empty list after the terminal event."""
        if self._end_sent:
            return []
        events = await self._channel.ready()
        self._look_for_end(events)
        return [sendable(TextDelta(e) if isinstance(e, str) else e) for e in events]

    async def lines(self) -> tuple[bytes, bool]:
        """The result of `ready()` as NDJSON, and whether more follows."""
        self._written_out = True
        if self._end_sent:
            return b"", False
        events = await self._channel.ready()
        self._look_for_end(events)
        return self._to_send(events), not self._end_sent

    def lines_now(self) -> tuple[bytes, bool]:
        """The result of `lines()`, without waiting; empty if nothing waits."""
        self._written_out = True
        if self._end_sent:
            return b"", False
        events = self._channel.take()
        if events is None:
            return b"", True
        self._look_for_end(events)
        return self._to_send(events), not self._end_sent

    def _to_send(self, events: list[Event | str]) -> bytes:
        lines = self._written(events)
        if self._kept is not None:
            self._kept.put(*lines.splitlines(keepends=True))
            if self._end_sent:
                self._kept.end()
        return lines

    def _written(self, events: list[Event | str]) -> bytes:
        """The lines of `events`. If a user's model in one cannot be serialised, they end with an
        error.

        A status line with such a model is left out.
        """
        try:
            return encode_lines(events)
        except Exception:
            pass  # Serialise each by itself to find out which it is
        lines = []
        for event in events:
            try:
                lines.append(encode_lines([event]))
            except Exception as error:
                if type(event) is IntermittentUpdate:
                    logger.warning("a status line cannot be written", exc_info=error)
                    continue
                self._cancel()
                self._end_sent = True
                lines.append(encode_lines([self._host.failure(error).event()]))
                break
        return b"".join(lines)

    def beat(self, now: float, silence: float = SILENCE) -> None:
        """Send a status line without text if the turn has sent nothing for `silence` seconds and
        its events are written unchanged. Other protocols send signs of life of their own."""
        said, since = self._said
        if self._channel.said != said:
            self._said = self._channel.said, now
        elif self._written_out and now - since >= silence:
            self._channel.put_nowait(IntermittentUpdate(""))
            self._said = self._channel.said, now

    def when_ready(self, call: Callable[[], object]) -> None:
        """Have `call` run once, on this loop, when `lines_now()` returns something."""
        self._channel.when_ready(call)

    def _look_for_end(self, events: list[Event | str]) -> None:
        # The terminal event is already the end; the work's own end comes a little later.
        self._end_sent = not events or type(events[-1]) in _TERMINAL

    async def __aiter__(self) -> AsyncIterator[Event]:
        while events := await self.ready():
            for event in events:
                yield event

    def stop(self) -> None:
        """End the turn with a terminal `error` event: the service stops."""
        self._work.cancel()

    async def aclose(self) -> None:
        """End the stream early, or after its end; call it when the client has gone."""
        self.drop()

    def drop(self) -> None:
        """Do what `aclose` does, for callbacks."""
        if self._end_sent or self._unseen is not None:
            return
        if self._kept is None:
            self._cancel()
        else:
            self._unseen = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        """Read the rest of a turn that is kept for its client."""
        more = True
        while more:
            _, more = await self.lines()

    def _cancel(self) -> None:
        self._channel.cancel()
        if not self._ended and self._host.config.server.on_disconnect == "cancel":
            self._work.cancel()


def _size(event: Event | str) -> int:
    if isinstance(event, IntermittentUpdate):
        return 1024 + len(str(event.text))
    if not isinstance(event, TextDelta):
        return len(event) + _OVERHEAD if isinstance(event, str) else 1024
    if not isinstance(event.text, str):
        raise TypeError(f"a text delta of {type(event.text).__name__}")
    return len(event.text) + _OVERHEAD
