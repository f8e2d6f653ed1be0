"""`sayso chat` with a person at the terminal: reads what they say, asks what they decide."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Literal

from sayso_chat.client import ChatError, Json
from sayso_chat.kept import NOTHING_KEPT
from sayso_chat.keyboard import Keyboard
from sayso_chat.screen import Screen
from sayso_chat.talk import Decision, Events, Proposal, Talk
from sayso_chat.text import name_of

Answer = Literal["approve", "reject", "details", "later"]

HELP = """\
Type a message and press Enter. A backslash at the end of a line, or Alt-Enter,
begins another line; a paste is one message. Ctrl-C cancels a running turn or a
decision, Ctrl-D leaves; sayso chat --continue goes on from there.
  /pending   decide what waits for a decision (an empty line does the same)
  /new       begin a new conversation
  /quit      leave"""
WAITING = "Waiting for the reply"
CANCELLED = "cancelled; the conversation stands as it was before"
GOES_ON = "cancelled; what was approved goes on: approve it again to see how it ended"
_LEAVE = ("/quit", "/exit")
QUESTION = "approve, reject, details or later? [a/r/d/l] "
REASON = "reason (the agent gets it): "
_ANSWERS: dict[str, Answer] = {
    "a": "approve",
    "approve": "approve",
    "y": "approve",
    "yes": "approve",
    "r": "reject",
    "reject": "reject",
    "n": "reject",
    "no": "reject",
    "d": "details",
    "details": "details",
    "l": "later",
    "later": "later",
}


class Person:
    """The dialogue of one person with one service."""

    def __init__(
        self, talk: Callable[[], Talk], where: str, screen: Screen, keyboard: Keyboard
    ) -> None:
        self._new_talk = talk
        self._talk = talk()
        self._where = where
        self._screen = screen
        self._keyboard = keyboard

    def go_on(self, kept: Json) -> None:
        """Go on with a conversation that was kept, if it is one, and show its last turn."""
        if not self._talk.go_on(kept):
            self._screen.note(NOTHING_KEPT)
            return
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept["at"]))
        self._screen.note(f"Going on with the conversation of {at}; /new begins another one")
        for message in self._talk.messages[-2:]:
            self._screen.said(message)

    def converse(self) -> int:
        """Talk until the person leaves; the exit code."""
        self._screen.note(f"Talking to {self._where}. Ctrl-C cancels a turn, Ctrl-D leaves, /help")
        try:
            self._settle()
            while True:
                self._respond(self._read_message())
        except EOFError:
            self._screen.line()
            return 0

    def say_once(self, text: str) -> int:
        """Send one message, and the decisions that follow; returns the exit code."""
        try:
            return 0 if self._turn(self._talk.say(text)) and self._settle() else 1
        except EOFError:
            self._screen.line()
            return 0

    def _read_message(self) -> str:
        waiting = len(self._talk.pending)
        while True:
            try:
                return self._keyboard.message(f"\n({waiting} to decide) > " if waiting else "\n> ")
            except KeyboardInterrupt:
                self._screen.line()
                self._screen.note("Ctrl-D leaves")

    def _respond(self, text: str) -> None:
        match text:
            case _ if text in _LEAVE:
                raise EOFError
            case "/help":
                self._screen.line(HELP)
            case "/new":
                left = len(self._talk.pending)
                self._talk = self._new_talk()
                self._screen.note("a new conversation" + f"; {left} left undecided" * bool(left))
            case "" | "/pending":
                if self._talk.pending:
                    self._settle()
                elif text:
                    self._screen.note("nothing waits for a decision")
            case _:
                if self._turn(self._talk.say(text)):
                    self._settle()

    def _turn(self, events: Events, doing: str = WAITING, cancelled: str = CANCELLED) -> bool:
        """Show a turn; whether it ended well.

        `doing` is shown until its first event, `cancelled` when Ctrl-C ends it.
        """
        last: object = None
        self._screen.status(doing)
        try:
            with contextlib.closing(events):
                for event in events:
                    self._screen.event(event)
                    last = event.get("type")
        except KeyboardInterrupt:
            self._screen.note(cancelled)
        except ChatError as error:
            self._screen.error(str(error))
        if last == "error" and self._talk.pending:
            self._screen.note("an empty line shows what waits for a decision")
        return last == "done"

    def _settle(self) -> bool:
        """Ask about pending calls until all are decided or put off; False after a failure."""
        later: list[Json] = []
        while self._talk.pending:
            decisions = self._ask(later)
            if not decisions:
                self._screen.note("left for later; an empty line shows it again")
                return True
            running = [name_of(proposal) for proposal, sent in decisions if sent["execute"]]
            events = self._talk.decide(decisions)
            if running:
                ended_well = self._turn(events, f"Running {', '.join(running)}", GOES_ON)
            else:
                ended_well = self._turn(events)
            if not ended_well:
                return False
        return True

    def _ask(self, later: list[Json]) -> list[Decision]:
        """The decisions on the pending calls that are not put off; none if Ctrl-C ends the
        questions. `later` gets the calls that the person puts off, and they are not asked for
        again when the service restates them."""
        pending = [one for one in self._talk.pending if one.stated not in later]
        decisions: list[Decision] = []
        try:
            for number, proposal in enumerate(pending, 1):
                place = f" ({number} of {len(pending)})" if len(pending) > 1 else ""
                if (sent := self._decision(proposal, place)) is not None:
                    decisions.append((proposal, sent))
                else:
                    later.append(proposal.stated)
        except KeyboardInterrupt:
            self._screen.line()
            return []
        return decisions

    def _decision(self, proposal: Proposal, place: str) -> Json | None:
        cut = self._screen.proposal(proposal, place, whole=False)
        while True:
            match self._answer():
                case "approve" if cut:
                    self._screen.note("not all of it was shown; d shows it, then decide")
                case "approve":
                    return proposal.approved()
                case "reject":
                    return proposal.rejected(self._keyboard.answer(REASON))
                case "details":
                    cut = self._screen.proposal(proposal, place, whole=True)
                case "later":
                    return None

    def _answer(self) -> Answer:
        while True:
            said = self._keyboard.answer(QUESTION, unseen=True).lower()
            if said in _LEAVE:
                raise EOFError
            if said in _ANSWERS:
                return _ANSWERS[said]
