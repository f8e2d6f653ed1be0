"""Any worker process of a service can continue a stream."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sayso.testing import user

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from environments import serving

AGENT = """
import os
from sayso import Agent

def agent(messages, context):
    return f"process {os.getpid()}"
"""
CONFIG = 'agent = "agent.py:agent"\nplugins = ["v2", "resume"]\n'
ID = "a-stream-of-these-processes"


@pytest.mark.slow
def test_every_worker_process_reads_the_stream_of_one() -> None:
    # A socket's path is short; the folders of pytest are not.
    with TemporaryDirectory(prefix="sayso-") as name:
        folder = Path(name)
        (folder / "agent.py").write_text(AGENT, "utf-8")
        (folder / "sayso.toml").write_text(CONFIG, "utf-8")
        with serving(Path(sys.executable), folder, "--workers", "2") as service:
            answering: set[str] = set()
            deadline = time.monotonic() + 60
            while len(answering) < 2:
                assert time.monotonic() < deadline
                answering.add(service.chat(user("who?"))["content"])
            sent = service.ask(user("hello"), stream=True, resumable=ID).events
            for _ in range(40):
                assert service.get(f"/api/chat-stream/{ID}").events == sent
