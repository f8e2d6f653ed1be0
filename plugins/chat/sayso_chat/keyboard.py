"""The texts that a person types: messages of one or more lines, and answers."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import sys
from typing import Any

from sayso_chat.kept import Kept

_AT_ONCE = 0.03
"""Seconds within which the next line of a paste arrives."""
_MORE = ". "


class Keyboard:
    """The person's lines; messages are remembered in `kept`, answers are not."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._readline = _readline()
        # GNU's takes a paste as one line by itself.
        self._takes_pastes = self._readline is not None and _is_gnu(self._readline)
        self._last = ""
        for text in kept.history() if self._readline else ():
            self._add(text)

    def message(self, prompt: str) -> str:
        """A message: a line, all lines of a paste, or lines of which all but the last end with a
        backslash. Raises EOFError when the person leaves."""
        text = self._lines(prompt)
        while text.endswith("\\"):
            try:
                text = f"{text[:-1]}\n{self._lines(_MORE)}"
            except EOFError:
                text = text[:-1]
                print()
        text = text.strip()
        if text and text != self._last:
            self._add(text)
            self._kept.remember(text)
        return text

    def answer(self, prompt: str, *, unseen: bool = False) -> str:
        """A line that answers a question. None of the keys pressed before it was shown do, if the
        person has `unseen` things before the question."""
        if unseen:
            _forget_typed_ahead()
        return input(prompt).strip()

    def _add(self, text: str) -> None:
        self._last = text
        if self._readline:
            self._readline.add_history(text)

    def _lines(self, prompt: str) -> str:
        lines = [input(prompt)]
        while not self._takes_pastes and _another_has_arrived():
            try:
                lines.append(input())
            except EOFError:
                break
        return "\n".join(lines).replace("\r\n", "\n").replace("\r", "\n")


def _readline() -> Any:
    """The module readline, if it edits the lines of this terminal."""
    if os.environ.get("TERM") == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        module = importlib.import_module("readline")
    except ImportError:
        return None
    module.set_auto_history(False)
    if _is_gnu(module):
        module.parse_and_bind("set enable-bracketed-paste on")
        # Alt and Enter begin another line.
        module.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')
    return module


def _is_gnu(readline: Any) -> bool:
    return "libedit" not in (readline.__doc__ or "")


def _another_has_arrived() -> bool:
    with contextlib.suppress(OSError, ValueError):
        return bool(select.select([sys.stdin], [], [], _AT_ONCE)[0])
    return False


def _forget_typed_ahead() -> None:
    """Drop keys pressed before the question was shown: none of them answers it."""
    try:
        import termios
    except ImportError:
        return
    with contextlib.suppress(termios.error, OSError, ValueError):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
