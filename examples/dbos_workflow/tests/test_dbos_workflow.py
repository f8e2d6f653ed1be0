"""A process dies between the start of the workflow and the record of its call; it runs once."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast

import pytest

from sayso.testing import Service, user

psycopg = pytest.importorskip("psycopg")

SERVER = os.environ.get("SAYSO_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/test")
AGENT = """
import logging, os, signal
from pathlib import Path
from dbos import DBOSClient
from sayso import Agent, Call
from sayso.testing import scripted
from sayso_dbos_workflow import logger, refund

logger.setLevel(logging.INFO)
logger.addHandler(logging.FileHandler("steps"))
enqueue = DBOSClient.enqueue

def enqueue_and_die(*given):
    handle = enqueue(*given)
    if Path("dies").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return handle

DBOSClient.enqueue = enqueue_and_die
calls = [Call("c1", "refund", {"order": "A-17", "cents": 1250})]

def model(ask):
    return calls if ask.turns[-1].blocks[-1].__class__.__name__ == "Text" else "Started."

agent = Agent(name="refunds", model=scripted(*[model] * 9), tools=[refund])
"""
CONFIG = """
agent = "agent.py:agent"
plugins = ["v2", "dbos_workflow"]
[approvals]
ledger = "{ledger}"
[plugin.dbos_workflow]
schema_name = "{schema}_dbos"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    try:
        admin = psycopg.connect(SERVER, autocommit=True, connect_timeout=60)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL server at {SERVER}: {error}")
    schema = f"sayso_test_{secrets.token_hex(6)}"
    ledger = f"{SERVER}?options=-csearch_path%3D{schema}"
    (tmp_path / "agent.py").write_text(AGENT, "utf-8")
    (tmp_path / "sayso.toml").write_text(CONFIG.format(ledger=ledger, schema=schema), "utf-8")
    with admin:
        admin.execute(f"CREATE SCHEMA {schema}".encode())
        yield tmp_path
        admin.execute(f"DROP SCHEMA {schema} CASCADE".encode())
        admin.execute(f"DROP SCHEMA IF EXISTS {schema}_dbos CASCADE".encode())


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Service]:
    log = folder / "serve.log"
    command = [sys.executable, "-m", "sayso", "serve", "--host", "127.0.0.1", "--port", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *options], cwd=folder, stdout=out, stderr=out)
    try:
        found = None
        while (found := re.search(r"http://127.0.0.1:(\d+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield Service(cast(Any, None), int(found[1]))
    finally:
        process.terminate()
        process.wait(60)


def steps(folder: Path) -> list[str]:
    file = folder / "steps"
    return [line.split(" (")[0] for line in file.read_text().splitlines()] if file.exists() else []


def test_the_workflow_runs_once_although_the_tool_ran_twice(folder: Path) -> None:
    (folder / "dies").touch()
    with suppress(OSError, HTTPException), serving(folder) as service:
        conversation = service.conversation()
        conversation.say("refund A-17")
        (call,) = conversation.pending
        conversation.approve()
        raise AssertionError("the service survived")
    (folder / "dies").unlink()
    with serving(folder) as service:
        deadline = time.monotonic() + 60
        while len(steps(folder)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        output = approved(service, call)
        if output.startswith("Outcome unknown"):
            output = approved(service, call)
    assert output.endswith(f"The refund of A-17 has started; its id is {call['id']}.")
    assert "Run again" in output
    wrote = f"wrote about A-17: payment refund-{call['id']}"
    assert steps(folder) == ["paid back 1250 cents for A-17", wrote]


def approved(service: Service, call: dict[str, Any]) -> str:
    """The outcome after one more approval."""
    shown = {"role": "assistant", "content": "", "data": {"tool_calls": [call]}}
    decided = user("", data={"tool_calls": [{**call, "execute": True}]})
    (done,) = service.chat(user("refund A-17"), shown, decided)["data"]["executed_tool_calls"]
    output: str = done["output"]
    return output
