"""`sayso chat` without a person: messages from `--message` or lines, decisions from flags."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator

import click

from sayso import visible
from sayso_chat.client import ChatError, Json
from sayso_chat.talk import Proposal, Talk, elsewhere, stated, waits_for

ROUNDS = 25
"""Most rounds in one turn in which a flag decides further proposals; then they stay undecided."""


class Script:
    """Runs messages one after another; `show` gets each event.

    `decide` makes the decision on a proposal; without it all are left undecided.
    """

    def __init__(
        self,
        talk: Talk,
        show: Callable[[Json], None],
        decide: Callable[[Proposal], Json] | None = None,
    ) -> None:
        self._talk = talk
        self._show = show
        self._decide = decide

    def run(self, messages: Iterable[Json]) -> int:
        """The exit code: 0 when every turn was done, 1 when one failed."""
        code = 0
        for message in messages:
            if not self._turns(message):
                code = 1
        return code

    def _turns(self, message: Json) -> bool:
        good = self._turn(self._talk.send(message))
        decided: list[Json] = []
        for _ in range(ROUNDS):
            waiting = [each.stated for each in self._talk.pending]
            # Calls that are stated again wait for something else, such as another approver.
            if self._decide is None or not (good and waiting) or waiting == decided:
                break
            decided = waiting
            decisions = [(each, self._decide(each)) for each in self._talk.pending]
            good = self._turn(self._talk.decide(decisions))
        if good and (left := len(self._talk.pending)):
            click.echo(f"sayso: {left} left undecided", err=True)
        return good

    def _turn(self, events: Iterator[Json]) -> bool:
        last: object = None
        for event in events:
            self._show(event)
            if (call := waits_for(event)) is not None:
                self._answer(call)
            last = event.get("type")
        return last == "done"

    def _answer(self, call: Proposal) -> None:
        """Decide on a call for which the running turn waits, or say who can."""
        if self._decide is None:
            click.echo(f"sayso: {elsewhere(call)}", err=True)
            return
        event = self._talk.decide_aside(self._decide(call))
        if event.get("type") == "error":
            why = visible(str(event.get("error")))
            click.echo(f"sayso: {why}; {elsewhere(call)}", err=True)


def print_json(event: Json) -> None:
    """Write an event as one line of JSON, at once."""
    click.echo(json.dumps(event))


def printer() -> Callable[[Json], None]:
    """A function that writes events as text; proposals are written at once, since nobody is
    asked."""
    from sayso_chat.screen import Screen

    screen = Screen()

    def show(event: Json) -> None:
        screen.event(event)
        for proposal in stated(event):
            screen.proposal(proposal, "", whole=True)

    return show


def lines_of_stdin(*, objects: bool) -> Iterator[Json]:
    """A message for each line that is not empty; with `objects` a JSON object is sent unchanged."""
    for line in sys.stdin or ():
        if text := line.strip():
            yield _message(text) if objects else {"content": text}


def _message(text: str) -> Json:
    if not text.startswith("{"):
        return {"content": text}
    try:
        message = json.loads(text)
    except ValueError as error:
        raise ChatError(f"a line of the input begins with {{ but is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise ChatError("a line of the input is no message")
    return message
