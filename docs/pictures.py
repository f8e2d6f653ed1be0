"""Writes the pictures of the console into docs/pictures: `make pictures`.

It serves a small agent with a scripted model, lets two people use it, and drives Chromium through
the page. It needs playwright and a `chromium` on the path.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from sayso import Agent, Call, Caller, Principal, Proposal, tool
from sayso.testing import Service, scripted, served

FOLDER = Path(__file__).with_name("pictures")
QUALITY = 72
CONFIG = """
plugins = ["v2", "approvals", "console"]
[auth]
scheme = "bearer"
[auth.tokens]
ann = "token-of-ann-0123456789"
bob = "token-of-bob-0123456789"
[auth.principals.ann]
kind = "person"
groups = ["sre"]
[auth.principals.bob]
kind = "person"
groups = ["sre"]
[approvals]
deciders = "any"
[[approvals.rules]]
tool = "restart_service"
approvers = ["group:sre"]
quorum = 2
"""
FOUND = """The pods of **shop** are healthy but one:

| pod | restarts | memory |
|:--|--:|--:|
| `web-1` | 14 | 498 MiB |
| `web-2` | 0 | 211 MiB |

`web-1` is killed at its limit of 512 MiB. I would raise the limit; the change is below.
"""
BOB = Principal("bob", kind="person", person="bob", groups=["sre"])


@tool(read_only=True)
def pods(namespace: str) -> str:
    """List the pods of a namespace."""
    return "web-1  14 restarts\nweb-2  0 restarts"


def change(path: str, memory: str) -> str:
    """The diff that the approver sees."""
    return f"--- {path}\n+++ {path}\n   limits:\n-    memory: 512Mi\n+    memory: {memory}"


@tool(requires_approval=True, preview=change, editable=["memory"])
def set_memory(path: str, memory: str) -> str:
    """Change the memory limit in a manifest, and apply it."""
    return "deployment.apps/web configured"


@tool(requires_approval=True, destructive=True)
def delete_volume(name: str, namespace: str = "default") -> str:
    """Delete a volume with all its data."""
    return f"deleted {name}"


@tool(requires_approval=True)
def restart_service(name: str) -> str:
    """Restart a service."""
    return f"restarted {name}"


def agent() -> Agent:
    """The agent on the pictures."""
    raises = Call("2", "set_memory", {"path": "shop/web.yaml", "memory": "768Mi"})
    return Agent(
        name="shop-ops",
        description="Looks after the cluster of the shop.",
        tools=[pods, set_memory, delete_volume, restart_service],
        model=scripted([Call("1", "pods", {"namespace": "shop"})], [FOUND, raises]),
    )


def run(work: Any) -> Any:
    """The result of `work`; the browser's driver has a loop on this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def asked(service: Service, name: str, why: str, /, **input: Any) -> Proposal:
    """A call that bob's editor proposes."""
    caller = Caller("mcp", principal=BOB, client="an editor")
    row: Proposal = run(service.host.calls.propose(name, input, caller, intent=why))
    return row


@contextmanager
def opened(
    browser: Browser, service: Service, width: int, height: int, scheme: Any = "light"
) -> Iterator[Page]:
    """The console, with ann signed in."""
    size = {"width": width, "height": height}
    context = browser.new_context(
        viewport=size,  # type: ignore[arg-type]
        color_scheme=scheme,
        locale="en-GB",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(f"{service.url}/console#token=token-of-ann-0123456789")
    page.locator("#you").get_by_text("ann").wait_for()
    yield page
    context.close()


def take(page: Page, name: str) -> None:
    """Write the picture, as WebP: a fifth of the size of a PNG."""
    page.wait_for_timeout(700)
    size = page.viewport_size or {}
    clip = {"x": 0, "y": page.evaluate("scrollY"), **size, "scale": 1.5}
    how = {"format": "webp", "quality": QUALITY, "clip": clip}
    shot = page.context.new_cdp_session(page).send("Page.captureScreenshot", how)
    (FOLDER / f"{name}.webp").write_bytes(base64.b64decode(shot["data"]))


def talk(page: Page) -> None:
    """Ann asks, and the agent proposes a change."""
    page.get_by_label("Message").fill("Why does the shop answer slowly?")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Approve", exact=True).wait_for()
    page.locator("#stop").wait_for(state="hidden")


def pictures(browser: Browser) -> None:
    """All pictures of the page."""
    with served(agent(), config=CONFIG) as service, opened(browser, service, 880, 960) as page:
        talk(page)
        take(page, "chat")
        page.emulate_media(color_scheme="dark")
        take(page, "dark")
    with served(agent(), config=CONFIG) as service:
        row = asked(
            service, "set_memory", "The cache is too small.", path="cache.yaml", memory="2Gi"
        )
        asked(service, "restart_service", "It has not answered for a minute.", name="checkout")
        asked(service, "delete_volume", "Nothing mounts it any more.", name="data-old")
        with opened(browser, service, 880, 900) as page:
            page.get_by_role("link", name="Inbox").click()
            page.get_by_role("heading", name="Delete volume").wait_for()
            page.get_by_role("heading", name="Restart service").wait_for()
            page.evaluate("document.querySelector('[data-id] h2, #inbox h2').scrollIntoView()")
            page.evaluate("scrollTo(0, 0)")
            take(page, "inbox")
            card = page.locator(f'[data-id="{row.id}"]')
            card.get_by_role("button", name="Approve", exact=True).click()
            page.get_by_text("Approved set_memory").wait_for()
            page.get_by_role("link", name="Decided").click()
            page.locator("#decided-list summary").first.click()
            page.get_by_text("deployment.apps/web configured").wait_for()
            page.get_by_text("done", exact=True).wait_for()
            take(page, "decided")
        with opened(browser, service, 390, 800, "dark") as page:
            page.get_by_role("link", name="Inbox").click()
            page.get_by_role("heading", name="Delete volume").wait_for()
            take(page, "phone")


def main() -> None:
    """Write all pictures, and their sizes."""
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        pictures(browser)
        browser.close()
    sizes = {file.name: file.stat().st_size for file in sorted(FOLDER.iterdir())}
    for name, size in sizes.items():
        print(f"{size / 1000:6.1f} kB  {name}")
    print(f"{sum(sizes.values()) / 1000:6.1f} kB")


if __name__ == "__main__":
    sys.exit(main())
