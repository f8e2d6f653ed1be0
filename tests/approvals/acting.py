"""The service that the fault tests run, kill and run again: `python acting.py`, in its folder.

`sayso.toml` in the folder configures it.

- `PLAN`: a JSON list of stages, each a list of names for which the model proposes `wipe`; after the
  last stage it reports the tools' results. Runs and asks are appended to the files `runs` and
  `asks`.
- `DIE`: the point at which the process kills itself: `EVENT:written` or `EVENT:committed` for the
  transaction that logs EVENT or puts a turn in that state, `tool:before`, `tool:after`, `model`,
  `reply`. `DIE_AT` counts them; with `DIE_ONCE` it happens once.
- `FREEZE`: at that point the process is stopped instead of killed.
- `HOLD`: stops in the `tool` or the `model` until the file `go` exists.
- `WORDS`: the names stand in the user's first message behind a word, in place of the plan.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sayso.engine
import sayso.ledger.stores
from sayso import Agent, Call, RequestContext, Session, serve, tool
from sayso.ledger import Store, SuspendedTurn, Transaction
from sayso.ledger.stores import open_store
from sayso.models import Ask, Result, Text
from sayso.testing.script import Scripted
from sayso.wire.events import AgentEvent, MessageAdded
from sayso.wire.messages import Message


class Fate:
    """Counts how often the point of `DIE` is reached, and ends the process there."""

    def __init__(self) -> None:
        self.point = os.environ.get("DIE", "")
        self.left = int(os.environ.get("DIE_AT", "1"))

    def at(self, point: str) -> None:
        if point != self.point:
            return
        self.left -= 1
        if self.left == 0 and self.first():
            stop_still() if "FREEZE" in os.environ else os.kill(os.getpid(), signal.SIGKILL)

    def first(self) -> bool:
        """With `DIE_ONCE` only one process of the folder dies."""
        if "DIE_ONCE" not in os.environ:
            return True
        try:
            os.close(os.open("died", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True


def stop_still() -> None:
    """Stop this process, and return once somebody continues it, half a second later or more."""
    seen = time.monotonic()
    os.kill(os.getpid(), signal.SIGSTOP)
    # The signal may reach this thread last; without this loop it would run on for a moment.
    while (now := time.monotonic()) - seen < 0.5:
        seen = now
        time.sleep(0.001)


class Spy:
    """A transaction that notes the logged events and the changes of turns."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.noted: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def append_log(self, chain: int, entry: dict[str, Any]) -> None:
        self.noted.append(entry["event"])
        self._tx.append_log(chain, entry)

    def put_turn(self, turn: SuspendedTurn) -> None:
        self.noted.append(turn.state)
        self._tx.put_turn(turn)


class Mortal:
    """A store whose process may die in a transaction, or right after its commit."""

    def __init__(self, store: Store, fate: Fate) -> None:
        self._store = store
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, work: Callable[[Transaction], Any]) -> Any:
        spies: list[Spy] = []

        def watched(tx: Transaction) -> Any:
            spies.append(spy := Spy(tx))
            value = work(spy)  # type: ignore[arg-type]
            for event in spy.noted:
                self._fate.at(f"{event}:written")
            return value

        value = await self._store.run(watched)
        for event in spies[-1].noted:
            self._fate.at(f"{event}:committed")
        return value


def note(name: str, line: object) -> None:
    """Append a line that survives a kill."""
    file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)


def wait_for(name: str) -> None:
    """Return when the file `name` exists, or after two minutes."""
    deadline = time.monotonic() + 120
    while not Path(name).exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def text_of(ask: Ask) -> str:
    """The user's first text."""
    return next(b.text for b in ask.turns[0].blocks if isinstance(b, Text))


def agent(fate: Fate) -> Agent:
    planned: list[list[str]] = json.loads(os.environ.get("PLAN", '[["a"]]'))
    options = json.loads(os.environ.get("TOOL", "{}"))
    held = os.environ.get("HOLD", "")

    def act(name: str, session: Session) -> str:
        fate.at("tool:before")
        note("runs", name)
        session["wiped"] = [*session.get("wiped", []), name]
        if held == "tool":
            note("held", name)
            wait_for("go")
        fate.at("tool:after")
        return f"wiped {name}"

    if os.environ.get("ASYNC"):

        @tool(requires_approval=True, **options)
        async def wipe(name: str, session: Session) -> str:
            """Wipe a thing."""
            return await asyncio.to_thread(act, name, session)
    else:

        @tool(requires_approval=True, **options)
        def wipe(name: str, session: Session) -> str:
            """Wipe a thing."""
            return act(name, session)

    async def answer(ask: Ask) -> Any:
        note("asks", len(ask.turns))
        stages = sum(any(isinstance(b, Call) for b in turn.blocks) for turn in ask.turns)
        plan = [text_of(ask).split()[1:]] if "WORDS" in os.environ else planned
        if stages:
            fate.at("model")
        if stages and held == "model":
            note("held", "model")
            await asyncio.to_thread(wait_for, "go")
        if stages < len(plan):
            return [Call(f"c{stages}-{n}", "wipe", {"name": x}) for n, x in enumerate(plan[stages])]
        results = [b for turn in ask.turns for b in turn.blocks if isinstance(b, Result)]
        return "ended: " + " | ".join(r.output.splitlines()[0] for r in results)

    def reported(event: AgentEvent) -> None:
        # The user's own message is reported as a Message, the reply as an AgentMessage.
        if isinstance(event, MessageAdded) and not isinstance(event.message, Message):
            fate.at("reply")

    return Agent(model=Scripted(answer), tools=[wipe], on_event=[reported])


def function(fate: Fate) -> Callable[..., Any]:
    """A plain callable that proposes one call and carries it out itself."""

    def act(messages: list[Message], context: RequestContext) -> Any:
        if len(messages) == 1:
            call = {"id": "own", "name": "wipe", "input": {"name": "a"}, "execute": False}
            return {"content": "may I?", "data": {"tool_calls": [call]}}
        for decision in context.decisions:
            if decision.approved:
                fate.at("tool:before")
                note("runs", decision.input["name"])
                if os.environ.get("HOLD") == "tool":
                    note("held", decision.input["name"])
                    wait_for("go")
                fate.at("tool:after")
        return "carried out" if context.decisions else "nothing to carry out"

    return act


def main() -> None:
    note("pids", os.getpid())
    fate = Fate()

    @functools.wraps(open_store)
    def mortal(*args: Any) -> Any:
        return Mortal(open_store(*args), fate)

    sayso.ledger.stores.open_store = mortal
    # Hundreds of requests at once may wait long for a slot on a slow machine.
    sayso.engine.PATIENCE = 300
    served = function(fate) if os.environ.get("CALLABLE") else agent(fate)
    serve(served, host="127.0.0.1", **json.loads(os.environ.get("OPTIONS", "{}")))


if __name__ == "__main__":
    main()
