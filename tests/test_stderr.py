from __future__ import annotations

import asyncio
import io
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs import until
from sayso import Caller, ChatRequest, Usage
from sayso.observing import TurnBegan, TurnEnded
from sayso.observing.lines import LogLines
from sayso.service import stderr
from sayso.service.lines import adding_fields
from sayso.service.stderr import StandardError

TIMES = re.compile(r"\d\d:\d\d:\d\d[,.]\d\d\d")


class Pipe:
    """A pipe in the place of standard error, and the log on it."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.stream = os.fdopen(writer, "w")
        self.log = StandardError()
        self.log.setStream(self.stream)

    def fill(self) -> None:
        number = self.stream.fileno()
        os.set_blocking(number, False)
        with suppress(BlockingIOError):
            while True:
                os.write(number, b"." * 512)
        os.set_blocking(number, True)

    def read(self) -> str:
        with suppress(BlockingIOError):
            return os.read(self.reader, 1 << 20).decode()
        return ""

    def until_read(self, end: str) -> str:
        """The data read until `end`, without the data that filled the pipe."""
        found = ""

        def read_on() -> bool:
            nonlocal found
            found += self.read()
            return found.endswith(end)

        until(read_on)
        return found.lstrip(".")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.stream.close()
    os.close(made.reader)


def log(handler: logging.Handler, *texts: str) -> None:
    for text in texts:
        handler.handle(logging.LogRecord("sayso", logging.INFO, "", 0, text, (), None))


def test_record_is_written_at_once_where_somebody_reads(pipe: Pipe) -> None:
    log(pipe.log, "one \udcff", "two")
    assert pipe.read() == "one \\udcff\ntwo\n"


def test_records_wait_for_the_reader_of_a_full_pipe_in_their_order(pipe: Pipe) -> None:
    pipe.fill()
    long = "long " * 20_000
    log(pipe.log, "one", long, "two")
    assert pipe.until_read("two\n") == f"one\n{long}\ntwo\n"
    until(lambda: pipe.log._writer is None)
    log(pipe.log, "three")
    assert pipe.read() == "three\n"


def test_long_records_of_several_processes_are_not_mixed(tmp_path: Path) -> None:
    # Each handler represents a process; they do not know of one another.
    path, records = tmp_path / "log", [letter * 50_000 for letter in "ab"]

    def write(record: str) -> None:
        with path.open("a") as stream:
            handler = StandardError()
            handler.setStream(stream)
            log(handler, *[record] * 100)

    threads = [threading.Thread(target=write, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(path.read_text().splitlines()) == dict.fromkeys(records, 100)


def test_long_record_is_written_to_a_pipe_in_one_piece(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []

    def write(number: int, data: bytes) -> int:
        pieces.append(len(data))
        return write_(number, data)

    write_ = os.write
    monkeypatch.setattr(os, "write", write)
    log(pipe.log, "long " * 5_000)
    assert len(pipe.until_read("\n")) == 25_001
    assert pieces == [25_001]


def test_long_record_is_written_also_where_no_thread_is_to_be_had(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    long = "long " * 1_000
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        log(pipe.log, long)
        assert pipe.read() == f"{long}\n"
        pipe.fill()
        log(pipe.log, "one", long)
    log(pipe.log, "two")
    assert pipe.until_read("two\n") == f"one\n{long}\ntwo\n"


def test_records_that_found_no_room_are_counted(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stderr, "LINES", 2)
    pipe.fill()
    assert pipe.log.lock is not None
    with pipe.log.lock:
        # Before the writer counts.
        log(pipe.log, "one", "two", "three", "four")
    said = "2 records are left out: nobody read standard error\n"
    assert pipe.until_read(said) == f"one\ntwo\n{said}"


def test_records_that_nobody_can_read_any_more_are_left_out(
    pipe: Pipe, capfd: pytest.CaptureFixture[str]
) -> None:
    reader, pipe.reader = pipe.reader, os.open(os.devnull, os.O_RDONLY)
    os.close(reader)
    log(pipe.log, "one")
    pipe.log.flush()
    assert capfd.readouterr().err == ""


class Buffered(io.TextIOWrapper):
    """A stream without a descriptor that keeps its data until it is flushed."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation


def test_stream_that_is_no_file_gets_each_record_at_once() -> None:
    kept = io.BytesIO()
    handler = StandardError()
    handler.setStream(Buffered(kept))
    log(handler, "one")
    assert kept.getvalue() == b"one\n"


def test_logging_to_what_was_closed_raises_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = StandardError()
    stream = (tmp_path / "log").open("w")
    handler.setStream(stream)
    os.close(stream.fileno())
    log(handler, "the descriptor is closed")
    with suppress(OSError):
        stream.close()
    log(handler, "the stream is closed")
    assert capsys.readouterr().err == ""


def test_logging_where_standard_error_itself_was_closed_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
    log(StandardError(), "nobody can read it")


def test_record_that_cannot_be_formatted_waits_for_the_reader_and_shows_no_argument(
    pipe: Pipe,
) -> None:
    wrong = logging.LogRecord("app", logging.INFO, "app.py", 7, "in %d", ("tell-nobody",), None)
    pipe.fill()
    pipe.log.handle(wrong)
    log(pipe.log, "two")
    said = "app.py:7: a record of 'app' that cannot be written: 'in %d' (TypeError)\n"
    assert pipe.until_read("two\n") == f"{said}two\n"


def turn_ended(pipe: Pipe, text: str) -> None:
    pipe.log.soon("sayso.turn", text, dict)


def test_lines_of_turns_that_end_at_about_one_time_leave_in_one_write(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []

    def write(number: int, data: bytes) -> int:
        writes.append(data)
        return real(number, data)

    real = os.write
    monkeypatch.setattr(os, "write", write)

    async def turns() -> None:
        for number in range(3):
            turn_ended(pipe, f"turn {number}")
            await asyncio.sleep(0)
        assert not writes
        await asyncio.sleep(5 * stderr._SOON)

    asyncio.run(turns())
    assert writes == [b"turn 0\nturn 1\nturn 2\n"]
    for number in range(3):
        turn_ended(pipe, f"without a loop {number}")
    assert len(writes) == 4


def test_lines_of_turns_keep_their_place_among_others(pipe: Pipe) -> None:
    async def turns() -> None:
        turn_ended(pipe, "first")
        log(pipe.log, "second")
        assert pipe.read() == "first\nsecond\n"
        for _ in range(30):
            turn_ended(pipe, "x" * 200)
        assert len(pipe.read()) > 2000

    asyncio.run(turns())


def test_a_loop_that_is_blocked_does_not_hold_the_lines_of_others(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stderr, "_SOON", 0.0)

    async def turns() -> None:
        turn_ended(pipe, "first")
        other = threading.Thread(target=asyncio.run, args=(another(),))
        other.start()
        other.join()
        assert pipe.read() == "first\nsecond\n"

    async def another() -> None:
        turn_ended(pipe, "second")

    asyncio.run(turns())


def test_a_line_that_is_made_later_has_the_fields_of_its_own_context(pipe: Pipe) -> None:
    async def turns() -> None:
        for number in range(2):
            with adding_fields(request_id=str(number)):
                turn_ended(pipe, "ended")
        assert pipe.read() == ""

    asyncio.run(turns())
    pipe.log.flush()
    assert pipe.read() == "ended request_id=0\nended request_id=1\n"


def test_lines_whose_loop_has_gone_are_written_at_the_end(pipe: Pipe) -> None:
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    turn_ended(pipe, "last")
    asyncio._set_running_loop(None)
    loop.close()
    assert pipe.read() == ""
    pipe.log.flush()
    assert pipe.read() == "last\n"


FIELDS = st.dictionaries(
    st.sampled_from(["turn", "protocol", "address", "conversation", "seconds"]),
    st.text() | st.integers() | st.floats(allow_nan=False),
)


@pytest.mark.parametrize("as_json", [False, True])
@given(fields=FIELDS)
def test_a_line_of_which_no_record_is_made_is_that_of_a_record(
    as_json: bool, fields: dict[str, Any]
) -> None:
    handler, stream = StandardError(named=True, as_json=as_json), io.StringIO()
    handler.setStream(stream)
    handler.soon("sayso.turn", "turn ended", lambda: fields)
    record = logging.LogRecord("sayso.turn", logging.INFO, "", 0, "turn ended", (), None)
    vars(record).update(fields)
    handler.handle(record)
    first, second = (TIMES.sub("", line) for line in stream.getvalue().split("\n")[:2])
    assert first == second


class Keeps(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logger(pipe: Pipe) -> Iterator[logging.Logger]:
    made = logging.getLogger("sayso.turn")
    made.propagate = False
    made.addHandler(pipe.log)
    made.setLevel(logging.INFO)
    yield made
    made.propagate = True
    made.handlers.clear()
    made.filters.clear()
    made.setLevel(logging.NOTSET)


def end_turn() -> None:
    ended = LogLines().turn(TurnBegan("t1", "ops", Caller("v2"), "", ChatRequest(messages=[])))
    assert ended is not None
    ended(TurnEnded(1.0, None, "end_turn", "", None, 0, 0, 0, Usage(), None))


def test_a_handler_of_the_programs_own_gets_a_record_of_each_turn(
    pipe: Pipe, logger: logging.Logger
) -> None:
    logger.addHandler(own := Keeps())
    end_turn()
    assert [vars(record)["turn"] for record in own.records] == ["t1"]
    assert pipe.read().count("turn=t1") == 1


def test_filters_and_levels_apply_to_the_lines_of_turns(pipe: Pipe, logger: logging.Logger) -> None:
    end_turn()
    assert pipe.read().count("turn=t1") == 1
    for where in (pipe.log, logger):
        where.addFilter(hide := lambda record: False)
        end_turn()
        where.removeFilter(hide)
    for where in (pipe.log, logger):
        where.setLevel(logging.WARNING)
        end_turn()
        where.setLevel(logging.INFO)
    assert pipe.read() == ""
