"""A process forked by user code ends when that code returns to the service.

It shares the descriptors that its parent's loops wait on. If it went on as a second service, it
would take its parent's wake-ups and might do its work a second time.
"""

from __future__ import annotations

import os
import threading
from asyncio import AbstractEventLoop

_here = threading.local()
_forked = False


def own_forks(loop: AbstractEventLoop | None = None) -> None:
    """Declare that this thread, on which `loop` runs, calls user code for as long as it lives."""
    _here.user_code = True
    _here.loop = loop


def leave_fork(error: BaseException | None = None) -> None:
    """End this process, with the status for `error`, if user code forked it."""
    if _forked:
        status = error.code or 0 if isinstance(error, SystemExit) else int(error is not None)
        os._exit(status if isinstance(status, int) else 1)


def _in_child() -> None:
    global _forked
    if not getattr(_here, "user_code", False):
        return
    _forked = True
    if _here.loop is not None:
        # Async code that awaits returns to its loop.
        _here.loop.call_soon(leave_fork)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
