"""A log record as text of which no tool, model or caller can forge a part."""

from __future__ import annotations

import logging

from sayso.addresses import without_credentials

NAMED = "%(asctime)s %(levelname)s %(name)s: %(message)s"
BARE = "%(message)s"
ON = "  | "
"""The beginning of each further line of a record: of a trace."""
_TRACE = "\n%s"


def one_line(text: str) -> str:
    """`text` with line ends, control characters and reordering characters written out."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


class LineFormatter(logging.Formatter):
    """One line a record; the further lines of a trace all begin with `ON`."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of `record`."""
        record.message, trace = _parts(record)
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        head = one_line(self.formatMessage(record))
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        traces = (trace, record.exc_text, record.stack_info)
        lines = [line for text in traces if text for line in text.rstrip("\n").split("\n")]
        return "\n".join([head, *(ON + one_line(without_credentials(line)) for line in lines)])


def _parts(record: logging.LogRecord) -> tuple[str, str]:
    """The message, and the trace after it if its pattern ends with one."""
    pattern, args = record.msg, record.args
    if isinstance(pattern, str) and pattern.endswith(_TRACE) and isinstance(args, tuple) and args:
        return pattern.removesuffix(_TRACE) % args[:-1], str(args[-1])
    return record.getMessage().rstrip("\n"), ""
