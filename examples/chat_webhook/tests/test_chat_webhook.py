"""The chat hears of a call that waits and of its decision."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from pydantic import SecretStr
from sayso_chat_webhook import ChatWebhook

from sayso import Agent, Call, tool
from sayso.testing import scripted, served

CONFIG = """
plugins = ["v2", "notify", "chat_webhook"]
[plugin.notify]
page = "https://agent.example.com/console"
"""


@pytest.fixture
def chat() -> Iterator[Any]:
    """A chat on a loopback port; `said` has what was posted, and its first answer is a failure."""
    said: list[Any] = []
    tried: list[None] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            tried.append(None)
            if len(tried) > 1:
                said.append(body)
            self.send_response(200 if len(tried) > 1 else 503)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", said
    server.shutdown()
    server.server_close()


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return "gone"


def test_the_chat_hears_of_the_call_and_of_its_decision(chat: Any) -> None:
    url, said = chat
    steps = scripted([Call("c1", "delete", {"path": "@channel payroll.xls"})], "I kept it.")
    agent = Agent(name="files", model=steps, tools=[delete])
    plugin = ChatWebhook(ChatWebhook.Settings(url=SecretStr(url), field="content"))
    with served(agent, [plugin], config=CONFIG) as service:
        talk = service.conversation()
        talk.say("delete it")
        wait(lambda: len(said) == 1)
        talk.reject("no")
        wait(lambda: len(said) == 2)
    (id_,) = {text["content"].rpartition("#")[2] for text in said if "#" in text["content"]}
    link = f"https://agent.example.com/console#{id_}"
    assert said[0] == {"content": f"delete waits for a decision (asked by somebody) {link}"}
    assert said[1]["content"].startswith("delete was rejected")
    assert "payroll" not in json.dumps(said)


def wait(condition: Any) -> None:
    """Return when the condition holds."""
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
