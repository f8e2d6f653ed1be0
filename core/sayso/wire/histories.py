"""Beginnings of conversations that were read before.

A client sends its whole conversation with each message, so nearly all of a long body is, byte for
byte, the body before it. Those messages need not be read, checked and shown to the model anew.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from pydantic import Field

from sayso.wire.messages import ChatRequest, Message

LEAST = 4 * 2**10
"""Bytes of the shortest body whose beginning is kept."""
_KEY = LEAST
"""Bytes at the beginning of a body by which its conversation is found. Many conversations begin
with the same greeting or platform context; few of them are alike for as long as this."""
_ALIKE = 16
"""Most conversations of the same first bytes."""
_MOST = 4 * 2**20
"""Bytes of all beginnings in a process; with what was read from them they take about four times as
much."""
_LARGEST = _MOST // 8
"""Bytes of the largest one."""
_CROWDED = 16
"""If more are alike, one in so many is kept. To find where its messages end costs a fifth of a
turn, and most would be pushed out before they go on."""
_SEEN = 2**10
"""Most conversations that are remembered by their first bytes alone."""
_OPENING = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"messages"[ \t\n\r]*:[ \t\n\r]*\[[ \t\n\r]*')
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_scan = json.JSONDecoder().raw_decode
NAME = secrets.token_hex(8)
"""The name of the messages behind a beginning; no client can know it, and state it twice."""


class History:
    """The messages of a conversation without its last ones.

    `raw` are the bytes of a body up to there, `decides` says whether a message decides a call.
    Requests share a history, so nothing may change what it holds. `shown` has room for the messages
    as a model gets them, and `before` has that of the history which this one continues.
    """

    __slots__ = ("before", "decides", "messages", "raw", "shown")

    def __init__(
        self, raw: bytes, messages: Sequence[Message], *, decides: bool, before: Any = None
    ) -> None:
        self.raw = raw
        self.messages = messages
        self.decides = decides
        self.before = before
        self.shown: Any = None


class Continued(ChatRequest):
    """A request whose first messages are those of a history."""

    messages: list[Message] = Field(validation_alias=NAME)


class Histories:
    """The histories of the conversations of late, within `_MOST` bytes.

    They are found by their very bytes, so a caller finds only what it has sent by itself. A
    conversation is kept from its second body on: one that is not continued costs nothing.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, list[History]] = OrderedDict()
        self._size = 0
        self._crowded = 0
        self._lock = Lock()

    def find(self, body: bytes) -> tuple[History | None, bool]:
        """The longest history with which the body begins, and whether its own is to be kept."""
        # A thousand keys of bytes among the values of requests would cost a request of 62 KB a
        # twentieth.
        key = hash(body[:_KEY])
        with self._lock:
            alike = self._kept.get(key)
            if alike is None:
                self._kept[key] = []
                if len(self._kept) > _SEEN:
                    self._drop_oldest()
                return None, False
            self._kept.move_to_end(key)
            found = [history for history in alike if body.startswith(history.raw)]
            crowded = len(alike) == _ALIKE and not found
            self._crowded += crowded
            keep = not crowded or self._crowded % _CROWDED == 0
        return max(found, key=_length, default=None), keep

    def keep(self, history: History, replaced: History | None = None) -> None:
        """Keep the history, in place of the one that it continues."""
        if not _KEY <= len(history.raw) <= _LARGEST:
            return
        key = hash(history.raw[:_KEY])
        with self._lock:
            alike = [known for known in self._kept.get(key, ()) if known is not replaced]
            alike = [history, *alike[: _ALIKE - 1]]
            self._size += sum(map(_length, alike)) - sum(map(_length, self._kept.get(key, ())))
            self._kept[key] = alike
            self._kept.move_to_end(key)
            while self._size > _MOST:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, alike = self._kept.popitem(last=False)
        self._size -= sum(map(_length, alike))


def _length(history: History) -> int:
    return len(history.raw)


def opening(body: bytes) -> int:
    """The index of the first message in the body; 0 if anything stands before the messages."""
    found = _OPENING.match(body)
    return found.end() if found else 0


def rest(body: bytes, history: History) -> bytes | None:
    """The body with only the messages behind the history, in the form of `Continued`."""
    comma = _COMMA.match(body[len(history.raw) : len(history.raw) + 64].decode("latin-1"))
    if comma is None:
        return None
    return b'{"%b":[%b' % (NAME.encode(), body[len(history.raw) + comma.end() :])


def end_of(text: bytes, start: int, count: int) -> int:
    """The index behind the last of `count` JSON values that follow each other from `start`; 0 if
    they cannot be read."""
    # Each byte as one character: only the syntax matters, which is ASCII.
    read, at = text.decode("latin-1"), start
    try:
        for number in range(count):
            if number:
                comma = _COMMA.match(read, at)
                if comma is None:
                    return 0
                at = comma.end()
            _, at = _scan(read, at)
    except (ValueError, RecursionError):
        return 0
    return at
