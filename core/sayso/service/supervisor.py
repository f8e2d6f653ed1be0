"""The parent of the worker processes: it starts, watches, renews and ends them."""

from __future__ import annotations

import logging
import secrets
import selectors
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from sayso.service.children import Child, start_child
from sayso.service.place import Role, command
from sayso.service.processes import signal_name
from sayso.service.signals import Noted, noted
from sayso.service.stderr import say
from sayso.service.watch import Watch

if TYPE_CHECKING:
    from sayso.service.standin import StandIn

logger = logging.getLogger("sayso.supervisor")

SHORTEST, LONGEST = 0.2, 10.0
"""Seconds of back-off after a child that died: the first, and the most."""
STEADY = 10.0
"""A child that lived this many seconds resets the back-off."""
GRACE = 10.0
"""Seconds that a child gets beyond its drain before it is killed."""
TICK = 0.25


class Supervisor:
    """Keeps `workers` children serving on `listening`, and one for own-process plugins.

    Each worker has a socket of `listening` of its own; while it is absent, the others listen on
    that, too, and no connection waits for it.

    SIGTERM and SIGINT end them: each drains for up to `patience` seconds. A second SIGINT kills
    them. SIGHUP renews the workers one by one. With `reload` the only child is restarted whenever a
    source file changes; while it does not start, each request gets 503. SIGHUP, which a terminal
    sends when it closes, ends it, unless nohup makes the process ignore it.
    """

    def __init__(
        self,
        listening: Sequence[socket.socket],
        *,
        workers: int,
        reload: bool,
        patience: float,
        watched: Sequence[Path] = (),
    ) -> None:
        self._listening = listening
        self._workers = workers
        self._reload = reload
        self._patience = patience
        self._watch = Watch(watched) if reload else None
        self._stand_in: StandIn | None = None
        self._command = command()
        self._children: list[Child] = []
        self._renewing: list[Child] | None = None
        self._renew_all = False
        self._first_announces = False
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._status = 0
        self._served: set[Role] = set()
        self._plugins = False
        self._guarded = False
        self._token = secrets.token_urlsafe(24)
        self._failures = 0
        self._not_before = 0.0

    def run(self) -> int:
        """Run until stopped; returns the exit status."""
        with ExitStack() as stack:
            for each in self._listening:
                stack.enter_context(each)
            numbers = [signal.SIGTERM, signal.SIGINT]
            if not (self._reload and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN):
                numbers.append(signal.SIGHUP)
            stack.callback(self._selector.close)
            signals = stack.enter_context(noted(numbers))
            self._selector.register(signals.link, selectors.EVENT_READ, None)
            try:
                self._start("worker", first=True)
                while not (self._stopping and not self._children):
                    self._step(signals)
            finally:
                self._dismiss()
                for child in self._children:
                    child.process.kill()
                    child.process.wait()
        return self._status

    def _step(self, signals: Noted) -> None:
        for key, _ in self._selector.select(TICK):
            if key.data is not None:
                self._read_reports(key.data)
        for number in signals.taken():
            self._on_signal(number)
        for child in list(self._children):
            self._look_after(child)
        self._share()
        if not self._stopping:
            self._reload_changed()
            self._fill()
            self._renew()

    def _share(self) -> None:
        """Direct each worker which sockets to listen on: its own, and those whose worker is
        missing.

        While the service stops, workers that still have turns listen on the sockets of ended ones,
        so that new clients are refused at once instead of waiting until the last turn is over. Once
        none listens any more the port is closed, even if other processes still end.
        """
        workers = [each for each in self._children if each.role == "worker" and not each.closed]
        wanted: dict[Child, set[int]] = {child: set() for child in workers if child.ready}
        if self._stopping:
            serving = list(wanted)
        else:
            serving = [child for child in self._of("worker") if child in wanted]
        for number in range(len(self._listening)):
            for child in [each for each in serving if each.own == number] or serving:
                wanted[child].add(number)
        for child, numbers in wanted.items():
            if child.listens != numbers:
                child.listen(numbers)

    def _fill(self) -> None:
        """Start missing children: further workers only once the first has shown that one can
        start."""
        if monotonic() < self._not_before or not (self._served or not self._children):
            return
        if self._reload and (self._failures or self._children):
            return
        missing = self._workers - len(self._of("worker"))
        for _ in range(missing):
            started = self._start("worker", first=self._reload or not self._served)
            if not (started and self._served):
                return
        # One at a time, counting an ending one: two would compete for the plugins' ports.
        if (
            self._plugins
            and self._workers > 1
            and not any(child.role == "plugins" for child in self._children)
        ):
            self._start("plugins")

    def _of(self, role: Role) -> list[Child]:
        return [
            child
            for child in self._children
            if child.role == role and child.ending is None and child.replaces not in self._children
        ]

    def _start(self, role: Role, *, first: bool = False, replaces: Child | None = None) -> bool:
        """Start a process; false if none can be had, or the interpreter is gone."""
        try:
            self._begin(role, first, replaces)
        except OSError as error:
            if replaces is not None:
                logger.error("a new worker did not start (%s); the old ones go on", error)
                self._renewing = None
            elif not self._served:
                say(f"no process can be started: {error}")
                self._status = 1
                self._stop()
            else:
                self._failures += not self._reload
                pause = self._back_off()
                logger.error("no %s process: %s; trying again in %.1f s", role, error, pause)
            return False
        return True

    def _begin(self, role: Role, first: bool, replaces: Child | None) -> None:
        place = {
            "role": role,
            "first": first,
            "reload": self._reload,
            "guarded": self._guarded and not self._reload,
            "own": replaces.own if replaces else self._free(),
        }
        listening = self._listening if role == "worker" else ()
        child = start_child(self._command, place, listening, replaces, self._token)
        self._selector.register(child.link, selectors.EVENT_READ, child)
        self._children.append(child)

    def _free(self) -> int:
        """The socket that is the own one of the fewest workers."""
        own = [child.own for child in self._of("worker")]
        return min(range(len(self._listening)), key=own.count)

    def _read_reports(self, child: Child) -> None:
        messages = child.said()
        if messages is None:
            self._selector.unregister(child.link)
            return
        for message in messages:
            if "closed" in message:
                child.closed = True
            elif "failed" in message:
                child.failed = message["failed"]
            else:
                self._on_ready(child, message)

    def _on_ready(self, child: Child, message: dict[str, Any]) -> None:
        child.ready = True
        self._served.add(child.role)
        self._plugins = self._plugins or message["own_process"]
        self._guarded = self._guarded or message["guarded"]
        if self._watch is not None:
            self._watch.add(message["files"])
            self._failures = 0
        if child.replaces is not None:
            old, child.replaces = child.replaces, None
            self._end(old)

    def _look_after(self, child: Child) -> None:
        status = child.process.poll()
        if status is None:
            if child.ending is not None and monotonic() > child.ending:
                logger.warning("process %d did not end in time; killing it", child.process.pid)
                child.ending = float("inf")
                child.process.kill()
            return
        self._forget(child)
        if child.ending is None and not self._stopping:
            self._on_death(child, status)

    def _forget(self, child: Child) -> None:
        if child.link.fileno() in self._selector.get_map():
            self._read_reports(child)  # read its last report
        if child.link.fileno() in self._selector.get_map():
            self._selector.unregister(child.link)
        child.link.close()
        self._children.remove(child)

    def _on_death(self, child: Child, status: int) -> None:
        if child.replaces is not None:
            logger.error("a new worker did not start; the old ones go on")
            self._renewing = None
            return
        if not child.ready and not self._may_be_tried_again(child, status):
            self._give_up(status)
            return
        lived = monotonic() - child.born
        self._failures = self._failures + 1 if lived < STEADY or not child.ready else 1
        if self._reload:
            logger.error("the service %s; waiting for a change", _how(status))
            self._stand_in_for(child)
            return
        logger.error(
            "%s process %d %s; starting another in %.1f s",
            child.role,
            child.process.pid,
            _how(status),
            self._back_off(),
        )

    def _stand_in_for(self, child: Child) -> None:
        from sayso.service.standin import StandIn

        self._stand_in = StandIn(self._listening[0], child.failed)

    def _dismiss(self) -> None:
        if self._stand_in is not None:
            self._stand_in.close()
            self._stand_in = None

    def _back_off(self) -> float:
        """The seconds for which no child is started."""
        pause = pause_after(self._failures)
        self._not_before = monotonic() + pause
        return pause

    def _may_be_tried_again(self, child: Child, status: int) -> bool:
        """Whether a process that never served is no reason to end the service: one of its role has
        served before, or it was killed beside workers that serve."""
        killed = status < 0 and "worker" in self._served
        return self._reload or child.role in self._served or killed

    def _give_up(self, status: int) -> None:
        """Stop, because the first of its role never served: it has reported why, or never called
        `serve`, or was killed."""
        if status < 0:
            say(f"the service {_how(status)} before it served; out of memory, perhaps")
        if status == 0:
            say(
                "the program ended without serving; with workers or reload it runs again in each "
                "process and must call serve() again"
            )
        self._status = status if status > 0 else 1
        self._stop()

    def _end(self, child: Child) -> None:
        if child.ending is not None:
            return
        child.ending = monotonic() + self._patience + GRACE
        if child.role == "worker" and child.ready and not self._stopping:
            # Others serve meanwhile: directed to listen on nothing, it still serves accepted
            # clients and ends.
            self._share()
        else:
            child.process.terminate()

    def _stop(self) -> None:
        self._stopping = True
        # The workers have sockets of their own: the last of them closes the port.
        for each in self._listening:
            each.close()
        for child in self._children:
            # A replaced child still serves clients that have reached it, until it is directed to
            # drain.
            child.ending = None
            self._end(child)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP and not self._reload:
            logger.info("SIGHUP: processes are replaced by new ones, one after another")
            self._renew_all = True
        elif not self._stopping:
            self._stop()
        elif number == signal.SIGINT:
            self._status = 130
            for child in self._children:
                child.process.kill()

    def _renew(self) -> None:
        if any(child.replaces for child in self._children):
            return
        if self._renew_all:
            self._renew_all = False
            # The settings may have changed, and the first child with the new ones reports what they
            # allow.
            self._first_announces = True
            self._renewing = self._of("worker") + self._of("plugins")
        if self._renewing is None:
            return
        if not self._renewing:
            if self._is_whole():
                self._renewing = None
                logger.info(
                    "SIGHUP: all processes are replaced; old ones that have turns end after these"
                )
            return
        old = self._renewing.pop(0)
        if old not in self._children or old.ending is not None:
            return
        if old.role == "plugins":
            self._end(old)
        else:
            announces, self._first_announces = self._first_announces, False
            self._start("worker", first=announces, replaces=old)

    def _is_whole(self) -> bool:
        """Whether every process that should be there serves."""
        there = self._of("worker") + self._of("plugins")
        plugins = self._plugins and self._workers > 1
        return len(there) == self._workers + plugins and all(child.ready for child in there)

    def _reload_changed(self) -> None:
        if self._watch is None or not (changed := self._watch.changed()):
            return
        logger.warning("%s changed; starting again", changed.name)
        self._failures = 0
        self._dismiss()
        for child in self._children:
            self._end(child)


def pause_after(failures: int) -> float:
    """Seconds until another child is started after this many died shortly after each other."""
    return min(SHORTEST * 2 ** (failures - 1), LONGEST) if failures < 10 else LONGEST


def _how(status: int) -> str:
    if status < 0:
        return f"was ended by {signal_name(-status)}"
    return f"ended with status {status}"
