"""Characters that a person who reads a call would not recognise for what they are."""

from __future__ import annotations

import json
import re

# What Unicode lets a screen leave out although it counts as a letter or a mark, and the blank
# pattern of Braille.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def unseen(character: str) -> bool:
    """Whether `character` is invisible, controls the terminal, reorders text, or imitates a
    space."""
    return not character.isprintable() or _BLANK.match(character) is not None


_LEFTWARD = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_RUN = re.compile(f"[{_LEFTWARD}]+(?: +[{_LEFTWARD}]+)*")
"""Letters that are written from right to left, and the spaces between words of them."""


def isolated(text: str) -> str:
    """`text` with each run of right-to-left letters isolated: between two of them a screen would
    show `3 > 9` as `9 < 3`."""
    return text if text.isascii() else _RUN.sub("\u2068\\g<0>\u2069", text)


def escaped(text: str) -> str:
    """JSON `text` in which every character that a person would not recognise is an escape."""
    return "".join(
        char if char == "\n" or not unseen(char) else json.dumps(char)[1:-1] for char in text
    )
