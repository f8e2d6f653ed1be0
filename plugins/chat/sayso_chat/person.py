"""`sayso chat` with a person at the terminal: reads what they say, asks what they decide."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Literal

from sayso_chat.client import ChatError, Json, Lost
from sayso_chat.edit import changes, draft, edited
from sayso_chat.kept import NOTHING_KEPT
from sayso_chat.keyboard import Keyboard
from sayso_chat.screen import Screen
from sayso_chat.talk import Decision, Events, Proposal, Talk, elsewhere, waits_for
from sayso_chat.text import name_of

Answer = Literal["approve", "reject", "edit", "details", "later"]

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
MAY_HAVE_RUN = (
    "what was approved may have run; approve it again to see how it ended: nothing runs twice"
)
CHANGED = "APPROVAL_CHANGED"
LEFT = "left for later; an empty line shows it again"
WAITS = "an empty line shows what waits for a decision"
_LEAVE = ("/quit", "/exit")
QUESTION = "approve, reject, details or later? [a/r/d/l] "
QUESTION_EDIT = "approve, reject, edit, details or later? [a/r/e/d/l] "
INPUT = "input as JSON: "
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
    "e": "edit",
    "edit": "edit",
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
        self._drafts: dict[str, str] = {}

    def _go_on(self, kept: Json | None) -> None:
        """Go on with a conversation that was kept, if it is one, and show its last turn."""
        if kept is None:
            return
        if not self._talk.go_on(kept):
            self._screen.note(NOTHING_KEPT)
            return
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept["at"]))
        self._screen.note(f"Going on with the conversation of {at}; /new begins another one")
        for message in self._talk.messages[-2:]:
            self._screen.said(message)

    def converse(self, kept: Json | None = None) -> int:
        """Talk until the person leaves, and go on with a conversation that was `kept`; the exit
        code."""
        self._screen.note(f"Talking to {self._where}. Ctrl-C cancels a turn, Ctrl-D leaves, /help")
        self._go_on(kept)
        try:
            self._settle()
            while True:
                self._respond(self._read_message())
        except EOFError:
            self._leave()
            return 0

    def say_once(self, text: str, kept: Json | None = None) -> int:
        """Send one message, and the decisions that follow; returns the exit code."""
        self._go_on(kept)
        try:
            return 0 if self._say(text) else 1
        except EOFError:
            self._leave()
            return 0

    def _leave(self) -> None:
        self._screen.line()
        if left := len(self._talk.pending):
            self._screen.note(f"{left} left undecided; --continue goes on from there")

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
                self._say(text)

    def _say(self, text: str) -> bool:
        last = self._turn(self._talk.say(text))
        return self._settle() if last.get("type") == "done" else self._failed()

    def _turn(
        self, events: Events, doing: str = WAITING, cancelled: str = CANCELLED, lost: str = ""
    ) -> Json:
        """Show a turn; its last event, which is no `done` if it did not end well.

        `doing` is shown until its first event, `cancelled` when Ctrl-C ends it, and `lost` when the
        service goes away.
        """
        last: Json = {}
        self._screen.status(doing)
        try:
            with contextlib.closing(events):
                for event in events:
                    self._screen.event(event)
                    if (call := waits_for(event)) is not None:
                        self._screen.note(elsewhere(call))
                        self._screen.status(doing)
                    last = event
        except KeyboardInterrupt:
            self._screen.note(cancelled)
        except ChatError as error:
            self._screen.error(str(error))
            if lost and isinstance(error, Lost):
                self._screen.note(lost)
        return last

    def _settle(self) -> bool:
        """Ask about pending calls until all are decided or put off; False after a failure."""
        later: list[Json] = []
        made: list[Decision] = []
        note = LEFT
        while self._talk.pending:
            decisions = self._ask(made, later)
            if not decisions:
                self._screen.note(note)
                return True
            running = [name_of(proposal) for proposal, sent in decisions if sent["execute"]]
            events = self._talk.decide(decisions)
            if running:
                doing = f"Running {', '.join(running)}"
                last = self._turn(events, doing, GOES_ON, MAY_HAVE_RUN)
            else:
                last = self._turn(events)
            if last.get("code") == CHANGED and self._restated():
                made = self._still_as_proposed(decisions)
            elif last.get("type") == "done":
                made, note = [], WAITS
                # A call that needs the approval of others, too, is stated again.
                later += [{**sent, "execute": False} for _, sent in decisions]
            else:
                return self._failed()
        return True

    def _restated(self) -> bool:
        """Have the service state what waits once more: another approver may have edited it."""
        return self._turn(self._talk.say("")).get("type") == "done"

    def _still_as_proposed(self, decisions: Sequence[Decision]) -> list[Decision]:
        """Those of the decisions, of which the service has taken none, that can be sent again; none
        if that would be all of them."""
        stated = [proposal.stated for proposal in self._talk.pending]
        again = [one for one in decisions if not _is_edited(*one) and one[0].stated in stated]
        return again if len(again) < len(decisions) else []

    def _failed(self) -> bool:
        if self._talk.pending:
            self._screen.note(WAITS)
        return False

    def _ask(self, made: Sequence[Decision], later: list[Json]) -> list[Decision]:
        """The decisions `made` and those on the other pending calls that are not put off; none if
        Ctrl-C ends the questions. `later` gets the calls that the person puts off, and they are not
        asked for again when the service restates them."""
        known = [*later, *(proposal.stated for proposal, _ in made)]
        pending = [one for one in self._talk.pending if one.stated not in known]
        decisions = [*made]
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
        changed: Json | None = None
        while True:
            match self._answer(proposal):
                case "approve" if cut:
                    self._screen.note("not all of it was shown; d shows it, then decide")
                case "approve":
                    return proposal.approved(changed)
                case "reject":
                    return proposal.rejected(self._keyboard.answer(REASON))
                case "edit":
                    changed = self._edited(proposal, changed)
                case "details":
                    cut = self._screen.proposal(proposal, place, whole=True)
                    if changed is not None:
                        self._changes(proposal, changed)
                case "later":
                    return None

    def _edited(self, proposal: Proposal, changed: Json | None) -> Json | None:
        """The input that the person wants instead; what they write is kept for their next try."""
        key = str(proposal.stated.get("id"))
        indent = 2 if self._keyboard.editor else None
        text = self._drafts.get(key) or draft(proposal, indent=indent)
        try:
            text = self._drafts[key] = self._keyboard.edited(INPUT, text)
            new = edited(proposal, text)
        except KeyboardInterrupt:
            self._screen.line()
        except ValueError as error:
            self._screen.note(f"{error}; e goes on with what you wrote")
        else:
            return new if self._changes(proposal, new) else None
        if changed is not None:
            # An approval would be of the edit before this one.
            self._changes(proposal, changed)
        return changed

    def _changes(self, proposal: Proposal, new: Json) -> bool:
        """Show what `new` changes in the input, if it changes anything."""
        if lines := changes(proposal.stated.get("input") or {}, new):
            self._screen.changes(lines)
            self._screen.note("a approves it as changed")
        else:
            self._screen.note("nothing is changed")
        return bool(lines)

    def _answer(self, proposal: Proposal) -> Answer:
        while True:
            question = QUESTION_EDIT if proposal.editable else QUESTION
            said = self._keyboard.answer(question, unseen=True).lower()
            if said in _LEAVE:
                raise EOFError
            if (answer := _ANSWERS.get(said)) and (answer != "edit" or proposal.editable):
                return answer


def _is_edited(proposal: Proposal, sent: Json) -> bool:
    return bool(sent["execute"]) and sent.get("input") != proposal.stated.get("input")
