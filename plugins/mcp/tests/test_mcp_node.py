"""The official conformance suite and the inspector's CLI, against `examples/mcp_conformance`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_programs import CONFORMANCE, INSPECTOR, program

ROOT = Path(__file__).parents[3]
AGENT = "examples/mcp_conformance/agent.py:agent"
TOOLS = {
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
    "json_schema_2020_12_tool",
    "test_custom_header",
    "test_input_required_result_tampered_state",
}
BOTH = {
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
}
SCENARIOS = {
    "2025-11-25": BOTH
    | {
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "server-sse-polling",
    },
    "2026-07-28": BOTH
    | {
        "caching",
        "http-header-validation",
        "http-custom-header-server-validation",
        "sep-2164-resource-not-found",
        "input-required-result-unsupported-methods",
        "input-required-result-missing-input-response",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
        "input-required-result-tampered-state",
    },
}
"""Scenarios for a server that has only tools. The others need prompts, resources, completion,
logging, or tools that ask the client for something."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


def environment(folder: Path) -> dict[str, str]:
    # The inspector keeps a catalogue in the home folder.
    return os.environ | {"SAYSO_SERVER__STATE_DIR": str(folder), "HOME": str(folder)}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sayso", "mcp", AGENT, *arguments]


def served(folder: Path, transport: str) -> Iterator[str]:
    log = folder / f"{transport}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command("--transport", transport, "--host", "127.0.0.1", "--port", "0"),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            env=environment(folder),
        )
    deadline = time.monotonic() + 120
    while not (found := re.search(r"MCP on (\S+)", log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    yield found[1]
    process.terminate()
    assert process.wait(60) == 0, log.read_text()


@pytest.fixture(scope="module")
def http(folder: Path) -> Iterator[str]:
    yield from served(folder, "streamable-http")


@pytest.fixture(scope="module")
def sse(folder: Path) -> Iterator[str]:
    yield from served(folder, "sse")


@pytest.mark.parametrize("version", sorted(SCENARIOS))
def test_conformance_suite_passes(http: str, folder: Path, version: str) -> None:
    arguments = ["server", "--url", http, "--suite", "all", "--spec-version", version]
    done = subprocess.run(
        [*program(CONFORMANCE), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(folder),
    )
    lines = re.findall(r"^(\S) ([\w-]+): \d+ passed, (\d+) failed", done.stdout, re.MULTILINE)
    passed = {name for mark, name, failed in lines if mark == "✓" and failed == "0"}
    assert SCENARIOS[version] <= passed, (SCENARIOS[version] - passed, done.stdout[-4000:])


@pytest.mark.parametrize(
    "transport", ["http", *(pytest.param(way, marks=pytest.mark.slow) for way in ("stdio", "sse"))]
)
def test_inspector_lists_and_calls(
    transport: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    def inspect(*arguments: str) -> dict[str, object]:
        line = [*program(INSPECTOR), "--cli", "--connect-timeout", "120000", *arguments]
        if transport == "stdio":
            line += ["--transport", "stdio", "--", *command("--transport", "stdio")]
        else:
            line += ["--transport", transport, request.getfixturevalue(transport)]
        done = subprocess.run(
            line, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment(folder)
        )
        assert done.returncode == 0, done.stdout + done.stderr
        result: dict[str, object] = json.loads(done.stdout)
        return result

    listed = inspect("--method", "tools/list")["tools"]
    assert isinstance(listed, list)
    assert {tool["name"] for tool in listed} == TOOLS | {"chat"}
    called = inspect("--method", "tools/call", "--tool-name", "test_simple_text")
    text = "This is a simple text response for testing."
    assert called["content"] == [{"type": "text", "text": text}]
