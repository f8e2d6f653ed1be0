"""The AI SDK's own chat, in Node, against a service."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from ui_world import Start, deletion

from npm import ran

SCRIPT = Path(__file__).parent / "ai_chat.mjs"


def test_the_sdks_chat_approves_and_denies_to_the_end(start: Start) -> None:
    world = start(
        *(deletion("a"), "It is gone."),
        *(deletion("a"), "Then not."),
        *(deletion("broken"), "It failed."),
        *(deletion("a", "b"), "One."),
        *(deletion("a"), "It is gone."),
    )
    assert ran(SCRIPT, ("ai@7.0.173",), API=f"{world.service.url}/ai/chat") == "ok\n"
    assert world.deleted == ["a", "a", "a"]
