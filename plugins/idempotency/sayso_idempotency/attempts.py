"""One attempt to answer a request with a key: it keeps the answer and the steps of its turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from typing import Any

from starlette.types import Message, Receive, Send

from sayso import Caller, Host, LedgerUnavailable, RequestError
from sayso_idempotency import rows

logger = logging.getLogger("sayso.idempotency")
Serve = Callable[[Caller, Receive, Send], Awaitable[int]]
LARGEST = 8 * 2**20
"""Most bytes of an answer that is kept."""
_KEPT = (200, 500)
"""The statuses of answers that are kept. All others either refuse the request before anything ran,
or say that it may be tried again."""
REPLAYED = (b"idempotent-replayed", b"true")


class InProgress(RequestError):
    """Another attempt with the same key answers the request now."""

    status = 409
    code = "IDEMPOTENCY_KEY_IN_USE"
    retry_after = 2.0

    def __init__(self) -> None:
        super().__init__("the first request with this Idempotency-Key is still being answered")


class NotKept(RequestError):
    """The request was carried out, and its answer is not kept."""

    status = 409
    code = "REPLY_NOT_KEPT"

    def __init__(self) -> None:
        super().__init__(
            "the request was carried out; its answer was too large to keep, or has been erased"
        )


class Journal:
    """The notes of earlier attempts to answer a request, and of this one."""

    def __init__(self, attempt: Attempt, kept: rows.Claimed) -> None:
        self._attempt = attempt
        self._kept = kept.journal

    def find(self, name: str) -> str | None:
        """The note of an earlier attempt."""
        return self._kept.get(_name(name))

    @property
    def lease(self) -> float:
        """The seconds after a note within which no other attempt takes over."""
        return rows.LEASE

    async def note(self, name: str, text: str) -> None:
        """Note something; raises InProgress if another attempt has taken over meanwhile."""
        attempt = self._attempt
        work = partial(rows.note, key=attempt.key, owner=attempt.owner, name=_name(name), text=text)
        if not await attempt.host.record.notes(work, lasting=True):
            raise InProgress


class Attempt:
    """An attempt that holds its key."""

    def __init__(
        self, host: Host, key: str, owner: str, claimed: rows.Claimed, running: dict[str, str]
    ) -> None:
        self.host = host
        self.key = key
        self.owner = owner
        self._running = running
        self._journal = Journal(self, claimed)

    async def answered(self, serve: Serve, caller: Caller, send: Send) -> None:
        """Answer by `serve`, also when the client leaves, and keep the answer."""
        recorder = _Recorder(send)
        status = 0
        self._running[self.key] = self.owner
        try:
            status = await serve(caller._replace(journal=self._journal), _never, recorder)
        finally:
            if self._running.get(self.key) == self.owner:
                del self._running[self.key]
            await asyncio.shield(self._end(recorder.reply(status)))
        await recorder.release()

    async def _end(self, reply: rows.Reply | None) -> None:
        work = partial(rows.end, key=self.key, owner=self.owner, reply=reply)
        try:
            await self.host.record.notes(work, lasting=True)
        except LedgerUnavailable as error:
            logger.warning("the answer to a request with a key could not be kept: %s", error)


class Replayed:
    """A recorded answer."""

    def __init__(self, reply: rows.Reply) -> None:
        self._reply = reply

    async def answered(self, serve: Serve, caller: Caller, send: Send) -> None:
        """Send it; nothing runs."""
        reply = self._reply
        named = [(name.encode(), value.encode()) for name, value in reply.headers]
        start = {"type": "http.response.start", "status": reply.status}
        await send({**start, "headers": [*named, REPLAYED]})
        await send({"type": "http.response.body", "body": (reply.body or "").encode()})


class _Recorder:
    """Passes an answer on, and keeps it. Its end waits until it is recorded, so that a client that
    has it may rely on it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message = {}
        self._body = bytearray()
        self._size = 0
        self._end: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        else:
            piece = message.get("body", b"")
            self._size += len(piece)
            if self._size <= LARGEST:
                self._body += piece
            if not message.get("more_body"):
                self._end = message
                return
        await self._pass_on(message)

    async def release(self) -> None:
        """Send the end."""
        if self._end is not None:
            await self._pass_on(self._end)

    def reply(self, status: int) -> rows.Reply | None:
        """The answer to keep, if it is one to keep."""
        if status not in _KEPT or self._end is None:
            return None
        headers = [(name.decode(), value.decode()) for name, value in self._start["headers"]]
        body = self._body.decode() if self._size <= LARGEST else None
        return rows.Reply(self._start["status"], headers, body)

    async def _pass_on(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:
            # Servers other than Sayso's own say so where the client has left.
            logger.debug("a client with a key has left before its answer")


async def _never() -> Any:
    """Say nothing: the turn goes on when its client leaves."""
    await asyncio.Event().wait()


def _name(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
