"""Any worker process of a service can continue a stream."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sayso.testing import user

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from environments import serving
from ports import quiet_port

AGENT = """
import os
from sayso import Agent

def agent(messages, context):
    return f"process {os.getpid()}"
"""
CONFIG = 'agent = "agent.py:agent"\nplugins = ["v2", "resume"]\n'
ID = "a-stream-of-these-processes"
MACHINE = """
[plugin.resume]
listen = "127.0.0.1:{own}"
peers = ["127.0.0.1:{one}", "127.0.0.1:{two}"]
key = "a-key-that-all-machines-of-it-have"
"""


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


@pytest.mark.slow
def test_every_worker_process_of_another_machine_reads_it_too() -> None:
    one, two = quiet_port(), quiet_port()
    with TemporaryDirectory(prefix="sayso-") as name, ExitStack() as stack:
        services = []
        for own in (one, two):
            folder = Path(name) / str(own)
            folder.mkdir()
            (folder / "agent.py").write_text(AGENT, "utf-8")
            machine = MACHINE.format(own=own, one=one, two=two)
            (folder / "sayso.toml").write_text(CONFIG + machine, "utf-8")
            service = serving(Path(sys.executable), folder, "--workers", "2")
            services.append(stack.enter_context(service))
        sent = services[0].ask(user("hello"), stream=True, resumable=ID).events
        for _ in range(40):
            assert services[1].get(f"/api/chat-stream/{ID}").events == sent
