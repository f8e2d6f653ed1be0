"""Things that outlive a run: the messages that were typed, and each service's last conversation.

All of it is in the folder `chat` of the user's state folder, readable by the user alone. A chat
works as well where nothing can be written.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from sayso import Config, ConfigError, state_dir

NOTHING_KEPT = "there is no conversation to go on with; this is a new one"

MESSAGES = 1000
"""Most messages in the history; each of at most LONGEST characters."""
LONGEST = 10_000
CONVERSATIONS = 50
LARGEST = 4 * 1024 * 1024
"""Most bytes of a conversation that is kept."""


class Kept:
    """The files in `folder`; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def history(self) -> list[str]:
        """The messages of former runs, the newest last."""
        if self._folder is None:
            return []
        lines = _read(self._folder / "history", MESSAGES * LONGEST).splitlines()
        found = [text for line in lines if isinstance(text := _json(line), str)][-MESSAGES:]
        if len(lines) > 2 * MESSAGES:
            self._write("history", "".join(json.dumps(text) + "\n" for text in found))
        return found

    def remember(self, message: str) -> None:
        """Add a message to the history."""
        if self._folder is None or len(message) > LONGEST:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(
                os.open(self._folder / "history", flags, 0o600), "w", encoding="utf-8"
            ) as file:
                file.write(json.dumps(message) + "\n")

    def conversation(self, place: str) -> dict[str, Any] | None:
        """The last conversation with the agent at `place`, with the time `at` which it was kept."""
        if self._folder is None:
            return None
        found = _json(_read(self._folder / _file(place), LARGEST))
        return found if isinstance(found, dict) and isinstance(found.get("at"), float) else None

    def keep(self, place: str, conversation: dict[str, Any]) -> bool:
        """Keep it as the last conversation with the agent at `place`; false if it is not kept."""
        text = json.dumps({**conversation, "at": time.time()})
        if self._folder is None or len(text) > LARGEST or not self._write(_file(place), text):
            return False
        with contextlib.suppress(OSError):
            for _, file in sorted(_aged(self._folder), reverse=True)[CONVERSATIONS:]:
                file.unlink(missing_ok=True)
        return True

    def _write(self, name: str, text: str) -> bool:
        """Replace a file as a whole; another run never reads a part of it."""
        assert self._folder is not None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, new = tempfile.mkstemp(dir=self._folder)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(new, self._folder / name)
        except OSError:
            return False
        return True


def of_user() -> Kept:
    """The files of the user who runs this."""
    try:
        return Kept(state_dir(Config()) / "chat")
    except ConfigError:
        return Kept(None)


def _file(place: str) -> str:
    return f"{sha256(place.encode()).hexdigest()[:32]}.json"


def _aged(folder: Path) -> Iterator[tuple[float, Path]]:
    for file in folder.glob("*.json"):
        yield file.stat().st_mtime, file


def _read(path: Path, most: int) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
