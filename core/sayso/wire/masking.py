"""Masking: the secrets of a request are removed from what is logged, recorded and sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sayso.wire.canonical import canonical
from sayso.wire.lenient_json import dump_json

MASK = "[secret]"


def mask(value: Any, secrets: Sequence[str]) -> Any:
    """`value` with each secret replaced, in every string of it, keys included."""
    if not secrets:
        return value
    return _masked(value, _Many(secrets).held if len(secrets) > _MANY else lambda _: secrets)


def mask_sent(value: Any, secrets: Sequence[str]) -> Any:
    """`value` as JSON values, masked: some values become text only when they are written as
    JSON."""
    return mask(json.loads(dump_json(value)), secrets) if secrets else value


def _masked(value: Any, held: Callable[[str], Sequence[str]]) -> Any:
    match value:
        case str():
            for secret in held(value):
                if secret in value:
                    # What is masked stays so: the secret may stand in the mask.
                    parts = value.split(MASK) if secret in MASK else [value]
                    value = MASK.join(part.replace(secret, MASK) for part in parts)
            return value
        case dict():
            return {_masked(k, held): _masked(v, held) for k, v in value.items()}
        case list() | tuple():
            return [_masked(item, held) for item in value]
    return value


_MANY = 2000
"""Secrets from which on to look for one after another takes longer than for all at once."""


class _Many:
    """Many secrets, looked for by their ends, each of one length."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._length = length = min(8, min(map(len, secrets)))
        self._by_end: dict[str, list[str]] = {}
        for secret in secrets:
            self._by_end.setdefault(secret[-length:], []).append(secret)
        self._parts = {*self._by_end, *(secret[:length] for secret in secrets)}

    def held(self, text: str) -> list[str]:
        """The secrets whose beginning and end the text holds, the longest first."""
        length = self._length
        starts = range(len(text) - length + 1)
        parts = self._parts.intersection(text[at : at + length] for at in starts)
        # Many keys begin alike, few end so.
        ending = (secret for end in parts & self._by_end.keys() for secret in self._by_end[end])
        return sorted((s for s in ending if s[:length] in parts), key=len, reverse=True)


def holds_secret(value: Any, secrets: Sequence[str]) -> bool:
    """Whether any string of `value` holds a secret."""
    return bool(secrets) and canonical(mask(value, secrets)) != canonical(value)
