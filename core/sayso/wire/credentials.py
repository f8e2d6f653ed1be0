"""The secret values of a platform context, in every form in which code and tools write them."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

_REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}")
"""A region stands among credentials, but is no secret, and is an input of many tools."""
_NAMED = re.compile(
    r"""
    (?: token | password | client-key-data | client-secret
      | name["']?:\s* ["']?\w*(?:TOKEN|SECRET|PASSWORD|KEY|KEY_ID)["']?,?\s* ["']?value
    )["']?\s*:\s* (?:[!&]\S*\s+)?
    """,
    re.VERBOSE,
)
"""Names of credentials in a kubeconfig, YAML or JSON: a user's own, and the environment variables
of the program that fetches a user's token."""
_VALUE = re.compile(
    r"""
    "(?P<double>(?:[^"\\\n]|\\.)+)"
    | '(?P<single>(?:[^'\n]|\'\')+)'
    | [|>][-+\d]*\s*?\n(?P<indent>[ \t]+)(?P<block>.+(?:\n(?P=indent).+)*)
    | (?=(?P<bare>[^\s"']\S*))(?P<braced>[^\s,}]+)
    """,
    re.VERBOSE,
)
"""The value behind such a name: quoted, a block of lines, or bare. `bare` ends at a space, `braced`
also at what ends a value within braces."""
_ELSEWHERE = re.compile(
    r"""
    (?<![\w-])--[\w-]*(?:token|secret|password)["']?(?:=|\s*,\s*|\s+-\s+)["']?
        (?P<argument>[^\s"',\]-][^\s"',\]]*)
    | ://[^/\s:@]*:(?P<address>[^/\s@]+)@
    """,
    re.VERBOSE,
)
"""Credentials among the arguments of a user's program, and in addresses."""
_SHORTEST = 8
_AS_GO = str.maketrans({"&": r"\u0026", "<": r"\u003c", ">": r"\u003e"})
"""What the tools of Kubernetes, written in Go, escape in JSON beside what they must."""


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
    return [encoded, *(value for value in _within(plain) if len(value) >= _SHORTEST)]


def _within(plain: str) -> Iterator[str]:
    for found in _ELSEWHERE.finditer(plain):
        yield from filter(None, found.groups())
    at = 0
    while named := _NAMED.search(plain, at):
        at = named.end()
        if value := _VALUE.match(plain, at):
            yield from _read(value)
            # A value may hold its name, as `token: token-...` does.
            at = max(value.end(), value.end("bare"))


def _read(value: re.Match[str]) -> Iterator[str]:
    """The value as it is written, and as it is meant."""
    found = value.groupdict("")
    yield from (found["bare"], found["braced"], found["double"], found["single"], found["block"])
    yield found["single"].replace("''", "'")
    yield "\n".join(line.strip() for line in found["block"].splitlines())
    with suppress(ValueError):
        yield json.loads(f'"{found["double"]}"')


def in_credentials(value: object) -> list[str]:
    """Each string in credentials of any shape, except a region."""
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
    """A secret as tools and tracebacks write it: in JSON, which may stand in JSON itself, quoted,
    without its line ends."""
    bare = value.strip()
    once = _in_json(bare)
    twice = {form for text in once - {bare} for form in _in_json(text)}
    return {value, bare, "".join(bare.split()), repr(bare)[1:-1], *once, *twice}


def _in_json(text: str) -> set[str]:
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    return {written, json.dumps(text)[1:-1], written.translate(_AS_GO)}


def _is_region(name: object, value: object) -> bool:
    named = isinstance(name, str) and name.lower().endswith("region")
    return named and isinstance(value, str) and _REGION.fullmatch(value) is not None
