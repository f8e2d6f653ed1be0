"""Peers: other servers for agents, each in a virtual environment of its own.

They do less than Assent does: none checks an approval against a record or takes the agent's code
off its event loop. What they do of their own (sessions, traces, message formats) is in their cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.scenarios import SMALL, STREAM, Scenario, Target

REQUIREMENTS = {
    "agno": ["agno", "fastapi", "uvicorn[standard]", "openai", "sqlalchemy", "python-multipart"],
    "pydantic-ai": ["pydantic-ai-slim", "fastapi", "uvicorn[standard]"],
    "langserve": ["langserve[server]", "langchain-core", "fastapi", "uvicorn[standard]"],
}
PACKAGES = {"agno": "agno", "pydantic-ai": "pydantic-ai-slim", "langserve": "langserve"}

_RUNNABLE = json.dumps({"input": json.loads(SMALL)}).encode()
_FORM = "application/x-www-form-urlencoded"
_RUNS = "/agents/stand-in/runs"


def _agno(stream: str) -> Target:
    return Target("agno_server", (), _RUNS, f"message=pods&stream={stream}".encode(), _FORM)


TARGETS: Mapping[str, Mapping[str, Target]] = {
    "small turn, 32 connections": {
        "pydantic-ai": Target("pydantic_ai_server"),
        "langserve": Target("langserve_server", (), "/reply/invoke", _RUNNABLE),
        "agno": _agno("false"),
    },
    "100 deltas, 32 connections": {
        "pydantic-ai": Target("pydantic_ai_server", (), STREAM),
        "langserve": Target("langserve_server", (), "/deltas/stream", _RUNNABLE),
        "agno": _agno("true"),
    },
    "tool turn, 32 connections": {
        "pydantic-ai": Target("pydantic_ai_server", (), "/tools"),
    },
}


def install(folder: str, say: Callable[[str], None]) -> dict[str, str]:
    """The interpreter of each peer, in `folder`, installed where it is missing."""
    pythons = {}
    for name, requirements in REQUIREMENTS.items():
        home = Path(folder).resolve() / name
        python = home / "bin" / "python"
        if not python.exists():
            say(f"installing {name}")
            venv.create(home, with_pip=True)
            command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
            if subprocess.run(command, check=False).returncode:
                say(f"  {name} cannot be installed and is left out")
                continue
        pythons[name] = str(python)
    return pythons


def versions(pythons: Mapping[str, str]) -> dict[str, str]:
    """The version of each peer."""
    found = {}
    for name, python in pythons.items():
        code = f"from importlib.metadata import version; print(version({PACKAGES[name]!r}))"
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        found[name] = told.stdout.strip() or "unknown"
    return found


def added(scenario: Scenario, pythons: Mapping[str, str]) -> Scenario:
    """The scenario with the peers that are installed and have something to compare."""
    extra = {k: v for k, v in TARGETS.get(scenario.name, {}).items() if k in pythons}
    return replace(scenario, targets={**scenario.targets, **extra})


if __name__ == "__main__":
    print(versions(install(sys.argv[1], print)))
