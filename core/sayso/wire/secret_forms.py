"""A secret in every form in which code and tools write it: in JSON, encoded, or quoted."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator

_SHORTEST = 4
"""Shortest form, in characters, that is masked; shorter ones occur in half of all words."""
_SHORTEST_ENCODED = 8
_LONGEST_ENCODED = 64 * 2**10
"""Longest value, in characters, whose encodings are searched for. A longer one is a whole
kubeconfig, whose credentials are searched for in all encodings."""
_AS_GO = str.maketrans({"&": r"\u0026", "<": r"\u003c", ">": r"\u003e"})
"""Characters that Kubernetes' tools, written in Go, escape in JSON although they need not."""
_HTML_IN_GO = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;", "+": "&#43;"}
)
_MARKUP = re.compile("[&<>\"'+]")
_RESERVED = re.compile(r"[^\w.~-]", re.ASCII)
_ESCAPED = re.compile("%[0-9A-F]{2}")
_SHELL_UNSAFE = re.compile(r"[^\w@%+=:,./-]", re.ASCII)
_SHELL_IN_QUOTES = re.compile(r'[\\"$`!]')


def secret_forms(values: Iterable[str]) -> list[str]:
    """Each form of each value that is long enough to mask, the longest first."""
    forms = {form for value in values for form in _forms(value)}
    return longest_first(form for form in forms if len(form) >= _SHORTEST)


def longest_first(texts: Iterable[str]) -> list[str]:
    """The texts in the order of masking."""
    return sorted(texts, key=len, reverse=True)


def _forms(value: str) -> set[str]:
    """A secret as tools and tracebacks write it: in JSON, possibly inside JSON, quoted, without its
    line breaks, and encoded."""
    bare = value.strip()
    once = _in_json(bare)
    twice = {form for text in once - {bare} for form in _in_json(text)}
    forms = {value, bare, "".join(bare.split()), repr(bare)[1:-1], *once, *twice}
    if _SHORTEST_ENCODED <= len(bare) <= _LONGEST_ENCODED:
        for encoded in (_in_addresses, _in_base64, _in_hex, _in_html, _in_shell):
            forms.update(form for form in encoded(bare) if len(form) >= _SHORTEST_ENCODED)
    return forms


def _in_json(text: str) -> set[str]:
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    return {written, json.dumps(text)[1:-1], written.translate(_AS_GO)}


def _in_addresses(text: str) -> Iterator[str]:
    """Percent-encoded as by Python, browsers and forms, with digits of either case."""
    as_bytes = text.encode("utf-8", "replace").decode("latin-1")
    upper = _RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", as_bytes)
    if "%" not in upper:
        return
    for whole in (upper, _ESCAPED.sub(lambda found: found[0].lower(), upper)):
        for kept in ("", "/", "!*'()"):
            written = whole
            for character in kept:
                written = written.replace(f"%{ord(character):02X}", character)
                written = written.replace(f"%{ord(character):02x}", character)
            yield from (written, written.replace("%20", "+"))


def _in_base64(text: str) -> Iterator[str]:
    """The base64 characters that depend only on the text, whatever is before and after it, such as
    the user name in a Basic header."""
    raw = text.encode("utf-8", "replace")
    for before in range(3):
        whole = base64.b64encode(bytes(before) + raw).decode()
        # A character holds 6 bits; the first ones and the last also depend on the neighbours.
        own = whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        for written in (own, whole) if before == 0 else (own,):
            yield written
            yield written.replace("+", "-").replace("/", "_")


def _in_hex(text: str) -> Iterator[str]:
    digits = text.encode("utf-8", "replace").hex()
    yield digits
    yield digits.upper()


def _in_html(text: str) -> Iterator[str]:
    if not _MARKUP.search(text):
        return
    yield html.escape(text, quote=False)
    yield html.escape(text)
    yield html.escape(text).replace("&#x27;", "&#39;")
    yield text.translate(_HTML_IN_GO)


def _in_shell(text: str) -> Iterator[str]:
    """In single quotes, in double quotes, and with a backslash before each character."""
    yield shlex.quote(text).removeprefix("'").removesuffix("'")
    yield text.replace("'", r"'\''")
    yield _SHELL_IN_QUOTES.sub(r"\\\g<0>", text)
    yield _SHELL_UNSAFE.sub(r"\\\g<0>", text)
