"""Log lines show no credentials of an address, and nobody can forge one: design, section 6."""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from programs import Program
from sayso import Agent, StandardError
from sayso.addresses import hide_credentials, without_credentials
from sayso.models import load_model
from sayso.service.stderr import say
from sayso.testing import served

SECRET = "hunter2-hunter2"
LIBRARIES = ("httpx", "httpx2", "httpcore", "openai._base_client", "anthropic", "mcp.client", "a2a")


@pytest.fixture(autouse=True)
def hidden() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    hide_credentials()
    yield
    logging.setLogRecordFactory(before)


def written(record: logging.LogRecord) -> str:
    handler = StandardError()
    stream = io.StringIO()
    handler.setStream(stream)
    handler.handle(record)
    return stream.getvalue()


def record(text: Any, *args: Any, name: str = "sayso", **more: Any) -> logging.LogRecord:
    made = logging.getLogger(name).makeRecord
    return made(name, logging.INFO, "", 0, text, args, more.get("exc_info"))


@pytest.mark.parametrize(
    "address",
    [
        f"https://ann:{SECRET}@example.com/v1",
        f"https://{SECRET}@example.com/v1",
        f"https://ann:{SECRET}@[::1]:8080/v1",
        f"https://ann:a@{SECRET}@example.com/v1",
        f"postgresql://ann:{SECRET}@example.com/db",
        f"https://example.com/v1?key={SECRET}",
        f"https://example.com/v1?a=b&api-key={SECRET}#end",
        f"https://example.com/v1?subscription_key={SECRET}",
        f"https://example.com/v1?X-Amz-Signature={SECRET}",
        f"/api/chat?access_token={SECRET}",
    ],
)
@pytest.mark.parametrize("name", ["sayso.models", "uvicorn.access", *LIBRARIES])
def test_no_record_shows_the_credentials_in_an_address(address: str, name: str) -> None:
    for one in (
        record("asked %s", address, name=name),
        record(f"asked {address}", name=name),
        record("asked %(where)s", {"where": address}, name=name),
    ):
        assert SECRET not in one.getMessage()
        assert "asked " in one.getMessage()


@pytest.mark.parametrize("name", LIBRARIES)
def test_http_libraries_show_no_value_of_a_query(name: str) -> None:
    url = httpx2.URL(f"https://example.com/v1?whatever={SECRET}")
    shown = record('HTTP Request: %s %s "%s %d %s"', "GET", url, "HTTP/1.1", 200, "OK", name=name)
    assert shown.getMessage().startswith("HTTP Request: GET https://example.com/v1?whatever=")
    assert SECRET not in shown.getMessage()


def test_arguments_stay_one_by_one_for_formatters_that_look_at_them() -> None:
    shown = record("%s - %s %d", "1.2.3.4:5", f"/api/chat?key={SECRET}", 200)
    assert isinstance(shown.args, tuple)
    assert (shown.args[0], shown.args[2]) == ("1.2.3.4:5", 200)


def test_a_record_without_a_name_can_be_made() -> None:
    # Libraries make such a record to see which attributes exist.
    assert logging.makeLogRecord({}).name is None


@pytest.mark.parametrize(
    "text", ["https://example.com/?q=cats", "user@example.com", "a=b", "http://[::1", "?x=1;y=2"]
)
def test_what_holds_no_credentials_stays(text: str) -> None:
    assert without_credentials(text) == text
    assert record("%s", text).getMessage() == text


def test_traces_show_no_credentials_also_in_a_programs_own_form() -> None:
    try:
        raise ValueError(f"cannot reach https://ann:{SECRET}@example.com")
    except ValueError:
        one = record("it failed", exc_info=sys.exc_info())
    assert SECRET not in logging.Formatter().format(one)
    assert SECRET not in written(one)


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_requests_of_http_libraries_are_logged_without_credentials(
    library: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def words(messages: Any, context: Any) -> str:
        return "fine"

    with served(words) as service, caplog.at_level(logging.DEBUG):
        where = f"http://ann:{SECRET}@127.0.0.1:{service.port}/health?key={SECRET}"
        library.get(where, trust_env=False)
    assert "HTTP Request" in caplog.text
    assert SECRET not in caplog.text


def test_openai_model_is_logged_without_the_credentials_of_its_address(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")

    async def words(messages: Any, context: Any) -> str:
        return "fine"

    with served(words) as service, caplog.at_level(logging.DEBUG):
        where = f"http://ann:{SECRET}@127.0.0.1:{service.port}/v1?sub={SECRET}"
        model = load_model("openai:some", {"base_url": where, "retries": 0})
        with served(Agent(model=model, name="asks")) as asking:
            reply = asking.post("/api/chat", {"messages": [_user("hej")]})
            ready = asking.get("/ready")
    assert "127.0.0.1" in caplog.text
    assert SECRET not in caplog.text + reply.text + ready.text


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


FORGED = "2026-01-01 00:00:00,000 INFO sayso.approvals: ann approved it"


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_text_in_a_record_begins_no_line(end: str) -> None:
    text = written(record("tool %s failed", f"x{end}{FORGED}"))
    assert text.splitlines() == [text.rstrip("\n")]


def test_control_and_reordering_characters_are_written_out() -> None:
    text = written(record("tool %s", "\x1b[2J\x00 3 \u202e9 > \u2066\ud800"))
    assert text == "tool \\x1b[2J\\x00 3 \\u202e9 > \\u2066\\ud800\n"


def test_lines_of_a_trace_look_like_no_record() -> None:
    try:
        raise ValueError(f"x\n{FORGED}\r{FORGED}")
    except ValueError:
        text = written(record("it failed", exc_info=sys.exc_info()))
    first, *more = text.splitlines()
    assert first == "it failed"
    assert more
    assert all(line.startswith("  | ") for line in more)
    assert written(record("it failed\n%s", f"Trace\n{FORGED}")) == (
        f"it failed\n  | Trace\n  | {FORGED}\n"
    )


def test_what_is_said_at_the_start_has_no_control_characters(
    capfd: pytest.CaptureFixture[str],
) -> None:
    say("plugin \x1b[2J is\nnot installed")
    assert capfd.readouterr().err == "sayso: plugin \\x1b[2J is\nnot installed\n"


SERVICE = f"""
import logging
from sayso import Agent, Blocked, Call, serve, tool
from sayso.testing import scripted

logging.getLogger("sayso").info("loaded from https://ann:{SECRET}@example.com")

@tool
def read(name: str) -> str:
    "Read a file."
    raise ValueError("no " + name)

agent = Agent(model=scripted([Call("1", "read", {{"name": "x\\n{FORGED}"}})], "no"), tools=[read],
              name="forged")
if __name__ == "__main__":
    serve(agent, host="127.0.0.1", port=0, log_level="debug")
"""


def test_log_of_a_service_has_one_line_a_record(tmp_path: Path) -> None:
    file = tmp_path / "service.py"
    file.write_text(SERVICE)
    environ = {**os.environ, "SAYSO_SERVER__STATE_DIR": str(tmp_path / "state")}
    service = Program([sys.executable, str(file)], tmp_path, environ)
    try:
        body = json.dumps({"messages": [_user("read it")]})
        with closing(http.client.HTTPConnection("127.0.0.1", service.port)) as connection:
            connection.request("POST", f"/api/chat?key={SECRET}", body, _JSON)
            with connection.getresponse() as reply:
                assert reply.status == 200
    finally:
        service.close()
    assert "ann approved it" in service.said
    assert not [line for line in service.said.splitlines() if line.startswith(FORGED)]
    assert SECRET not in service.said


_JSON = {"Content-Type": "application/json"}


def test_a_record_made_of_attributes_alone_needs_no_name() -> None:
    assert logging.makeLogRecord({"msg": "from another process"}).getMessage()


def in_json(record: logging.LogRecord) -> dict[str, Any]:
    handler = StandardError(as_json=True)
    stream = io.StringIO()
    handler.setStream(stream)
    handler.handle(record)
    text = stream.getvalue()
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_json_record_is_one_line_that_nobody_forges() -> None:
    said = record("tool said %s", 'a\n{"level": "info"}\u2028\x85\u202e\x1b[2J')
    said.created = 0.25
    assert in_json(said) == {
        "timestamp": "1970-01-01T00:00:00.250Z",
        "level": "info",
        "logger": "sayso",
        "event": 'tool said a\n{"level": "info"}\u2028\x85\u202e\x1b[2J',
    }


def test_a_json_record_has_its_trace_and_its_fields_without_credentials() -> None:
    address = f"https://ann:{SECRET}@example.com/v1"
    try:
        raise ValueError(address)
    except ValueError:
        said = record("failed", exc_info=sys.exc_info())
    said.turn, said.tokens, said.address, said.sock = "t1", 12, address, object()
    line = in_json(said)
    assert (line["turn"], line["tokens"]) == ("t1", 12)
    assert "sock" not in line
    assert line["exception"].startswith("Traceback")
    assert SECRET not in json.dumps(line)
    assert "example.com" in line["address"]


def test_a_long_value_of_a_json_record_is_cut_and_says_so() -> None:
    line = in_json(record("x" * 100_000))
    assert line["event"].endswith("x... (100000 characters)")
    assert len(line["event"]) < 10_000


def test_fields_follow_a_line_of_text_as_words_that_one_can_grep() -> None:
    said = record("turn ended")
    said.turn, said.seconds, said.who = "t1", 0.5, "ann\nlee x=1"
    assert written(said) == 'turn ended turn=t1 seconds=0.5 who="ann\\nlee x=1"\n'


def test_the_ids_of_the_current_span_stand_in_a_json_record() -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False)
    with trace.use_span(trace.NonRecordingSpan(context)):
        line = in_json(record("inside"))
    assert line["trace_id"] == f"{0xABC:032x}"
    assert line["span_id"] == f"{0xDEF:016x}"


def test_a_service_writes_its_log_as_json(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "import logging\n"
        "logging.getLogger('sayso.mine').warning('loaded')\n"
        "def agent(messages, context):\n    return 'hi'\n"
    )
    command = [sys.executable, "-m", "sayso", "serve", "agent.py", "--log-format", "json"]
    environ = os.environ | {"SAYSO_SERVER__HOST": "127.0.0.1", "SAYSO_SERVER__PORT": "0"}
    with closing(Program(command, tmp_path, environ)) as service:
        assert service.port
        service.process.terminate()
        assert service.end() == 0
    lines = [line for line in service.said.splitlines() if not line.startswith("sayso: ")]
    found = [json.loads(line) for line in lines]
    assert [(each["logger"], each["event"]) for each in found] == [("sayso.mine", "loaded")]


def test_record_that_is_made_without_a_name_is_a_record() -> None:
    assert logging.makeLogRecord({"msg": "said"}).getMessage() == "said"
