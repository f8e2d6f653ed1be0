"""A log record as text, or as JSON, of which no tool, model or caller can forge a part."""

from __future__ import annotations

import json
import logging
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from time import localtime, strftime
from typing import Any, NamedTuple

from sayso.addresses import without_credentials

ON = "  | "
"""The beginning of each further line of a record: of a trace."""
_TRACE = "\n%s"
_SHOWN = (str, int, float)
_WORD = re.compile("[^ \"'=]+")
_NAME = re.compile("[A-Za-z0-9_.:-]*")
"""A text that can hold no credentials, and needs no quotes."""
_encode = json.JSONEncoder(ensure_ascii=False).encode
_BREAKS = re.compile("[\x80-\x9f\u2028-\u202e\u2066-\u2069]")
"""Line ends and controls that JSON allows in a text; the first ones split a line for some readers,
such as Python's `splitlines`."""
LONGEST = 8192
"""Most characters of a value in JSON; a longer one is cut off, with a note."""
_FIRST = len(vars(logging.makeLogRecord({})))
"""Each record begins with as many attributes of its own; those of `extra` follow."""
_OTHERS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",  # uvicorn's: the text once more
}
"""Attributes that are no fields: those that every record has, and those that libraries add for
themselves."""

_context: ContextVar[Mapping[str, str] | None] = ContextVar("sayso_log_fields", default=None)


@contextmanager
def adding_fields(**more: str) -> Iterator[None]:
    """Add fields to each log record that the block writes, and that tasks write which it starts."""
    token = _context.set({**(_context.get() or {}), **more})
    try:
        yield
    finally:
        _context.reset(token)


def one_line(text: str) -> str:
    """`text` with line ends, control characters and reordering characters written out."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


class Line(NamedTuple):
    """A line of the log, made at `created` (seconds since the epoch), with the fields `given` to it
    beside those of `adding_fields`."""

    created: float
    level: str
    logger: str
    text: str
    given: Mapping[str, Any]
    traces: Sequence[str] = ()


class Lines(logging.Formatter, ABC):
    """The form of the log's lines, of which no tool, model or caller can forge a part."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of `record`, with its traces."""
        text, trace = _parts(record)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        traces = [each for each in (trace, record.exc_text, record.stack_info) if each]
        given = given_to(record)
        return self.line(Line(record.created, record.levelname, record.name, text, given, traces))

    @abstractmethod
    def line(self, line: Line) -> str:
        """The text of `line`."""


class LineFormatter(Lines):
    """One line of text, with its time, level and logger if it is `named`; the further lines of a
    trace all begin with `ON`."""

    def __init__(self, *, named: bool = False) -> None:
        super().__init__()
        self._named = named

    def line(self, line: Line) -> str:
        """The line as text."""
        text = line.text
        more = [
            f" {name}={_word(value) if isinstance(value, str) else value}"
            for name, value in _with_context(line.given).items()
        ]
        if self._named:
            time = f"{_second(int(line.created))},{int(line.created % 1 * 1000):03}"
            text = f"{time} {line.level} {line.logger}: {text}"
        head = one_line(text + "".join(more))
        if not line.traces:
            return head
        more = [part for trace in line.traces for part in trace.rstrip("\n").split("\n")]
        return "\n".join([head, *(ON + one_line(without_credentials(part)) for part in more)])


class JsonFormatter(Lines):
    """One JSON object a record, in one line.

    It has `timestamp` (RFC 3339, UTC), `level`, `logger`, `event` (the record's message), the
    fields given by `extra`, `exception` if there is one, and `trace_id` and `span_id` of the
    current span if OpenTelemetry is loaded.
    """

    def line(self, line: Line) -> str:
        """The line as a JSON object."""
        said: dict[str, Any] = {
            "timestamp": _utc(line.created),
            "level": line.level.lower(),
            "logger": line.logger,
            "event": _cut(line.text),
            **{name: _value(value) for name, value in _with_context(line.given).items()},
            **_span(),
        }
        if line.traces:
            said["exception"] = _cut(without_credentials("\n".join(line.traces)))
        written = _encode(said)
        if written.isascii():
            return written
        return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def given_to(record: logging.LogRecord) -> dict[str, Any]:
    """The texts and numbers that a record carries beside its message: those of `extra`."""
    return {
        name: value
        for name, value in islice(vars(record).items(), _FIRST, None)
        if isinstance(value, _SHOWN) and name not in _OTHERS
    }


def _with_context(given: Mapping[str, Any]) -> Mapping[str, Any]:
    around = _context.get()
    return {**around, **given} if around else given


@lru_cache(2)
def _second(created: int) -> str:
    return strftime("%Y-%m-%d %H:%M:%S", localtime(created))


def _utc(created: float) -> str:
    text = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _value(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    return _cut(without_credentials(str(value)))


def _word(value: str) -> str:
    """A text after its name; quoted if it is not a single word."""
    if _NAME.fullmatch(value):
        return value
    text = _cut(without_credentials(value))
    plain = _WORD.fullmatch(text) and text.isprintable()
    return text if plain else json.dumps(text, ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def _span() -> dict[str, str]:
    """The ids of the span in which the record was written."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _parts(record: logging.LogRecord) -> tuple[str, str]:
    """The message, and the trace after it if its pattern ends with one."""
    pattern, args = record.msg, record.args
    if isinstance(pattern, str) and pattern.endswith(_TRACE) and isinstance(args, tuple) and args:
        return pattern.removesuffix(_TRACE) % args[:-1], str(args[-1])
    return record.getMessage().rstrip("\n"), ""
