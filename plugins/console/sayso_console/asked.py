"""The prompts that the model got in the newest turn of each caller, for the page's developer panel.

They are kept in memory, and only where `server.docs` is on, as in `sayso dev`.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict
from typing import Any

from pydantic_core import to_jsonable_python

from sayso import Ask, Caller, ModelCallBegan, Observer, TurnBegan, mask

CALLERS = 20
"""The callers whose newest turn is kept."""
CALLS = 10
"""The newest model calls of a turn that are kept."""


class Asked(Observer):
    """Keeps what the model is asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str | None, tuple[str, deque[ModelCallBegan]]] = {}

    def turn(self, began: TurnBegan) -> None:
        """Forget the turn before."""
        with self._lock:
            self._turns.pop(began.caller.principal, None)
            self._turns[began.caller.principal] = began.id, deque(maxlen=CALLS)
            for oldest in list(self._turns)[:-CALLERS]:
                del self._turns[oldest]

    def model_call(self, began: ModelCallBegan) -> None:
        """Keep the call with its turn."""
        with self._lock:
            for turn, calls in self._turns.values():
                if turn == began.turn:
                    calls.append(began)

    def of(self, caller: Caller) -> list[dict[str, Any]]:
        """The model calls of the caller's newest turn, without the secrets of the request."""
        with self._lock:
            _, calls = self._turns.get(caller.principal, ("", ()))
            kept = list(calls)
        return [{"model": f"{one.provider}:{one.model}", **_shown(one.ask)} for one in kept]


def _shown(ask: Ask) -> dict[str, Any]:
    said = {
        "system": ask.system,
        "context": ask.context,
        "turns": [
            {"role": turn.role, "blocks": [asdict(block) for block in turn.blocks]}
            for turn in ask.turns
        ],
        "tools": [tool.name for tool in ask.tools],
        "config": dict(ask.config),
    }
    shown: dict[str, Any] = mask(to_jsonable_python(said, fallback=str), ask.secrets)
    return shown
