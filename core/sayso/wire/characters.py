"""Characters that a person who reads a call would not recognise for what they are."""

from __future__ import annotations

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
