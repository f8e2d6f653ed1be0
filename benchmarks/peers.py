"""Peers: other servers for agents, each in a virtual environment of its own.

They do less than Sayso does: none checks an approval against a record or takes the agent's code off
its event loop. Their own extras (sessions, traces, message formats) are part of their cost.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import environments
from benchmarks.scenarios import HISTORY, NUMBER, SESSIONS, SMALL, STREAM, Scenario, Target

REQUIREMENTS = {
    "agno": ["agno", "fastapi", "uvicorn[standard]", "openai", "sqlalchemy", "python-multipart"],
    "pydantic-ai": ["pydantic-ai-slim", "fastapi", "uvicorn[standard]"],
    "google-adk": ["google-adk", "uvicorn[standard]"],
    "langserve": ["langserve[server]", "langchain-core", "fastapi", "uvicorn[standard]"],
}
PACKAGES = {"pydantic-ai": "pydantic-ai-slim"}
"""The distribution if its name differs."""
COMMON = ("fastapi", "starlette", "uvicorn", "uvloop", "pydantic")

_FORM = "application/x-www-form-urlencoded"


def _agno(agent: str, stream: str) -> Target:
    path = f"/agents/{agent}/runs"
    return Target("agno_server", (), path, f"message=pods&stream={stream}".encode(), _FORM)


def _adk(agent: str, path: str = "/run") -> Target:
    said = {"role": "user", "parts": [{"text": "How are the pods?"}]}
    run = {
        "app_name": agent,
        "user_id": "me",
        "session_id": NUMBER.decode(),
        "new_message": said,
        "streaming": path == "/run_sse",
    }
    body = json.dumps(run).encode()
    return Target("google_adk_server", (str(SESSIONS),), path, body, numbered=True)


def _langserve(path: str, body: bytes = SMALL) -> Target:
    given = json.dumps({"input": json.loads(body)}).encode()
    return Target("langserve_server", (), path, given)


TARGETS: Mapping[str, Mapping[str, Target]] = {
    "small turn, 32 connections": {
        "langserve": _langserve("/chat/invoke"),
        "agno": _agno("stand-in", "false"),
        "pydantic-ai": Target("pydantic_ai_server"),
        "google-adk": _adk("reply"),
    },
    "62 KB history, 32 connections": {
        "langserve": _langserve("/chat/invoke", HISTORY),
        "pydantic-ai": Target("pydantic_ai_server"),
    },
    "100 deltas, 32 connections": {
        "langserve": _langserve("/chat/stream"),
        "agno": _agno("stand-in", "true"),
        "pydantic-ai": Target("pydantic_ai_server", (), STREAM),
        "google-adk": _adk("reply", "/run_sse"),
    },
    "tool turn, 32 connections": {
        "agno": _agno("tools", "false"),
        "pydantic-ai": Target("pydantic_ai_server", (), "/tools"),
        "google-adk": _adk("tools"),
    },
}


def install(folder: str, say: Callable[[str], None]) -> dict[str, str]:
    """The interpreter of each peer, in `folder`, installed if missing."""
    pythons = {}
    for name, requirements in REQUIREMENTS.items():
        home = Path(folder).resolve() / name
        done, python = home / ".installed", home / "bin" / "python"
        if not done.exists():
            say(f"installing {name}")
            try:
                environments.make(home, requirements)
            except environments.Failed as error:
                say(f"  {name} cannot be installed and is left out: {error}")
                continue
            done.touch()
        pythons[name] = str(python)
    return pythons


def versions(pythons: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The version of each peer, and of packages that it shares with Sayso."""
    found = {}
    for name, python in pythons.items():
        there = environments.installed(python)
        wanted = (PACKAGES.get(name, name), *COMMON)
        found[name] = {package: there[package] for package in wanted if package in there}
    return found


def added(scenario: Scenario, pythons: Mapping[str, str]) -> Scenario:
    """The scenario with the peers that are installed and can be compared."""
    extra = {k: v for k, v in TARGETS.get(scenario.name, {}).items() if k in pythons}
    return replace(scenario, targets={**scenario.targets, **extra})


if __name__ == "__main__":
    print(json.dumps(versions(install(sys.argv[1], print)), indent=1))
