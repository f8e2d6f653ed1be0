"""Helpers of the tests that drive the page in a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sayso import (
    Agent,
    Call,
    Caller,
    LocalShell,
    Proposal,
    Result,
    Turn,
    tool,
)
from sayso.testing import Served, Service, scripted

PLUGINS = 'plugins = ["v2", "console"]\n[approvals]\nrun = "caller"\n'


Opened = Callable[..., Any]


def served(serve: Served, agent: object, config: str = PLUGINS) -> Service:
    return serve(agent, config=config)


class Files:
    """An agent with a gated tool that counts its runs."""

    def __init__(self, *steps: Any, output: str = "deleted") -> None:
        self.ran: list[str] = []
        self.output = output

        @tool(requires_approval=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.ran.append(path)
            return f"{self.output} {path}"

        self.model = scripted(*steps)
        self.agent = Agent(
            name="files",
            description="Looks after files",
            model=self.model,
            tools=[delete],
            commands=LocalShell(),
        )

    def results(self) -> list[Result]:
        """The results in the model's last ask."""
        turns: list[Turn] = list(self.model.asks[-1].turns)
        return [b for turn in turns for b in turn.blocks if isinstance(b, Result)]


def deleting(*paths: str) -> list[Call]:
    return [Call(f"call-{path}", "delete", {"path": path}) for path in paths]


def rests(page: Any) -> None:
    """Wait until no turn runs: only then the page accepts a message and has stored the last one."""
    page.locator("#stop").wait_for(state="hidden")


def say(page: Any, text: str) -> None:
    rests(page)
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def sees(page: Any, text: str) -> None:
    page.locator("#conversation").get_by_text(text).first.wait_for()


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`, run on a thread of its own, since the browser's driver has a loop
    here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result(60)


def sent(page: Any) -> list[Any]:
    """The bodies that the page sends to the agent, as they arrive."""
    bodies: list[Any] = []

    def note(request: Any) -> None:
        if "/api/" in request.url:
            bodies.append(request.post_data_json)

    page.on("request", note)
    return bodies


class Walks:
    """An agent with gated calls whose input may be changed, all of it or in part."""

    def __init__(self, *steps: Any, editable: Any = True) -> None:
        self.ran: list[tuple[int, str]] = []

        @tool(requires_approval=True, editable=editable)
        def book(hours: int, pet: str) -> str:
            """Book a walk."""
            self.ran.append((hours, pet))
            return "booked"

        self.agent = Agent(model=scripted(*steps), tools=[book])


def as_json(page: Any) -> None:
    """Edit as JSON rather than in the fields, unless that is how it was edited before."""
    if page.get_by_label(", as JSON:").count() == 0:
        press(page, "Edit as JSON")


def edits(page: Any, text: str) -> None:
    press(page, "Edit…")
    as_json(page)
    page.get_by_label(", as JSON:").fill(text)
    press(page, "Approve as edited")


def decided_elsewhere(service: Service, place: int = 0, **decision: Any) -> None:
    row = waiting(service)[place]
    run(service.host.calls.decide(row.id, Caller("cli"), run=False, **decision))


def inbox(page: Any) -> Any:
    """The inbox, which is a view of its own."""
    page.get_by_role("link", name="Inbox").click()
    region = page.get_by_role("region", name="Inbox")
    region.wait_for()
    return region


def look_again(page: Any) -> None:
    """Make the page refresh its list of pending calls now rather than in some seconds."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def waiting(service: Service) -> list[Proposal]:
    rows: list[Proposal] = run(service.host.calls.pending(Caller("test"))).calls
    return rows


def proposed(service: Service, *paths: str) -> list[Proposal]:
    """Calls of another client, which are listed in this order: the newest comes first."""
    calls = service.host.calls
    made = [run(calls.propose("delete", {"path": p}, Caller("mcp"))) for p in reversed(paths)]
    return made[::-1]


def state(service: Service, row: Proposal) -> str:
    found = run(service.host.calls.look(row.id, Caller("test")))
    assert found is not None
    return str(found.state)


def look_through(page: Any) -> None:
    """Make the page refresh its list, and wait until it has processed the answer."""
    with page.expect_response("**/console/approvals") as answer:
        look_again(page)
    answer.value.finished()
    page.evaluate(
        "new Promise(done => { const c = new MessageChannel(); "
        "c.port1.onmessage = done; c.port2.postMessage(0) })"
    )


TOKENS = """
[auth]
scheme = "bearer"
tokens = { ann = "a-token-for-ann-0123456789" }
"""

PEOPLE = """
plugins = ["v2", "console", "approvals"]
[auth]
scheme = "bearer"
[auth.tokens]
ann = "a-token-for-ann-0123456789"
bob = "a-token-for-bob-0123456789"
[auth.principals.ann]
kind = "person"
[auth.principals.bob]
kind = "person"
[approvals]
deciders = "any"
"""
"""Two people who see and decide each other's calls."""
