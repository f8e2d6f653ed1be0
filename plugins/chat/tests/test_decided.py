"""`sayso chat` tells of decisions that were not recorded, or may have been."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chat_kit import (
    BACK,
    DELETE,
    EDIT,
    PLUGINS,
    QUESTION,
    SILENCE,
    Deletes,
    Silences,
    at_terminal,
    chat,
    folder,
)

from sayso import Agent, Call, Caller, Principal, tool
from sayso.testing import Service, scripted, served
from terminal import terminal

__all__ = ["folder"]

TWO = """
[auth]
scheme = "bearer"
tokens = { ann = "a-token-for-ann-0123456789", bob = "a-token-for-bob-0123456789" }
[auth.principals.ann]
kind = "person"
[auth.principals.bob]
kind = "person"
[approvals]
deciders = "any"
[[approvals.rules]]
tool = "silence"
approvers = ["ann", "bob"]
quorum = 2
"""
ANN = "a-token-for-ann-0123456789"
BOB = Caller("cli", principal=Principal("bob", kind="person", person="bob"))


@contextlib.contextmanager
def cable(url: str) -> Iterator[tuple[str, threading.Event]]:
    """An address that leads to the service at `url` until the event is set."""
    cut = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:

        def carry(one: socket.socket, other: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while piece := one.recv(65536):
                    other.sendall(piece)
                other.shutdown(socket.SHUT_WR)

        def connect() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = server.accept()
                    far = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
                    pool.submit(carry, near, far)
                    pool.submit(carry, far, near)
                    pool.submit(end, near, far)

        def end(*ends: socket.socket) -> None:
            cut.wait(60)
            for one in ends:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

        pool.submit(connect)
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", cut
        finally:
            cut.set()
            server.shutdown(socket.SHUT_RDWR)


def test_connection_that_is_lost_after_an_approval_leaves_no_belief_that_nothing_ran(
    folder: Path,
) -> None:
    runs, goes_on = threading.Event(), threading.Event()

    @tool(requires_approval=True)
    def delete(name: str) -> str:
        """Delete a thing for good."""
        runs.set()
        goes_on.wait(60)
        return "deleted"

    agent = Agent(model=scripted(DELETE, "Gone."), tools=[delete])
    with served(agent, config=PLUGINS) as service, cable(service.url) as (url, cut):
        with terminal(["-m", "sayso", "chat", url], folder) as person:
            person.shows("> ")
            person.keys("delete a\n")
            person.shows(QUESTION)
            person.keys("a\n")
            assert runs.wait(60)
            cut.set()
            person.shows("what was approved may have run; approve it again")
            goes_on.set()


def test_input_that_another_approver_has_edited_is_shown_and_asked_for(folder: Path) -> None:
    given = Silences(SILENCE, "Done.")
    with served(given.agent, config=PLUGINS + TWO) as service:
        command = ["-m", "sayso", "chat", service.url]
        with terminal(command, folder, {"SAYSO_TOKEN": ANN}) as person:
            person.shows("> ")
            person.keys("be quiet\n")
            person.shows(EDIT)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, edit(service)).result(60)
            person.keys("a\n")
            assert '"hours": 9' in person.shows(EDIT)
            person.keys("a\n")
            person.shows("silenced web-1 for 9 hours")
    assert given.ran == [("web-1", 9)]


async def edit(service: Service) -> None:
    calls = service.host.calls
    (row,) = (await calls.pending(BOB)).calls
    new = {"host": "web-1", "hours": 9}
    await calls.decide(row.id, BOB, approved=True, edited=new, seen=row.seen, run=False)


def test_edit_that_is_refused_shows_which_edit_an_approval_is_of(folder: Path) -> None:
    given = Silences(SILENCE, "Done.", editable=True)
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("be quiet\n")
        person.shows(EDIT)
        person.keys("e\n")
        person.shows("input as JSON: ")
        person.keys(BACK + '{"host": "web-1", "hours": 3}\n')
        person.shows("a approves it as changed")
        person.shows(EDIT)
        person.keys("e\n")
        person.shows("input as JSON: ")
        person.keys("x\n")
        person.shows("that is no JSON")
        shown = person.shows("a approves it as changed")
        assert '"hours": 3' in shown
        person.keys("a\n")
        person.shows("silenced web-1 for 3 hours")


def test_who_leaves_at_a_question_is_told_that_nothing_was_decided(folder: Path) -> None:
    calls = [Call("1", "delete", {"name": "a"}), Call("2", "delete", {"name": "b"})]
    given = Deletes(calls, "Gone.")
    with at_terminal(given.agent, folder) as person:
        person.shows("> ")
        person.keys("delete a and b\n")
        person.shows(QUESTION)
        person.keys("a\n")
        person.shows("(2 of 2)")
        person.shows(QUESTION)
        person.keys("\x04")
        person.shows("2 left undecided; --continue goes on from there")
        assert person.ended() == 0
    assert given.names == []


def test_flag_approves_a_call_that_needs_another_person_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = Silences(SILENCE, "Done.")
    with served(given.agent, config=PLUGINS + TWO) as service:
        code, out, err = chat(capsys, service, "-m", "be quiet", "--approve", "--token", ANN)
    assert (code, out.count("approved by ann")) == (0, 1)
    assert "1 left undecided" in err
