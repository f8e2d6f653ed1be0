"""The output of `sayso chat` to a terminal: replies as they arrive, status lines, proposals."""

from __future__ import annotations

import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from sayso import visible
from sayso_chat.client import Json
from sayso_chat.talk import Proposal, listed
from sayso_chat.text import outcome, show, title

if TYPE_CHECKING:
    from sayso_chat.markdown import Reply

_GUTTER = 10
_NARROWEST = _GUTTER + 5
"""Columns below which no line is cut to the terminal: the gutter and a wide character."""
_MARGIN = "  "
_WIDEST = 100
"""Columns beyond which a reply is not set wider: long lines are hard to read."""
_PATIENCE = 0.5
"""Seconds without a further line of a reply until a status line says that it is being written."""
WRITING = "Writing"
_ERASE = "\r\x1b[2K"


class Screen:
    """Writes to stdout; colours and status lines only if it is a terminal that supports them."""

    def __init__(self) -> None:
        self.terminal = (
            sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        )
        self.colour = self.terminal and not os.environ.get("NO_COLOR")
        self._status = False
        self._in_line = False
        self._return = ""
        self._reply: Reply | None = None
        self._written = 0.0

    def event(self, event: Json) -> None:
        """Show one event of a turn; proposals are left to `proposal`."""
        match event.get("type"):
            case "text_delta":
                self._text(str(event.get("text", "")))
            case "intermittent_update":
                # Without text it says that the turn lives, and nothing else.
                if text := str(event.get("text", "")):
                    self.status(text)
            case "executed_tool_calls" as kind:
                for call in listed(event, kind):
                    self._outcome(str(call.get("name")), str(call.get("output", "")))
            case "executed_commands" as kind:
                for command in listed(event, kind):
                    self._outcome(f"$ {command.get('command')}", str(command.get("output", "")))
            case "done":
                self._done(event)
            case "error":
                incident = event.get("incident")
                self.error(f"{event.get('error')}" + (f" (incident {incident})" * bool(incident)))

    def said(self, message: Json) -> None:
        """Show a message of a conversation that goes on."""
        text = str(message.get("content") or "")
        if message.get("role") == "user":
            for line in text.splitlines():
                self.note(f"> {visible(line)}")
        else:
            self._text(text)
            self.end_line()

    def line(self, text: str = "", **style: Any) -> None:
        """Write a line of its own; `text` is written unchanged."""
        self.end_line()
        self._write(self._styled(text, **style) + "\n")

    def error(self, text: str) -> None:
        """Write an error as a line of its own; to stderr if stdout is reserved for replies."""
        if self.terminal:
            self.line(f"error: {visible(text)}", fg="red")
        else:
            self.end_line()
            click.echo(f"sayso: {visible(text)}", err=True)

    def note(self, text: str) -> None:
        """Write something beside the conversation."""
        self.line(text, dim=True)

    def status(self, text: str) -> None:
        """Show a status line that the next output replaces."""
        if not self.terminal or not text.strip():
            return
        self._end_reply()
        if self._in_line:
            self._write("\n")
        self._show_status(text)

    def _show_status(self, text: str) -> None:
        first = visible(" ".join(text.split()), strict=True)
        # Leave room for the ^C that the terminal adds: if a line wraps, only its last part can be
        # erased.
        piece = next(_pieces(first, self._width() - 5))
        self._clear_status()
        self._write(self._styled(f"… {piece}", dim=True))
        self._status, self._in_line = True, False

    def end_line(self) -> None:
        """Leave the cursor at the start of a line, and no status line behind."""
        self._end_reply()
        self._clear_status()
        self._write(visible(self._return))
        self._return = ""
        if self._in_line:
            self._write("\n")

    def proposal(self, proposal: Proposal, place: str, *, whole: bool) -> bool:
        """Show a proposal; returns whether a part of it was cut."""
        shown = show(proposal, whole=whole)
        self.line()
        self.line(f"{title(proposal)}{place}", fg="yellow", bold=True)
        for label, text in shown.lines:
            for number, piece in enumerate(_pieces(text, self._width() - _GUTTER - 3)):
                # Every line has a margin, so that no content can imitate a line of ours.
                margin = f"{label if number == 0 else '':>{_GUTTER}} | "
                self._write(self._styled(margin, dim=True) + piece + "\n")
        return shown.cut

    def _text(self, text: str) -> None:
        whole = self._return + text
        # The rest of this line end may follow with the next piece.
        self._return = "\r" if whole.endswith("\r") else ""
        shown = visible(whole.removesuffix("\r"))
        if not self.terminal:
            self._write(shown)
            return
        if self._reply is None:
            # Only a terminal needs it, and it takes a while to import.
            from sayso_chat.markdown import Reply

            self._reply = Reply(min(self._width(), _WIDEST) - len(_MARGIN), colour=self.colour)
            self._written = time.monotonic()
        if lines := self._reply.add(shown):
            self._inset(lines)
        elif not self._status and time.monotonic() > self._written + _PATIENCE:
            # Tables, for one, come as a whole.
            self._show_status(WRITING)

    def _end_reply(self) -> None:
        if self._reply is not None:
            rest = self._reply.add(visible(self._return)) + self._reply.end()
            self._reply, self._return = None, ""
            self._inset(rest)

    def _inset(self, lines: Iterable[str]) -> None:
        """Write lines behind a margin, so that no content can imitate a line of ours."""
        self._clear_status()
        self._write("".join(f"{_MARGIN}{line}".rstrip() + "\n" for line in lines))
        self._written = time.monotonic()

    def _outcome(self, name: str, output: str) -> None:
        failed = output.startswith(("Error:", "Outcome unknown:"))
        head, *rest = outcome(name, output)
        first, *more = _pieces(head, self._width() - 1)
        self.line(first, fg="red" if failed else "green")
        self._content("\n".join(["".join(more)] * bool(more) + rest))

    def _content(self, text: str) -> None:
        """Write lines that are not ours; on a terminal behind the margin."""
        self.end_line()
        lines = text.split("\n") if text else []
        if self.terminal:
            self._inset(
                piece for line in lines for piece in _pieces(line, self._width() - len(_MARGIN) - 1)
            )
        else:
            self._write("".join(f"{line}\n" for line in lines))

    def _done(self, event: Mapping[str, Any]) -> None:
        self.end_line()
        reason = event.get("stop_reason")
        if reason not in (None, "end_turn", "approval_required"):
            self.note(f"({visible(str(reason)).replace('_', ' ')})")
        data = event.get("data")
        links = data.get("url_configs") if isinstance(data, dict) else None
        for link in links if isinstance(links, list) else []:
            if isinstance(link, dict):
                said = visible(f"{link.get('description', '')}", strict=True)
                self._content(f"{said} {visible(str(link.get('url')), strict=True)}".strip())

    def _clear_status(self) -> None:
        if self._status:
            self._status = False
            self._write(_ERASE)
            self._in_line = False

    def _styled(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self.colour and style else text

    def _write(self, text: str) -> None:
        if text:
            # click.echo would remove the escape sequences of a status line.
            print(text, end="", flush=True)
            self._in_line = not text.endswith("\n")

    def _width(self) -> int:
        return max(shutil.get_terminal_size().columns, _NARROWEST) if self.terminal else 10_000


def _pieces(text: str, width: int) -> Iterator[str]:
    """`text` cut into pieces of at most `width` cells; at least one."""
    piece, cells = "", 0
    for char in text.expandtabs(4):
        size = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if cells + size > width:
            yield piece
            piece, cells = "", 0
        piece += char
        cells += size
    yield piece
