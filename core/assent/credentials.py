"""The secret values of a platform context, in the forms in which code and tools write them."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterable, Iterator

_REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}")
"""What stands among credentials as their region is no secret, and an input of many tools."""
_NAMES = ("token", "password", "client-key-data", "client-secret")
_VALUE = re.compile(
    r"""["']?:\s*(?:"((?:[^"\\\n]|\\.)+)"|'([^'\n]+)'|(?=([^\s"']\S*))([^\s,}]+))"""
)
"""What stands behind the names of a user's credentials in a kubeconfig, YAML or JSON: in quotes,
or bare, up to a space or to what ends it within braces."""
_SHORTEST = 8


def secret_forms(values: Iterable[str]) -> list[str]:
    """Each form of each value that is long enough to mask, the longest first."""
    forms = {form for value in values for form in _forms(value)}
    return longest_first(form for form in forms if len(form) >= 4)


def longest_first(texts: Iterable[str]) -> list[str]:
    """The texts in the order in which they are masked."""
    return sorted(texts, key=len, reverse=True)


def in_kubeconfig(encoded: str) -> list[str]:
    """The kubeconfig as it is sent, and the credentials in it, as commands read them."""
    try:
        plain = binascii.a2b_base64(encoded).decode("utf-8", "replace")
    except ValueError:
        return [encoded]
    return [encoded, *(value for name in _NAMES for value in _behind(name, plain))]


def _behind(name: str, plain: str) -> Iterator[str]:
    at = plain.find(name)
    while at >= 0:
        at += len(name)
        if found := _VALUE.match(plain, at):
            yield from (value for value in found.groups("") if len(value) >= _SHORTEST)
            # A value may hold its name, as `token: token-...` does.
            at = max(map(found.end, range(1, 5)))
        at = plain.find(name, at)


def in_credentials(value: object) -> list[str]:
    """Each text of credentials of any shape, but for what says where they hold."""
    match value:
        case str():
            return [value]
        case dict():
            kept = [item for name, item in value.items() if not _is_region(name, item)]
            return in_credentials(kept)
        case list():
            return [text for item in value for text in in_credentials(item)]
    return []


def _forms(value: str) -> set[str]:
    """A secret as tools and tracebacks write it: in JSON, quoted, without its line ends."""
    bare = value.strip()
    said = (json.dumps(bare), json.dumps(bare, ensure_ascii=False), repr(bare))
    return {value, bare, "".join(bare.split()), *(text[1:-1] for text in said)}


def _is_region(name: object, value: object) -> bool:
    named = isinstance(name, str) and name.lower().endswith("region")
    return named and isinstance(value, str) and _REGION.fullmatch(value) is not None
