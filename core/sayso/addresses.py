"""Removes credentials from addresses in everything that is logged, by any library."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "********"

_USER = re.compile(r"""://[^/?\#\s"'<>]*@""")
_SECRET = (
    r"key|token|secret|sig|signature|passw(?:or)?d|passphrase|pwd|auth|authori[sz]ation|code"
    r"|credentials?"
)
_NAMED = re.compile(
    rf"""([?&;](?:[\w.%-]*[._%-]|x-amz-|[a-z]*)(?:{_SECRET})=)[^&\#\s"'<>]+""", re.IGNORECASE
)
_ANY = re.compile(r"""([?&;][^=&\#\s"'<>]*=)[^&\#\s"'<>]+""")
_CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2", "openai", "anthropic", "mcp", "a2a")
"""Libraries that log the address of each request: every value in its query may be a key."""


def without_credentials(text: str, names: re.Pattern[str] = _NAMED) -> str:
    """`text` without user and password of its addresses, and without the keys in their queries."""
    if "://" in text:
        text = _USER.sub(f"://{HIDDEN}@", text)
    return names.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def hide_credentials() -> None:
    """Have each log record of this process made without the credentials in addresses.

    Not a filter or a formatter: a program may have handlers of its own, and HTTP libraries, which
    log each request, have loggers of their own.
    """
    make = logging.getLogRecordFactory()
    if getattr(make, "hides_credentials", False):
        return

    def made(*args: Any, **more: Any) -> logging.LogRecord:
        record = make(*args, **more)
        _hide(record)
        return record

    made.hides_credentials = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(made)


def _hide(record: logging.LogRecord) -> None:
    # A record made from nothing, as by `logging.makeLogRecord`, has no name yet.
    client = (record.name or "").partition(".")[0] in _CLIENTS
    names = _ANY if client else _NAMED
    try:
        whole = record.getMessage()
    except Exception:
        # The handler reports a record that cannot be formatted.
        return
    if without_credentials(whole, names) != whole:
        # Some formatters read the arguments one by one, as uvicorn's for access does.
        record.args = _each(record.args, names)
        rest = record.getMessage()
        if (bare := without_credentials(rest, names)) != rest:
            record.msg, record.args = bare, ()
    if record.exc_info and record.exc_info[0] is not None:
        text = logging.Formatter().formatException(record.exc_info)
        if (bare := without_credentials(text)) != text:
            record.exc_text = bare


def _each(args: Any, names: re.Pattern[str]) -> Any:
    if isinstance(args, Mapping):
        return {key: _bare(value, names) for key, value in args.items()}
    return tuple(_bare(value, names) for value in args or ())


def _bare(value: Any, names: re.Pattern[str]) -> Any:
    if isinstance(value, int | float | None):
        return value
    text = str(value)
    bare = without_credentials(text, names)
    return value if bare == text else bare
