"""The parameters that Claude models accept, and the numbers of tokens that they read and write, by
generation."""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int]

CURRENT: Version = (5, 5)


def version_of(model: str) -> Version:
    """The generation in a model id, `(4, 6)` for `claude-opus-4-6`; an unknown id is current."""
    if found := re.search(r"claude-(?:[a-z]+-)+(\d{1,2})(?:[-.](\d{1,2}))?(?![\d])", model):
        return int(found[1]), int(found[2] or 0)
    if found := re.search(r"claude-(\d)(?:[-.](\d))?-[a-z]", model):
        return int(found[1]), int(found[2] or 0)
    return CURRENT


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of one model.

    - `output`: the most tokens of an answer, thinking included;
    - `window`: the most tokens that it can read;
    - `efforts`: its levels of effort;
    - `thinks`: whether it decides itself how much to think; `thinks_off`: whether it can be asked
      not to;
    - `sampling`: whether it accepts temperature and the like;
    - `late_system`: whether it accepts a system message after the user's.
    """

    output: int
    window: int
    thinks: bool = False
    thinks_off: bool = False
    sampling: bool = False
    late_system: bool = False
    efforts: tuple[str, ...] = ()


def abilities_of(model: str) -> Abilities:
    """The abilities of the model with this id."""
    version = version_of(model)
    return Abilities(
        output=_output(model, version),
        window=1_000_000 if version >= (4, 6) else 200_000,
        thinks=version >= (4, 6),
        # Models from 5.5 on refuse to be asked not to think.
        thinks_off=(4, 6) <= version < (5, 5),
        sampling=version in ((4, 5), (4, 6)),
        late_system=version >= (4, 8),
        efforts=_efforts(version),
    )


def _output(model: str, version: Version) -> int:
    if version >= (4, 6):
        return 64_000 if version == (4, 6) and "opus" not in model else 128_000
    if version >= (4, 5) or (version == (4, 0) and "sonnet" in model) or version == (3, 7):
        return 64_000
    if version >= (4, 0):
        return 32_000
    return 8_192 if version == (3, 5) else 4_096


def _efforts(version: Version) -> tuple[str, ...]:
    if version >= (4, 7):
        return ("low", "medium", "high", "xhigh", "max")
    return ("low", "medium", "high", "max") if version >= (4, 6) else ()
