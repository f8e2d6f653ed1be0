"""The parts of a function's docstring: for the model about the tool, for approvers about its
input."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_PARAMETERS = "args|arguments|params|parameters|keyword args|keyword arguments|other parameters"
_OTHERS = "returns?|yields?|receives|raises|exceptions?|except|warns|attributes?|examples?"
_MORE = "notes?|warnings?|see also|references|methods"
_GOOGLE = re.compile(rf"^(?:({_PARAMETERS})|{_OTHERS}):[ \t]*$", re.M | re.I)
_NUMPY = re.compile(rf"^(?:({_PARAMETERS})|{_OTHERS}|{_MORE}):?[ \t]*\n-{{2,}}[ \t]*$", re.M | re.I)
_FIELD = re.compile(
    # Sphinx, and Epydoc with its "@".
    r"^[:@](?:(?:param|parameter|arg|argument|key|keyword)\s[^:\n]*?(\w+)|"
    r"(?:type|returns?|rtype|yields?|ytype|raises?|except|exception|var|meta|deprecated)\b[^:\n]*):",
    re.M,
)
_NAME = r"[`*]*\w+[`*]*"
_NAMES = rf"({_NAME}(?:\s*,\s*{_NAME})*)"
_GOOGLE_ENTRY = re.compile(rf"(?:[-+*] )?{_NAMES}\s*(?:\(.*?\))?\s*:(.*)", re.S)
_NUMPY_ENTRY = re.compile(rf"{_NAMES}\s*(?::[^\n]*)?\n(.*)", re.S)


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring's prose and the description of each parameter, whatever its style."""

    prose: str
    parameters: Mapping[str, str]


def read_docstring(fn: Callable[..., Any]) -> Docstring:
    """The docstring of `fn`: Google, NumPy, Sphinx or Epydoc style, or plain prose."""
    text = inspect.cleandoc(_docstring(fn))
    parts = itertools.chain(*(style.finditer(text) for style in (_FIELD, _GOOGLE, _NUMPY)))
    found = sorted(parts, key=re.Match.start)
    if not found:
        return Docstring(text, {})
    described: dict[str, str] = {}
    prose = [text[: found[0].start()]]
    ends = [*(part.start() for part in found[1:]), len(text)]
    for part, end in zip(found, ends, strict=True):
        body, after = _parted(part, text[part.end() : end])
        prose.append(after)
        if part[1]:
            for names, words in _entries(part, body):
                if said := " ".join(words.split()):
                    described |= {name.strip(" `*\n"): said for name in names.split(",")}
    return Docstring("\n\n".join(filter(None, map(str.strip, prose))), described)


def _parted(part: re.Match[str], body: str) -> tuple[str, str]:
    """The text of a part, and the text after it that is not indented, which belongs to none."""
    if part.re is _NUMPY:
        return body, ""
    if part.re is _FIELD:
        end = re.search(r"\n\s*\n(?=\S)", body)
    else:
        end = re.search(rf"\n(?!{_indent(body)}|\s*\n)", body) if _indent(body) else None
    return (body[: end.start()], body[end.end() :]) if end else (body, "")


def _indent(body: str) -> str:
    lines = body.strip("\n")
    return lines[: len(lines) - len(lines.lstrip())]


def _entries(part: re.Match[str], body: str) -> Iterator[tuple[str, str]]:
    """The names and the description of each parameter in one part of a docstring."""
    if part.re is _FIELD:
        yield part[1], body
        return
    entry = _GOOGLE_ENTRY if part.re is _GOOGLE else _NUMPY_ENTRY
    for lines in re.split(rf"\n(?={_indent(body)}\S)", body.strip("\n")):
        if match := entry.match(lines.strip()):
            yield match[1], match[2]


def _docstring(fn: Callable[..., Any]) -> str:
    if isinstance(fn, functools.partial):
        return _docstring(fn.func)
    if inspect.isroutine(fn):
        return fn.__doc__ or ""
    return type(fn).__call__.__doc__ or type(fn).__doc__ or ""
