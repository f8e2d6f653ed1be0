"""Open WebUI in front of Sayso, used in Chromium as a person does; makes the pictures of
frontends.md.

    python -m venv webui && webui/bin/pip install open-webui==0.12.4     # about seven gigabytes
    python docs/open_webui.py webui/bin/open-webui

CI and `make test-all` do not run it. It needs the packages of requirements-dev.txt and
chromium. Nothing is downloaded: the service's model is a function, and Open
WebUI is told to stay offline. It fails where something is not as frontends.md says.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import expect, sync_playwright

PICTURES = Path(__file__).with_name("pictures")
SAYSO, WEBUI = 18_123, 18_124
HOLD = 25
PATIENCE = 60_000.0
"""Milliseconds that the browser waits for something to appear."""
APPROVER = "the-token-of-ann"

AGENT = '''
import json
from pathlib import Path
from sayso import Agent, Call, tool
from sayso.testing import scripted

@tool
def disk_usage() -> str:
    """The largest folders."""
    return "/var/log 41 GB, /home 12 GB"

@tool(requires_approval=True)
def delete(folder: str) -> str:
    """Delete a folder and everything in it."""
    return f"deleted {folder}"

def answer(ask):
    said = "".join(getattr(block, "text", "") for block in ask.turns[-1].blocks)
    results = [block.output for block in ask.turns[-1].blocks if hasattr(block, "output")]
    task = "### Task:" in said
    with Path("asks.jsonl").open("a") as asks:
        asks.write(json.dumps({"task": task, "tools": len(ask.tools)}) + chr(10))
    if task:
        return json.dumps({"title": "Room on the disk", "tags": ["disk"], "follow_ups": []})
    if any("/var/log" in text and "GB" in text for text in results):
        return "Mostly **/var/log**, with 41 GB. The next one is /home, with 12 GB."
    if results:
        return f"That is done: {results[-1]}."
    if "backups" in said:
        return ["One moment.", Call("b", "delete", {"folder": "/srv/backups"})]
    if "logs" in said:
        return ["I will delete the old logs.", Call("a", "delete", {"folder": "/var/log/old"})]
    return [Call("u", "disk_usage", {})]

agent = Agent(name="ops", model=scripted(*[answer] * 100), tools=[disk_usage, delete])
'''

CONFIG = f"""
agent = "ops.py:agent"
plugins = ["openai_api", "console", "v2"]

[server]
host = "127.0.0.1"
port = {SAYSO}
state_dir = "state"

[auth]
scheme = "bearer"
tokens = {{ open-webui = "the-key-of-open-webui", ann = "{APPROVER}" }}

[approvals]
deciders = "any"

[plugin.openai_api]
hold = "{HOLD}s"
page = "http://127.0.0.1:{SAYSO}/console"
"""

OFFLINE = {
    "OFFLINE_MODE": "true",
    "HF_HUB_OFFLINE": "1",
    "BYPASS_EMBEDDING_AND_RETRIEVAL": "true",
    "RAG_EMBEDDING_ENGINE": "openai",
    "ENABLE_OLLAMA_API": "false",
}


@contextmanager
def running(command: list[str], folder: Path, url: str, **environ: str) -> Iterator[None]:
    """The program, from the moment that `url` answers; it ends with the block."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("w") as out:
        program = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, env=os.environ | environ
        )
        try:
            _wait(url, program, log)
            yield
        finally:
            program.terminate()
            program.wait(30)


def _wait(url: str, program: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 300
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if program.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{url} does not answer:\n{log.read_text()[-3000:]}")
            time.sleep(0.5)


def picture(page: Any, name: str) -> None:
    """Keep what the page shows, in a small file."""
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.jpg", type="jpeg", quality=60)


def say(page: Any, text: str) -> None:
    """Write a message, and send it."""
    field = page.locator("#chat-input")
    field.click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def decide(browser: Any, link: Any, button: str, picture_name: str | None = None) -> None:
    """Follow the link of a card, sign in as somebody else, and decide there."""
    address = link.get_attribute("href")
    page = browser.new_context(viewport={"width": 900, "height": 620}).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.get_by_label(re.compile("token", re.IGNORECASE)).fill(APPROVER)
    page.keyboard.press("Enter")
    page.get_by_role("button", name=button).first.wait_for()
    if picture_name:
        # The page keeps its buttons still for a moment after a card has appeared.
        page.wait_for_timeout(2000)
        picture(page, picture_name)
    page.get_by_role("button", name=button).first.click()
    page.wait_for_timeout(1500)
    page.context.close()


def talk(browser: Any, folder: Path) -> None:
    """The whole conversation."""
    page = browser.new_context(viewport={"width": 900, "height": 760}).new_page()
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page.goto(f"http://127.0.0.1:{WEBUI}/")
    page.get_by_role("button", name="Okay, Let's Go!").click()

    say(page, "What fills the disk?")
    page.get_by_text("The next one is /home").wait_for()
    print("a message is answered, after a call that needs nobody")

    say(page, "Delete the old logs.")
    link = page.get_by_role("link", name="Decide on the page")
    link.wait_for()
    page.wait_for_timeout(1000)
    picture(page, "open-webui-card")
    decide(browser, link.last, "Approve", "open-webui-decision")
    page.get_by_text("That is done: deleted /var/log/old.").wait_for()
    page.wait_for_timeout(1000)
    picture(page, "open-webui-outcome")
    print("the held answer goes on by itself after the decision")

    say(page, "Delete the backups.")
    expect(link).to_have_count(2)
    page.wait_for_timeout(HOLD * 1000 + 3000)
    decide(browser, link.last, "Approve")
    assert page.get_by_text("deleted /srv/backups").count() == 0
    say(page, "Is it done?")
    page.get_by_text("That is done: deleted /srv/backups.").wait_for()
    print("after the hold the next message gets the outcome")

    page.reload()
    page.get_by_text("That is done: deleted /srv/backups.").wait_for()
    assert link.count() == 2
    print("a reloaded page shows the same conversation")
    expect(page.locator("#sidebar, nav, body").first).to_contain_text("Room on the disk")
    asks = [json.loads(line) for line in (folder / "asks.jsonl").read_text().splitlines()]
    tasks = [one for one in asks if one["task"]]
    assert tasks, "Open WebUI asked for no title"
    assert all(one["tools"] == 0 for one in tasks), tasks
    assert all(one["tools"] == 2 for one in asks if not one["task"]), asks
    print(f"{len(tasks)} hidden tasks were answered, without tools")


def main() -> None:
    """Start both, and talk."""
    webui = Path(sys.argv[1]).absolute()
    sayso = Path(sys.executable).with_name("sayso")
    key = {"OPENAI_API_BASE_URL": f"http://127.0.0.1:{SAYSO}/v1"}
    key |= {"OPENAI_API_KEY": "the-key-of-open-webui", "DEFAULT_MODELS": "ops"}
    with TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "ops.py").write_text(AGENT)
        (folder / "sayso.toml").write_text(CONFIG)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        own = {"DATA_DIR": str(folder / "data"), "WEBUI_AUTH": "false", "WEBUI_SECRET_KEY": "any"}
        serve = [str(webui), "serve", "--host", "127.0.0.1", "--port", str(WEBUI)]
        with (
            running([str(sayso), "serve"], folder, f"http://127.0.0.1:{SAYSO}/health"),
            running(serve, folder, f"http://127.0.0.1:{WEBUI}/health", **key, **own, **OFFLINE),
        ):
            talk(browser, folder)
        browser.close()


if __name__ == "__main__":
    main()
