"""Traces in the log show the user's own code; Sayso's own frames are one line."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sayso import Agent, Call, Plugin, PluginError, hidden_trace, hookimpl, load_config, tool
from sayso.cli.group import run
from sayso.context import RequestContext, Session
from sayso.testing import Served, scripted

CORE = str(Path(sys.modules["sayso"].__file__ or "").parent)


@tool
def explode(depth: int = 2) -> str:
    """Fail a few calls further down."""
    if depth:
        return explode.call({"depth": depth - 1}, Session(), RequestContext())  # type: ignore[no-any-return]
    raise ValueError("it exploded")


def test_frames_of_ours_between_those_of_the_user_are_one_line() -> None:
    try:
        explode.call({}, Session(), RequestContext())
    except ValueError as error:
        trace = hidden_trace(error, ())
    assert CORE not in trace
    assert re.search(r"^  \.\.\. \d+ frames? of Sayso$", trace, re.M)
    assert trace.count(__file__) == 4
    assert trace.endswith("ValueError: it exploded\n")


def test_a_failed_tool_is_logged_with_its_own_frames_alone(
    sayso_served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    caplog.set_level(logging.INFO, "sayso")
    service = sayso_served(Agent(model=scripted([Call("c1", "fail", {})], "oh"), tools=[fail]))
    service.chat("go")
    (said,) = [r.getMessage() for r in caplog.records if "tool fail failed" in r.getMessage()]
    assert f'File "{__file__}"' in said
    assert CORE not in said
    assert "asyncio" not in said and "threading.py" not in said
    assert len(said.splitlines()) <= 8


def test_the_last_frame_is_shown_even_if_it_is_ours() -> None:
    try:
        Session()["missing"]
    except KeyError as error:
        trace = hidden_trace(error, ())
    assert f"{CORE}/context.py" in trace


def test_causes_are_folded_as_well() -> None:
    try:
        try:
            explode.call({}, Session(), RequestContext())
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        trace = hidden_trace(error, ())
    assert "ValueError: it exploded" in trace and "RuntimeError: outer" in trace
    assert CORE not in trace


def test_debug_shows_all_frames(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sayso")
    try:
        explode.call({}, Session(), RequestContext())
    except ValueError as error:
        trace = hidden_trace(error, ())
    assert f"{CORE}/tools/" in trace


def test_a_plugin_that_fails_at_the_start_is_named_with_file_and_line(
    sayso_served: Served,
) -> None:
    def observe(self: Plugin) -> None:
        raise KeyError("no such thing")

    plugin: Plugin = type("Odd", (Plugin,), {"name": "odd", "observe": hookimpl(observe)})()
    with pytest.raises(PluginError) as raised:
        sayso_served(Agent(model=scripted("fine")), [plugin])
    line = observe.__code__.co_firstlineno + 1
    assert f"KeyError: 'no such thing' ({__file__}, line {line})" in str(raised.value)


def test_debug_before_serve_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("sayso.server.serve", lambda config: given.append(config.server))
    assert run(["--debug", "serve", "ops.py"]) == 0
    assert run(["--debug", "serve", "ops.py", "--no-debug"]) == 0
    assert run(["serve", "ops.py", "--debug"]) == 0
    assert [server.debug for server in given] == [True, False, True]
    assert [server.log_level for server in given] == ["debug", "info", "debug"]


def test_server_debug_also_logs_at_the_level_debug(tmp_path: Path) -> None:
    def level(text: str) -> Any:
        file = tmp_path / "sayso.toml"
        file.write_text(f"[server]\n{text}\n")
        return load_config(file, environ={}).server.log_level

    assert level("debug = true") == "debug"
    assert level("debug = true\nlog_level = 'warning'") == "warning"
    assert level("") == "info"
