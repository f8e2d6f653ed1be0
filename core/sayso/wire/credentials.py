"""The secret values in credentials of any shape, and inside a kubeconfig."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator
from contextlib import suppress

_PUBLIC = (
    (("region",), re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}")),
    (("account", "accountid"), re.compile(r"\d{12}")),
    (("role", "rolearn"), re.compile(r"arn:aws[a-z-]*:(iam|sts)::\d{12}:[\w+=,.@/-]+")),
    (("endpoint", "endpointurl"), re.compile(r"https?://[\w.-]+(:\d+)?/?")),
)
"""The values in credentials that are no secrets: where these give access to, which approvers are
shown, and which are inputs of many tools. For the ends of their names, their form."""
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
"""The value after such a name: quoted, a block of lines, or bare. `bare` ends at a space, `braced`
also at a character that ends a value within braces."""
_ELSEWHERE = re.compile(
    r"""
    (?<![\w-])--[\w-]*(?:token|secret|password)["']?(?:=|\s*,\s*|\s+-\s+)["']?
        (?P<argument>[^\s"',\]-][^\s"',\]]*)
    | ://[^/\s:@]*:(?P<address>[^/\s@]+)@
    """,
    re.VERBOSE,
)
"""Credentials in the arguments of a user's program, and in addresses."""
_SHORTEST = 8


def in_kubeconfig(encoded: str) -> Iterator[str]:
    """The kubeconfig as it was sent, and the credentials in it, as commands read them."""
    yield encoded
    with suppress(ValueError):
        plain = binascii.a2b_base64(encoded).decode("utf-8", "replace")
        yield from (value for value in _within(plain) if len(value) >= _SHORTEST)


def _within(plain: str) -> Iterator[str]:
    for found in _ELSEWHERE.finditer(plain):
        yield from filter(None, found.groups())
    at = 0
    while named := _NAMED.search(plain, at):
        at = named.end()
        if value := _VALUE.match(plain, at):
            yield from _read(value)
            # A value may contain its name, as in `token: token-...`.
            at = max(value.end(), value.end("bare"))


def _read(value: re.Match[str]) -> Iterator[str]:
    """The value as written, and with its quotes and escapes resolved."""
    found = value.groupdict("")
    yield from (found["bare"], found["braced"], found["double"], found["single"], found["block"])
    yield found["single"].replace("''", "'")
    yield "\n".join(line.strip() for line in found["block"].splitlines())
    with suppress(ValueError):
        yield json.loads(f'"{found["double"]}"')


def in_credentials(value: object) -> Iterator[str]:
    """Each string in credentials of any shape, except where these give access to."""
    match value:
        case str():
            yield value
        case dict():
            for name, item in value.items():
                if not _is_public(name, item):
                    yield from in_credentials(item)
        case list():
            for item in value:
                yield from in_credentials(item)


def _is_public(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, str):
        return False
    plain = re.sub("[^a-z]", "", name.lower())
    return any(plain.endswith(ends) and form.fullmatch(value) for ends, form in _PUBLIC)
