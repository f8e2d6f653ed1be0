"""The preview of a gated call: a text that the tool's author makes of the input, for the approver.

It is a help and not a part of the deed: an approval binds the input, and never what a preview says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from sayso.workers.code import is_coroutine_function

logger = logging.getLogger("sayso.tools")
LONGEST = 20_000
"""Characters of a preview that are recorded."""


def check_preview(name: str, preview: object) -> None:
    """Raise TypeError, naming the tool, for an object that cannot make previews."""
    if preview is None:
        return
    if not callable(preview) or is_coroutine_function(preview):
        raise TypeError(
            f"tool {name!r}: preview must be a plain function of the tool's own arguments, "
            f"not {preview!r}"
        )


def preview_of(preview: Callable[..., str], arguments: Mapping[str, Any]) -> str:
    """The text for these arguments; one that failed says so, and hinders nothing."""
    try:
        text = preview(**arguments)
    except BaseException as error:
        # SystemExit of user code is a failure like any other, as in tools.
        logger.warning("a preview failed", exc_info=True)
        return f"The preview failed: {type(error).__name__}."
    if not isinstance(text, str):
        return f"The preview failed: it gave {type(text).__name__} instead of a text."
    if len(text) > LONGEST:
        return f"{text[:LONGEST]}\n[{len(text) - LONGEST} more characters]"
    return text
