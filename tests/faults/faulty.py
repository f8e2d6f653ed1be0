"""Two services on one store, callers that repeat their requests, and injected faults."""

from __future__ import annotations

import http.client
import random
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from processes import Nursery, Process, lines
from serving import Answer, Json, said, user

PATIENCE = 90.0
"""Seconds within which each caller must get its answer."""
UNKNOWN = "Outcome unknown:"
NOT_RUN = "Error: not run: it had not begun when its process was taken for dead"
"""The outcome of a call whose process was paused before the call began."""
TO_APPROVE = "Approve it again to start it."
Fault = Callable[["Round"], None]


class Link:
    """The connection between services and store, for faults that interrupt it."""

    def cut(self) -> None:
        """Break open connections, and refuse new ones."""

    def back(self) -> None:
        """Allow connections again."""


class Round:
    """Two services in `folder`; they record the calls that they run in its file `runs`."""

    def __init__(
        self, nursery: Nursery, folder: Path, config: str, chance: random.Random, link: Link
    ) -> None:
        self.folder = folder
        self.chance = chance
        self.link = link
        self._nursery = nursery
        self._config = config
        self.services = [self._start(), self._start()]
        self._answers: dict[str, Json] = {}

    def _start(self) -> Process:
        return self._nursery.start(self.folder, self._config, WORDS="1")

    def close(self) -> None:
        """End the services."""
        for service in self.services:
            service.close()

    @property
    def victim(self) -> int:
        return self.chance.randrange(len(self.services))

    def restart(self, number: int) -> None:
        """Replace a dead process by a new one."""
        self.services[number].close()
        self.services[number] = self._start()

    def ask(self, number: int, messages: list[Json]) -> Answer | None:
        """The answer of a service; None if it died before it answered."""
        with suppress(OSError, http.client.HTTPException, AssertionError):
            return self.services[number % 2].client.ask(*messages)
        return None

    def insist(self, number: int, messages: list[Json]) -> Json:
        """The reply of the first service that gives one."""
        deadline = time.monotonic() + PATIENCE
        last: object = None
        while time.monotonic() < deadline:
            answer = self.ask(number, messages)
            if answer is not None and answer.status == 200:
                reply: Json = answer.json()
                # A call that could not begin is to be approved again, as the reply says.
                if TO_APPROVE not in reply["content"]:
                    return reply
            last = answer and (answer.status, answer.json())
            # A service may be busy, without its store, or dead; no other refusal is correct.
            assert answer is None or answer.status in (200, 503), last
            number += 1
            time.sleep(0.05)
        raise AssertionError(f"no answer in {PATIENCE:g} s; the last one was {last}")

    def proposed(self, name: str) -> list[Json]:
        """The messages that approve a call of this name."""
        first = user(f"wipe {name}")
        reply = self.insist(self.victim, [first])
        calls = [{**call, "execute": True} for call in reply["data"]["tool_calls"]]
        assert calls, reply
        return [first, said(reply), user("", data={"tool_calls": calls})]

    def approve(self, names: list[str], fault: Fault) -> dict[str, str]:
        """The answers to callers that all approve while the fault happens."""
        decisions = {name: self.proposed(name) for name in names}
        answers: dict[str, str] = {}

        def caller(number: int, name: str) -> None:
            answers[name] = self.insist(number, decisions[name])["content"]

        callers = [threading.Thread(target=caller, args=each) for each in enumerate(names)]
        for each in callers:
            each.start()
        time.sleep(self.chance.uniform(0.0, 0.3))
        fault(self)
        for each in callers:
            each.join(2 * PATIENCE)
        assert set(answers) == set(names), f"without an answer: {set(names) - set(answers)}"
        # A caller that asks once more, anywhere, gets the same answer, unless the outcome was
        # unknown.
        for number, name in enumerate(names):
            again = self.insist(number + 1, decisions[name])["content"]
            assert again == answers[name] or UNKNOWN in answers[name], (answers[name], again)
        return answers

    def check(self, answers: dict[str, str]) -> None:
        """No call ran twice, and no caller got a false answer."""
        runs = Counter(lines(self.folder, "runs"))
        assert max(runs.values(), default=0) <= 1, runs
        for name, text in answers.items():
            if NOT_RUN in text:
                assert runs[name] == 0, f"{name} is said not to have run"
            elif UNKNOWN not in text:
                assert text == f"ended: wiped {name}", text
                assert runs[name] == 1, f"{name} is said to have run"


def kill(round_: Round) -> None:
    """Kill a process, and start another one in its place."""
    victim = round_.victim
    round_.services[victim].kill()
    time.sleep(round_.chance.uniform(0.0, 0.5))
    round_.restart(victim)


def freeze(round_: Round) -> None:
    """Pause a process, sometimes for longer than its lease."""
    victim = round_.services[round_.victim]
    victim.signal(signal.SIGSTOP)
    time.sleep(round_.chance.uniform(0.2, 3.0))
    victim.signal(signal.SIGCONT)


def fill(round_: Round) -> None:
    """Let a process's disk be full for a while."""
    victim = round_.services[round_.victim]
    _, most = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (4096, most))
    time.sleep(round_.chance.uniform(0.1, 1.0))
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, most))


def part(round_: Round) -> None:
    """Disconnect the store for a while."""
    round_.link.cut()
    time.sleep(round_.chance.uniform(0.1, 2.0))
    round_.link.back()


@contextmanager
def rounds(nursery: Nursery, folder: Path, config: str, seed: int, link: Link) -> Iterator[Round]:
    """A round whose random choices come from the seed."""
    made = Round(nursery, folder, config, random.Random(seed), link)
    try:
        yield made
    finally:
        made.close()
