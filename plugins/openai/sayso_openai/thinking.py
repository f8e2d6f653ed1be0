"""Thoughts that stand in a message's text, between marks that the server left in it."""

from __future__ import annotations

from collections.abc import Iterator

_MARKS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "[THINK]": "[/THINK]",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|channel|>commentary<|message|>": "<|end|>",
}
_SILENT = ("<|start|>assistant", "<|channel|>final<|message|>")
"""Marks that say nothing more than that the answer begins."""
_ENDS = ("<|return|>", "<|end|>")


class Thinking:
    """Parts a text into thoughts and answer; `(text, is_thought)` as its pieces come.

    Marks count only where the message begins, and right behind a thought: an answer may be about
    them. With `first` a text without a mark begins as thought, as models write whose prompt ends
    with one; if its end never comes, all of it was the answer.
    """

    def __init__(self, *, first: bool) -> None:
        self._rest = ""
        self._close = "</think>" if first else ""
        self._unmarked = first
        self._held: list[str] = []
        self._answering = False
        self._channels = False

    def feed(self, text: str) -> Iterator[tuple[str, bool]]:
        """The parts of what is known by now; the rest may be half a mark."""
        if self._answering:
            yield self._without_end(text), False
            return
        self._rest += text
        while self._rest and not self._answering:
            before = self._rest
            yield from self._thought() if self._close else self._opening()
            if self._rest == before and not self._answering:
                return
        if self._answering and self._rest:
            yield self._without_end(self._rest), False
            self._rest = ""

    def rest(self) -> Iterator[tuple[str, bool]]:
        """The text that was held back, when no more follows."""
        if self._unmarked and self._close:
            yield "".join(self._held) + self._rest, False
        elif self._rest:
            yield self._rest, bool(self._close)
        self._rest, self._held = "", []

    def plain(self) -> None:
        """Take the text for the answer: the server separates the thoughts itself."""
        if self._unmarked and self._close and not self._held and not self._rest:
            self._close, self._unmarked = "", False

    def _opening(self) -> Iterator[tuple[str, bool]]:
        bare = self._rest.lstrip()
        for mark, close in _MARKS.items():
            if bare.startswith(mark):
                self._rest, self._close = bare[len(mark) :], close
                self._channels = self._channels or mark.startswith("<|")
                return
        for mark in _SILENT:
            if bare.startswith(mark):
                self._rest, self._channels = bare[len(mark) :], True
                return
        if not bare or any(mark.startswith(bare) for mark in (*_MARKS, *_SILENT)):
            return
        self._answering = True
        yield from ()

    def _thought(self) -> Iterator[tuple[str, bool]]:
        if self._unmarked:
            bare = self._rest.lstrip()
            if not self._held and (mark := next((m for m in _MARKS if bare.startswith(m)), None)):
                self._rest, self._close = bare[len(mark) :], _MARKS[mark]
                self._unmarked = False
                return
        thought, found, rest = self._rest.partition(self._close)
        if not found:
            keep = _half_mark(self._rest, self._close)
            end = len(self._rest) - keep
            thought, self._rest = self._rest[:end], self._rest[end:]
        else:
            self._rest, self._close = rest.lstrip(), ""
        if self._unmarked:
            self._held.append(thought)
            if found:
                self._unmarked = False
                yield "".join(self._held), True
                self._held = []
        elif thought:
            yield thought, True

    def _without_end(self, text: str) -> str:
        # Without channels, these marks are part of the answer.
        for mark in _ENDS if self._channels else ():
            text = text.replace(mark, "")
        return text


def _half_mark(text: str, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)
