"""Masking: the secrets of a request are removed from what is logged, recorded and sent, texts of
errors and tracebacks among it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import traceback
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import Any, overload

from sayso.errors import ToolInputError, counted, message_of
from sayso.trees import canonical, rebuilt
from sayso.wire.json_bytes import dump_json, encodable
from sayso.wire.secret_forms import longest_first, secret_forms

MASK = "[secret]"
_MANY = 2000
"""From this number of forms on, searching for all at once is faster than for one after another."""
_WRAPPED = 8
"""From this length on a form is also found if line breaks split it."""
_LINE_END = re.compile(r"\n[ \t]*|\r\n[ \t]*|\\\\{0,3}(?:r\\{1,4})?n[ \t]*")
"""A line break and the indent after it. In JSON, which may itself be inside JSON, it is escaped.
Each alternative begins with a fixed character, which makes the search ten times faster."""


class Secrets(Sequence[str]):
    """The secrets to mask, the longest first; made once for a request, and never shown."""

    __slots__ = ("_all", "_lone", "_solid", "_texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = tuple(longest_first(texts))
        solid = [t for t in self._texts if len(t) >= _WRAPPED and not _LINE_END.search(t)]
        known = set(solid)
        self._all = _finder(self._texts)
        self._solid = _finder(solid)
        self._lone = _finder([text for text in self._texts if text not in known])

    @classmethod
    def of(cls, values: Iterable[str]) -> Secrets:
        """The secrets in each form in which they may be written."""
        return cls(secret_forms(values))

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._texts[at]

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return f"<{len(self)} secrets>"

    def __deepcopy__(self, memo: object) -> Secrets:
        return self

    def __reduce__(self) -> Any:
        return Secrets, (self._texts,)

    def hidden(self, text: str) -> str:
        """The text with each secret replaced."""
        if not _has_line_ends(text):
            return _replaced(text, self._all.held(text))
        joined = _LINE_END.sub("", text)
        solid = self._solid.held(joined)
        text = _replaced(text, longest_first([*self._lone.held(text), *solid]))
        return _unwrapped(text, solid) if solid else text


def mask(value: Any, secrets: Sequence[str]) -> Any:
    """`value` with each secret replaced, in all its strings, keys included."""
    if not secrets:
        return value
    known = secrets if isinstance(secrets, Secrets) else Secrets(secrets)

    def masked(leaf: Any) -> Any:
        return known.hidden(leaf) if isinstance(leaf, str) else leaf

    return rebuilt(value, masked, masked)


def mask_apart(value: Any, secrets: Sequence[str]) -> Any:
    """`value` with each secret replaced in its values; a text that held any has a digest behind it,
    since two texts that are masked alike may differ."""

    def masked(leaf: Any) -> Any:
        if (shown := mask(leaf, secrets)) == leaf:
            return leaf
        # Slow to guess from: the ledger keeps it, and approvers see it.
        text = leaf.encode("utf-8", "surrogatepass")
        digest = hashlib.scrypt(text, salt=b"sayso:bound", n=2**12, r=8, p=1, dklen=8)
        return f"{shown} (digest {digest.hex()})"

    return rebuilt(value, masked)


def mask_sent(value: Any, secrets: Sequence[str]) -> Any:
    """`value` as JSON values, masked: some values become text only when written as JSON."""
    return mask(json.loads(dump_json(value)), secrets) if secrets else value


def holds_secret(value: Any, secrets: Sequence[str]) -> bool:
    """Whether any string in `value` contains a secret."""
    return bool(secrets) and canonical(mask(value, secrets)) != canonical(value)


def _replaced(text: str, held: Sequence[str]) -> str:
    for secret in held:
        if secret in text:
            # Do not mask a mask: the secret may be a part of it.
            parts = text.split(MASK) if secret in MASK else [text]
            text = MASK.join(part.replace(secret, MASK) for part in parts)
    return text


def _has_line_ends(text: str) -> bool:
    return "\n" in text or "\\n" in text


def _unwrapped(text: str, held: Sequence[str]) -> str:
    """The text without those secrets that line breaks split."""
    ends = [found.span() for found in _LINE_END.finditer(text)]
    joined = _LINE_END.sub("", text)
    # The positions of the line breaks in the joined text, and how much was removed up to each.
    gone = list(accumulate(end - start for start, end in ends))
    stood = [start - before for (start, _), before in zip(ends, [0, *gone], strict=False)]

    def place(at: int) -> int:
        known = bisect_right(stood, at)
        return at + (gone[known - 1] if known else 0)

    made, done = [], 0
    for start, end in _spans(joined, held):
        made += [text[done : place(start)], MASK]
        done = place(end - 1) + 1
    return "".join([*made, text[done:]])


def _spans(text: str, held: Sequence[str]) -> list[tuple[int, int]]:
    """The positions of the secrets, in order; overlapping ones are joined."""
    found = []
    for secret in held:
        at = -1 if secret in MASK else text.find(secret)
        while at >= 0:
            found.append((at, at + len(secret)))
            at = text.find(secret, at + len(secret))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


class _Few:
    """A few secrets, searched for one after another."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    def held(self, text: str) -> list[str]:
        """The secrets in the text, the longest first."""
        return [secret for secret in self._secrets if secret in text]


class _Many:
    """Many secrets, found by their ends, each of one length."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._length = length = min(8, min(map(len, secrets)))
        self._by_end: dict[str, list[str]] = {}
        for secret in secrets:
            self._by_end.setdefault(secret[-length:], []).append(secret)
        self._parts = {*self._by_end, *(secret[:length] for secret in secrets)}

    def held(self, text: str) -> list[str]:
        """The secrets whose beginning and end are in the text, the longest first."""
        length = self._length
        starts = range(len(text) - length + 1)
        parts = self._parts.intersection(text[at : at + length] for at in starts)
        # Many keys begin alike, few end alike.
        ending = (secret for end in parts & self._by_end.keys() for secret in self._by_end[end])
        return longest_first(s for s in ending if s[:length] in parts)


def _finder(secrets: Sequence[str]) -> _Few | _Many:
    return _Many(secrets) if len(secrets) > _MANY else _Few(secrets)


NO_SECRETS = Secrets()
"""The secrets of requests without any, which most are."""


_LONGEST_ERROR = 500
_TRACE = re.compile(r"^Traceback \(most recent call last\)|^\s+at [\w.$<>/]+\(", re.MULTILINE)
"""The beginning of a stack trace in the text of an exception, of Python or of Java."""
_LONGEST_TRACE = 64 * 2**10
_SHOWN_MEMBERS = 5
_SEARCHED = 100
_OURS = f"{Path(__file__).resolve().parent.parent}{os.sep}"
_LIBRARY = Path(os.__file__).resolve().parent
_FOLDED = (
    _OURS,
    *(f"{_LIBRARY / name}" for name in ("asyncio", "concurrent", "threading.py", "contextvars.py")),
)
"""The beginnings of the names of files whose frames are folded."""


def error_text(error: BaseException, secrets: Sequence[str]) -> str:
    """The text of an exception for model and caller: short, in one line, no stack trace, no secret.

    Of a group, such as a TaskGroup raises, the texts of its first exceptions.
    """
    message = _line(error, secrets)
    if isinstance(error, BaseExceptionGroup):
        first = islice(_members(error), _SHOWN_MEMBERS)
        message += f": {'; '.join(_line(each, secrets) for each in first)}"
    return encodable(f"Error: {message[:_LONGEST_ERROR]}")


def _line(error: BaseException, secrets: Sequence[str]) -> str:
    # Masked first, like an output.
    said = mask(message_of(error), secrets).strip()
    # Only this part is split into lines: an error may quote a whole output.
    text = _TRACE.split(said[:_LONGEST_ERROR], maxsplit=1)[0].splitlines()
    message = " ".join(filter(None, map(str.strip, text))) or type(error).__name__
    plain = (ValueError, RuntimeError, ToolInputError, BaseExceptionGroup)
    return (
        f"{type(error).__name__}: {message}" if text and not isinstance(error, plain) else message
    )


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _members(each)
        else:
            yield each


def hidden_trace(error: BaseException, secrets: Sequence[str]) -> str:
    """The stack trace of `error` for the log, without the request's secrets, truncated."""
    try:
        trace = _trace(error)
    except Exception:
        # CPython 3.11 may fail to parse the source lines of a RecursionError.
        trace = f"{type(error).__name__} (its stack trace cannot be shown)"
    return cut(mask(trace, secrets), _LONGEST_TRACE)


def _trace(error: BaseException) -> str:
    chain: dict[int, BaseException] = {}
    cause: BaseException | None = error
    while cause is not None and id(cause) not in chain:
        chain[id(cause)] = cause
        cause = cause.__cause__ or cause.__context__
    if max(len(message_of(each)) for each in chain.values()) < _LONGEST_TRACE:
        whole = logging.getLogger("sayso").isEnabledFor(logging.DEBUG)
        shown = traceback.TracebackException.from_exception(error)
        return "".join((shown if whole else _folded(shown)).format())
    # The lines of the stack trace are split further by `splitlines`.
    parts = [
        f"{''.join(traceback.format_tb(each.__traceback__))}{type(each).__name__}: "
        f"{message_of(each)}\n"
        for each in reversed(chain.values())
    ]
    return "\n".join(parts)


class _Folded(traceback.StackSummary):
    """A stack in which frames of Sayso and of the event loop are one line, but for the last one."""

    def format(self, **how: Any) -> list[str]:
        """The lines of the stack."""
        if not self:
            return super().format(**how)
        lines: list[str] = []
        *before, last = self
        for folds, frames in groupby(before, lambda frame: frame.filename.startswith(_FOLDED)):
            several = list(frames)
            if folds:
                number = sum(frame.filename.startswith(_OURS) for frame in several)
                if number:
                    lines.append(f"  ... {counted(number, 'frame')} of Sayso\n")
            else:
                lines += traceback.StackSummary.from_list(several).format(**how)
        return [*lines, *traceback.StackSummary.from_list([last]).format(**how)]


def _folded(shown: traceback.TracebackException) -> traceback.TracebackException:
    """`shown` with folded stacks, those of its causes and members as well."""
    waiting: list[traceback.TracebackException | None] = [shown]
    while waiting:
        each = waiting.pop()
        if each is not None and not isinstance(each.stack, _Folded):
            each.stack = _Folded(each.stack)
            waiting += [
                each.__cause__,
                each.__context__,
                *(getattr(each, "exceptions", None) or ()),
            ]
    return shown


def raised_at(error: BaseException) -> str:
    """The place in a plugin's or an agent's code where `error` was raised, as " (FILE, line N)";
    empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    frames = reversed(traceback.extract_tb(error.__traceback__, limit=-_SEARCHED))
    inner = (frame for frame in frames if not frame.filename.startswith((*_FOLDED, "<")))
    found = next(inner, None)
    return f" ({found.filename}, line {found.lineno})" if found else ""


def hide(error: BaseException, secrets: Sequence[str]) -> None:
    """Mark `error` so that these secrets are left out wherever it is shown or logged; see
    `hidden_in`."""
    error.__dict__["sayso_secrets"] = secrets


def hidden_in(error: BaseException) -> Sequence[str]:
    """The secrets that `hide` recorded for `error`."""
    found: Sequence[str] = error.__dict__.get("sayso_secrets", ())
    return found


def cut(text: str, limit: int) -> str:
    """`text` within `limit` bytes of UTF-8, with a last line that says what was cut off."""
    if len(text) <= limit and text.isascii():
        return text
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    kept = raw[:limit].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {limit} of {len(raw)} bytes are shown]"
