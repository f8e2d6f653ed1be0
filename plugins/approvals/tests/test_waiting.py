"""The end of a call reaches the requests that wait for it, and those that follow all calls."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from inbox import ANN, AUTH, BOB, EVE, Inbox, configured, deleting

from sayso.testing import Served
from sayso_approvals import events as sent

DEADLINE = 60.0


def until(holds: Callable[[], Any]) -> Any:
    """The value of `holds` once it is true."""
    deadline = time.monotonic() + DEADLINE
    while not (value := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


class Stream:
    """The events of one reader: `next` gives each, `cursor` is the id that came last."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.cursor = ""

    def next(self) -> tuple[str, Any]:
        """The next event: its name and data; comments and events without data are skipped."""
        name = ""
        while True:
            line = self._answer.readline().decode()
            assert line, "the stream has ended"
            key, _, value = line.strip().partition(": ")
            if key == "id":
                self.cursor = value
            elif key == "event":
                name = value
            elif key == "data":
                return name, json.loads(value)

    def read_id(self) -> str:
        """The id that is sent at the beginning of the stream and after each page."""
        while not (line := self._answer.readline().decode()).startswith("id: "):
            assert line, "the stream has ended"
        self.cursor = line.strip().removeprefix("id: ")
        return self.cursor


@contextmanager
def following(inbox: Inbox, who: str = ANN, **headers: str) -> Iterator[Stream]:
    connection = http.client.HTTPConnection("127.0.0.1", inbox.service.port, timeout=DEADLINE)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", "/approvals/events", headers=inbox.headers(who) | given)
    answer = connection.getresponse()
    try:
        assert answer.status == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)
    finally:
        answer.close()
        connection.close()


def test_request_waits_until_the_call_is_decided(inbox: Inbox) -> None:
    row = inbox.propose()
    tag = inbox.get(f"/{row.id}").headers["etag"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(inbox.get, f"/{row.id}?wait=60", ANN, If_None_Match=tag)
        assert inbox.decide(row.id, False).status == 200
        answer = asked.result(DEADLINE)
    assert (answer.status, answer.json()["state"]) == (200, "REJECTED")
    assert answer.headers["etag"] != tag
    # A change that has happened already is reported at once.
    started = time.monotonic()
    assert inbox.get(f"/{row.id}?wait=60", ANN, If_None_Match=tag).status == 200
    assert time.monotonic() - started < 30


def test_wait_ends_with_what_is_known(inbox: Inbox) -> None:
    row = inbox.propose()
    tag = inbox.get(f"/{row.id}").headers["etag"]
    unchanged = inbox.get(f"/{row.id}?wait=1", ANN, If_None_Match=tag)
    assert (unchanged.status, unchanged.body) == (304, b"")
    # A proxy that compresses an answer makes its tag a weak one.
    for same in (tag, f"W/{tag}", f'"other", {tag}'):
        assert inbox.get(f"/{row.id}", ANN, If_None_Match=same).status == 304
        assert inbox.get(f"/{row.id}?wait=1", ANN, If_None_Match=same).status == 304
    for wrong in ("x", "-1", "1.5"):
        assert inbox.get(f"/{row.id}?wait={wrong}").status == 422


def test_wait_without_a_tag_ends_at_once_for_an_ended_call_and_always_shows_the_call(
    inbox: Inbox,
) -> None:
    row = inbox.propose()
    waiting = inbox.get(f"/{row.id}?wait=1")
    assert (waiting.status, waiting.json()["state"]) == (200, "PENDING")
    assert inbox.decide(row.id, False).status == 200
    started = time.monotonic()
    ended = inbox.get(f"/{row.id}?wait=60")
    assert (ended.status, ended.json()["state"]) == (200, "REJECTED")
    assert time.monotonic() - started < 30


def test_wait_ends_when_the_call_expires(sayso_served: Served) -> None:
    inbox = Inbox(sayso_served(deleting(), config=configured('ttl = "1s"\n')))
    row = inbox.propose()
    answer = inbox.get(f"/{row.id}?wait=30")
    assert (answer.status, answer.json()["state"]) == (200, "EXPIRED")


def test_waiters_are_bounded(sayso_served: Served) -> None:
    auth = f"{AUTH}[limits]\nwaiters = 1\n"
    inbox = Inbox(sayso_served(deleting(), config=configured(auth=auth)))
    row = inbox.propose()
    with following(inbox) as stream:
        stream.read_id()
        for path in (f"/{row.id}?wait=30", "/events"):
            busy = inbox.get(path)
            assert (busy.status, busy.json()["code"]) == (503, "BUSY")
            assert busy.headers["retry-after"] == "5"
    # The place of a client that has left is free.
    until(lambda: inbox.get(f"/{row.id}?wait=0").status == 200)
    until(lambda: inbox.get(f"/{row.id}?wait=1").status != 503)


def test_events_tell_what_becomes_of_a_call(inbox: Inbox) -> None:
    with following(inbox) as stream:
        stream.read_id()
        row = inbox.propose()
        name, event = stream.next()
        assert (name, event["type"]) == ("approval.requested", "approval.requested")
        assert (event["data"]["id"], event["data"]["name"]) == (row.id, "delete")
        inbox.post(f"/{row.id}/comments", {"text": "hm"}, BOB)
        assert stream.next()[0] == "approval.commented"
        inbox.decide(row.id, False)
        name, event = stream.next()
        assert (name, event["data"]["who"], event["data"]["state"]) == (
            *("approval.rejected", "bob"),
            "REJECTED",
        )


def test_reader_sees_only_what_exists_for_it(inbox: Inbox) -> None:
    with following(inbox, EVE) as stream:
        stream.read_id()
        inbox.propose("of acme")
        own = inbox.propose("of other", EVE)
        assert stream.next()[1]["data"]["id"] == own.id


def test_reader_goes_on_where_it_stopped(inbox: Inbox) -> None:
    with following(inbox) as stream:
        cursor = stream.read_id()
        first = inbox.propose("1")
        sent = stream.next()[1]
        assert sent["data"]["id"] == first.id
    second = inbox.propose("2")
    with following(inbox, last_event_id=cursor) as stream:
        again, new = stream.next()[1], stream.next()[1]
        assert (again["id"], new["data"]["id"]) == (sent["id"], second.id)
        third = inbox.propose("3")
        assert stream.next()[1]["data"]["id"] == third.id
    assert inbox.get("/events", ANN, last_event_id="nope").status == 422


def test_silent_stream_says_that_it_lives(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "BEAT", 0.05)
    with following(inbox) as stream:
        stream.read_id()
        while not (line := stream._answer.readline()).startswith(b":"):
            assert line


def test_readers_end_with_the_service(sayso_served: Served) -> None:
    inbox = Inbox(sayso_served(deleting(), config=configured()))
    row = inbox.propose()
    with following(inbox) as stream, ThreadPoolExecutor(1) as pool:
        stream.read_id()
        asked = pool.submit(inbox.get, f"/{row.id}?wait=60")
        ended = threading.Event()

        def rest() -> None:
            while stream._answer.readline():
                pass
            ended.set()

        reader = threading.Thread(target=rest)
        reader.start()
        started = time.monotonic()
        sayso_served.close()
        assert ended.wait(DEADLINE) and time.monotonic() - started < 25
        reader.join()
        asked.result(DEADLINE)
