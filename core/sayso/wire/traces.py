"""Errors as the model, the caller and the log get them: short, and without the request's
secrets."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from sayso.errors import ToolInputError, counted, message_of
from sayso.wire.lenient_json import encodable
from sayso.wire.masking import mask

_LONGEST_ERROR = 500
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
    """The text of an exception for model and caller: one short line, no stack trace, no secret.

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
    text = said[:_LONGEST_ERROR].splitlines()
    message = text[0] if text else type(error).__name__
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
