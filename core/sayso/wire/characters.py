"""Characters that a person reading a call would not recognise as what they are."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

# Characters that Unicode allows a screen to leave out although they count as letters or marks, and
# the blank pattern of Braille.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)

_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
"""Parts of emoji and of some scripts; harmless in prose."""


def unseen(character: str) -> bool:
    """Whether `character` is invisible, controls the terminal, reorders text, or imitates a
    space."""
    return not character.isprintable() or _BLANK.match(character) is not None


_LEFTWARD = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_RUN = re.compile(f"[{_LEFTWARD}]+(?: +[{_LEFTWARD}]+)*")
"""Letters written from right to left, and the spaces between their words."""


def isolated(text: str) -> str:
    """`text` with each run of right-to-left letters isolated: between two of them a screen would
    show `3 > 9` as `9 < 3`."""
    return text if text.isascii() else _RUN.sub("\u2068\\g<0>\u2069", text)


def visible(text: str, *, strict: bool = False) -> str:
    """`text` with each character that a terminal obeys or does not show written as `<U+001B>`.

    Line ends and tabs stay. `strict` also writes out joiners, look-alikes of the space, and the
    first half of a Windows line end, and isolates text written from right to left.
    """
    shown = _written_out(text, strict=strict)
    return isolated(shown) if strict else shown


def _written_out(text: str, *, strict: bool) -> str:
    if text.isascii() and text.isprintable():
        return text
    if not strict:
        text = text.replace("\r\n", "\n")
    return "".join(_seen(char, strict) for char in text)


def _seen(char: str, strict: bool) -> str:
    if char in "\n\t" or not unseen(char) or (char in _JOINERS and not strict):
        return char
    if unicodedata.category(char) == "Zs" and not strict:
        return char
    return f"<U+{ord(char):04X}>"


def pretty(value: Any) -> str:
    """`value` as indented JSON; invisible characters are `\\u` escapes."""
    return isolated(escaped(json.dumps(value, ensure_ascii=False, indent=2)))


def escaped(text: str) -> str:
    """JSON `text` in which every character that a person would not recognise is escaped."""
    return "".join(
        char if char == "\n" or not unseen(char) else json.dumps(char)[1:-1] for char in text
    )
