"""The event loops and threads for user code, apart from the server's loop (design, section 9)."""

from __future__ import annotations

from sayso.workers.loop import cancelled_here, current_worker, let_cancel, new_event_loop
from sayso.workers.mailbox import Channel, per_loop
from sayso.workers.running import Running
from sayso.workers.workers import Workers

__all__ = [
    "Channel",
    "Running",
    "Workers",
    "cancelled_here",
    "current_worker",
    "let_cancel",
    "new_event_loop",
    "per_loop",
]
