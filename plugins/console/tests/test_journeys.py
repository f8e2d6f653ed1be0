"""People decide on the page of a service with the inbox, in a real browser over a real server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sayso import Agent, Call, Caller, Grantable, Principal, Proposal, tool
from sayso.testing import Service, scripted, served

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from page_kit import Opened, run, say

from npm import installed

CONFIG = """
plugins = ["v2", "console", "approvals"]
[server]
docs = true
[auth]
scheme = "bearer"
[auth.tokens]
ann = "a-token-for-ann-0123456789"
bob = "a-token-for-bob-0123456789"
[auth.principals.ann]
kind = "person"
groups = ["sre"]
[auth.principals.bob]
kind = "person"
groups = ["sre"]
[approvals]
deciders = "any"
grants = true
[[approvals.rules]]
tool = "restart"
approvers = ["group:sre"]
quorum = 2
reason = "required"
"""
ANN = Principal("ann", kind="person", person="ann", groups=["sre"])
BOB = Principal("bob", kind="person", person="bob", groups=["sre"])
HOSTILE = """# Pods of *prod*

**web-1** restarts, see [the log](https://logs.example/web-1) or [this](javascript:alert(1)):

| pod | restarts |
|:--|--:|
| `web-1` | 14 |

1. look
   - twice

```yaml
image: web:1.3
```

> quoted

<img src=x onerror="document.title='broken'">
"""
Made = Callable[..., "House"]


def until(holds: Callable[[], Any]) -> None:
    """Wait until this is true."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def diff(path: str, text: str) -> str:
    return f"--- {path}\n+++ {path}\n-image: web:1.3\n+image: web:1.4"


class Cluster:
    """An agent with gated tools that count their runs."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool(requires_approval=True, destructive=True, editable=["grace"])
        def delete_pod(*, namespace: str = "default", name: str, grace: int = 30) -> str:
            """Delete a pod.

            Args:
                grace: Seconds that it gets to stop.
            """
            self.ran.append(f"delete {name} {grace}")
            return f"deleted {name}"

        @tool(requires_approval=True, preview=diff)
        def write_file(path: str, text: str) -> str:
            """Write a file."""
            return "written"

        @tool(requires_approval=True)
        def restart(name: str) -> str:
            """Restart a service."""
            self.ran.append(f"restart {name}")
            return "restarted"

        self.agent = Agent(
            name="kube",
            tools=[delete_pod, write_file, restart],
            examples=["Which pods restart?"],
            system_prompt="You look after a cluster.",
        )


class House:
    """A service for the module, and the calls that others propose to it."""

    def __init__(self, service: Service, cluster: Cluster) -> None:
        self.service = service
        self.cluster = cluster

    def asks(self, name: str, /, **input: Any) -> Proposal:
        caller = Caller("mcp", principal=BOB, client="an editor")
        row: Proposal = run(
            self.service.host.calls.propose(name, input, caller, intent="It hangs.")
        )
        return row

    def state(self, row: Proposal) -> str:
        found = run(self.service.host.calls.look(row.id, Caller("test", principal=BOB)))
        return str(found.state)


@pytest.fixture
def made() -> Iterator[Made]:
    """Serve the agent, whose model takes the steps that are given."""
    with ExitStack() as stack:

        def make(*steps: Any) -> House:
            cluster = Cluster()
            cluster.agent.model = scripted(*steps)
            return House(stack.enter_context(served(cluster.agent, config=CONFIG)), cluster)

        yield make


@pytest.fixture
def house(made: Made) -> House:
    """The service of an agent that says nothing."""
    return made()


def enter(opened: Opened, house: House, who: str = "ann", **options: Any) -> Any:
    page = opened(house.service, **options)
    page.get_by_label("This service asks for a token").fill(f"a-token-for-{who}-0123456789")
    page.keyboard.press("Enter")
    page.get_by_label("This service asks for a token").wait_for(state="hidden")
    return page


def inbox(page: Any) -> Any:
    page.get_by_role("link", name="Inbox").click()
    return page.get_by_role("region", name="Inbox")


def test_person_decides_what_others_ask_for_and_finds_what_came_of_it(
    house: House, opened: Opened
) -> None:
    pod, file = house.asks("delete_pod", name="web-1"), house.asks("write_file", path="a", text="b")
    page = enter(opened, house)
    panel = inbox(page)
    card = panel.get_by_role("region", name="Proposed tool call: delete_pod")
    card.get_by_role("heading", name="Delete pod web-1").wait_for()
    for text in ("Destructive", "Asked by: bob", "The agent says: It hangs.", "24 h left"):
        card.get_by_text(text).wait_for()
    assert card.locator(".input div", has_text="namespace").get_by_text("default").count() == 2
    assert page.title().startswith("(2) kube")
    other = panel.get_by_role("region", name="Proposed tool call: write_file")
    other.get_by_text("+image: web:1.4").wait_for()
    panel.get_by_label("Search").fill("web-1")
    other.wait_for(state="hidden")
    card.get_by_role("button", name="Edit…").click()
    card.get_by_label("grace").fill("5")
    card.get_by_role("button", name="Approve as edited").click()
    panel.get_by_text("Approved delete_pod, edited").wait_for()
    panel.get_by_label("Search").fill("")
    other.get_by_role("button", name="Reject…").click()
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    panel.get_by_text("Rejected write_file: not today").wait_for()
    until(lambda: house.state(pod) == "DONE")
    panel.get_by_role("link", name="Decided").click()
    row = panel.locator("#decided-list details", has_text="Delete pod web-1")
    row.get_by_text("approved by ann").wait_for()
    row.locator("summary").click()
    row.get_by_text("What was changed").wait_for()
    row.get_by_text("Output").wait_for()
    row.get_by_text("deleted web-1").wait_for()
    assert (house.state(pod), house.state(file)) == ("DONE", "REJECTED")
    assert house.cluster.ran == ["delete web-1 5"]


@pytest.mark.slow
def test_rule_takes_two_persons_and_their_reasons(house: House, opened: Opened) -> None:
    row = house.asks("restart", name="web")
    for who in ("ann", "bob"):
        page = enter(opened, house, who)
        page.goto(f"{house.service.url}/console#{row.id}")
        card = page.get_by_role("region", name="Proposed tool call: restart")
        given = "0 of 2" if who == "ann" else "1 of 2"
        card.get_by_text(f"Approvals: {given}").wait_for()
        card.get_by_role("button", name="Approve", exact=True).click()
        card.get_by_label("Why may it run?").fill(f"{who} has looked")
        card.get_by_role("button", name="Approve", exact=True).click()
        done = "You have approved it; 1 of 2 approvals" if who == "ann" else "Approved restart"
        page.locator("#inbox").get_by_text(done).wait_for()
        press = page.get_by_role("button", name="Sign out")
        press.click()
    assert house.state(row) in ("APPROVED", "EXECUTING", "DONE")


@pytest.mark.slow
def test_several_calls_of_one_tool_are_selected_and_approved_at_once(
    house: House, opened: Opened
) -> None:
    rows = [house.asks("delete_pod", name=f"web-{n}") for n in range(3)]
    page = enter(opened, house)
    panel = inbox(page)
    boxes = panel.get_by_label("Select")
    boxes.nth(2).wait_for()
    boxes.nth(0).check()
    assert panel.get_by_role("button", name="Approve the selected").is_hidden()
    boxes.nth(1).check()
    panel.get_by_text("2 calls of delete_pod selected").wait_for()
    panel.get_by_role("button", name="Approve the selected").click()
    panel.get_by_text("Approved delete_pod").nth(1).wait_for()
    assert [house.state(row) for row in rows].count("PENDING") == 1


@pytest.mark.slow
def test_link_to_a_call_opens_it_whatever_became_of_it(house: House, opened: Opened) -> None:
    row = house.asks("delete_pod", name="web-1")
    page = enter(opened, house)
    page.goto(f"{house.service.url}/console#{row.id}")
    heading = page.get_by_role("heading", name="Delete pod web-1")
    heading.wait_for()
    run(house.service.host.calls.decide(row.id, Caller("cli"), approved=False, reason="no need"))
    page.reload()
    page.get_by_text("Rejected over the command line").wait_for()
    page.get_by_text("Reason: no need").wait_for()
    page.goto(f"{house.service.url}/console#{'0' * 32}")
    page.get_by_text("There is no such call for you.").wait_for()


@pytest.mark.slow
def test_new_call_comes_into_an_open_inbox_at_once_and_into_the_title(
    house: House, opened: Opened
) -> None:
    page = enter(opened, house)
    panel = inbox(page)
    panel.get_by_text("Nothing waits.").wait_for()
    page.wait_for_function("performance.getEntriesByType('resource').length > 0")
    house.asks("delete_pod", name="web-9")
    panel.get_by_role("heading", name="Delete pod web-9").wait_for()
    page.wait_for_function("document.title.startsWith('(1) kube')")
    assert "%23c0392b" in page.locator("#icon").get_attribute("href")
    assert page.locator("#announcer").inner_text() == "1 call waits in the inbox"


def test_reply_is_markdown_without_html_and_links_lead_where_they_say(
    made: Made, opened: Opened
) -> None:
    house = made(HOSTILE)
    page = enter(opened, house)
    page.get_by_role("button", name="Which pods restart?").click()
    page.keyboard.press("Enter")
    reply = page.get_by_role("article", name="Reply")
    reply.get_by_role("heading", name="Pods of prod").wait_for()
    assert reply.locator("h2 em").inner_text() == "prod"
    assert reply.locator("td").all_inner_texts() == ["web-1", "14"]
    assert reply.locator("ol > li > ul > li").inner_text() == "twice"
    assert reply.get_by_label("Code, yaml").inner_text() == "image: web:1.3"
    link = reply.get_by_role("link")
    assert link.count() == 1
    assert link.get_attribute("href") == "https://logs.example/web-1"
    assert "the log (https://logs.example/web-1)" in reply.inner_text()
    assert "[this](javascript:alert(1))" in reply.inner_text()
    assert "<img src=x onerror" in reply.inner_text()
    assert reply.locator("img").count() == 0
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    reply.get_by_role("button", name="Copy").click()
    reply.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "image: web:1.3"


LINEAR = """async () => {
  const { markdown } = await import("/console/markdown.js");
  const hostile = ["*[", "**a ", "_[a](", "`", "``a`", "[](", "> ", "- ", "|-", "1. a\\n ", "~~", "http://h",
    "\\\\*", "a\\n\\n", "# ", "```\\n", "*a_", "![", "| a |\\n|-|\\n"];
  const slow = [];
  for (const part of hostile) {
    const text = part.repeat(Math.ceil(60_000 / part.length));
    const begun = performance.now();
    markdown(text);
    const took = performance.now() - begun;
    if (took > 3000) slow.push([part, took]);
  }
  return slow;
}"""


@pytest.mark.slow
def test_hostile_markdown_takes_no_more_time_than_its_length_asks_for(
    house: House, opened: Opened
) -> None:
    page = opened(house.service)
    assert page.evaluate(LINEAR) == []


@pytest.mark.slow
def test_conversations_are_kept_listed_and_gone_on_with(made: Made, opened: Opened) -> None:
    house = made("One.", "Two.", "One more.")
    page = enter(opened, house)
    say(page, "the first")
    page.locator("#conversation").get_by_text("One.").wait_for()
    page.locator("#stop").wait_for(state="hidden")
    page.get_by_role("button", name="New conversation").click()
    say(page, "the second")
    page.locator("#conversation").get_by_text("Two.").wait_for()
    page.get_by_label("Message").fill("not sent yet")
    page.reload()
    page.locator("#conversation").get_by_text("Two.").wait_for()
    assert page.get_by_label("Message").input_value() == "not sent yet"
    page.get_by_text("Conversations", exact=True).click()
    page.get_by_role("button", name="the first").first.click()
    page.locator("#conversation").get_by_text("One.").wait_for()
    say(page, "go on")
    page.locator("#conversation").get_by_text("One more.").wait_for()
    # Another tab has the list, and not the conversation of this one.
    other = enter(opened, house)
    assert other.locator("#conversation").inner_text() == ""
    other.get_by_text("Conversations", exact=True).click()
    assert other.locator("#talks .talk").count() == 2
    other.get_by_role("button", name="Delete the conversation the second").click()
    page.get_by_text("Conversations", exact=True).click()
    page.locator("#talks .talk").nth(1).wait_for(state="detached")
    # Nobody else is shown them.
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("This service asks for a token").fill("a-token-for-bob-0123456789")
    page.keyboard.press("Enter")
    page.get_by_text("bob (sre)").wait_for()
    assert page.locator("#talks .talk").count() == 0


@pytest.mark.slow
def test_reload_in_a_running_call_finds_its_outcome_by_itself(made: Made, opened: Opened) -> None:
    house = made([Call("1", "delete_pod", {"name": "web-1"})], "It is gone.")
    page = enter(opened, house)
    say(page, "delete web-1")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    # The answer to the decision never reaches the page.
    page.route("**/api/chat-stream", lambda route: (route.fetch(), None))
    page.get_by_role("button", name="Approve", exact=True).click()
    while not house.cluster.ran:
        page.wait_for_timeout(20)
    page.unroute("**/api/chat-stream")
    page.reload()
    page.locator("#conversation").get_by_text("It is gone.").wait_for()
    assert house.cluster.ran == ["delete web-1 30"]


def test_developer_sees_events_request_session_tools_and_prompt(made: Made, opened: Opened) -> None:
    house = made("Hello.")
    page = enter(opened, house)
    say(page, "hello there")
    page.locator("#conversation").get_by_text("Hello.").wait_for()
    page.locator("#stop").wait_for(state="hidden")
    page.get_by_role("link", name="Developer").click()
    panel = page.get_by_role("region", name="Developer")
    for text in ('"type":"done"', "curl -N http", "hello there", "You look after a cluster."):
        panel.get_by_text(text).first.wait_for()
    panel.locator("summary", has_text="delete_pod").click()
    panel.get_by_text('"grace"').wait_for()
    panel.locator("summary", has_text="Model call 1").click()
    panel.locator("details", has_text="Model call 1").get_by_text("hello there").wait_for()


def test_page_works_by_keyboard_on_a_narrow_screen_in_the_dark_and_offline(
    house: House, opened: Opened
) -> None:
    row = house.asks("delete_pod", name="web-1")
    page = enter(opened, house, width=320, height=640)
    page.emulate_media(color_scheme="dark")
    page.evaluate("location.hash = 'inbox'")
    card = page.get_by_role("region", name="Proposed tool call: delete_pod")
    card.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 22)"
    page.context.set_offline(True)
    page.evaluate("dispatchEvent(new Event('online'))")
    page.get_by_text("The service is out of reach").wait_for()
    page.context.set_offline(False)
    page.get_by_text("The service is out of reach").wait_for(state="hidden")
    reject = card.get_by_role("button", name="Reject…")
    reject.click(trial=True)
    page.get_by_label("Tool", exact=True).focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if reject.evaluate("e => e === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.keyboard.type("not now")
    page.keyboard.press("Enter")
    page.locator("#inbox").get_by_text("Rejected delete_pod: not now").wait_for()
    assert house.state(row) == "REJECTED"


@pytest.mark.slow
def test_two_tabs_show_each_others_decisions(house: House, opened: Opened) -> None:
    house.asks("delete_pod", name="web-1")
    one, other = enter(opened, house), enter(opened, house, "bob")
    for page in (one, other):
        inbox(page).get_by_role("heading", name="Delete pod web-1").wait_for()
    inbox(one).get_by_role("button", name="Approve", exact=True).click()
    other.locator("#inbox").get_by_text("Already approved by ann over the inbox").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_checker_of_accessibility_finds_nothing(made: Made, opened: Opened, scheme: Any) -> None:
    axe = (installed("axe", "axe-core@4.14.1") / "node_modules/axe-core/axe.min.js").read_text()
    house = made(HOSTILE, [Call("1", "delete_pod", {"name": "web-1"})])
    rows = [house.asks("delete_pod", name=f"web-{n}") for n in range(3)]
    house.asks("write_file", path="a", text="b")
    run(house.service.host.calls.decide(rows[0].id, Caller("cli"), approved=False, reason="no"))

    page = opened(house.service)
    page.emulate_media(color_scheme=scheme)

    def sound(view: str) -> None:
        page.wait_for_timeout(600)  # until no button is held back any more
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(({ violations }) => violations)")
        faults = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found]
        assert faults == [], view

    page.get_by_label("This service asks for a token").wait_for()
    sound("sign in")
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Which pods restart?").wait_for()
    sound("empty")
    for text in ("which pods?", "delete web-1"):
        say(page, text)
        page.locator("#stop").wait_for(state="hidden")
    page.get_by_role("button", name="Edit…").click()
    page.get_by_text("Conversations", exact=True).click()
    sound("chat")
    page.keyboard.press("Escape")
    panel = inbox(page)
    panel.locator(".card").nth(2).wait_for()
    sound("inbox")
    panel.get_by_role("link", name="Decided").click()
    panel.locator("#decided-list summary").first.click()
    sound("decided")
    wanted = Grantable("write_file", {"path": "a", "text": "b"}, "bob", 3, 600, "night shift")
    run(house.service.host.grants.give(wanted, Caller("inbox", principal=ANN)))
    panel.get_by_role("link", name="Grants").click()
    panel.get_by_text("night shift").wait_for()
    sound("grants")
    panel.get_by_role("button", name="Stop all starts…").click()
    sound("stop all starts")
    page.keyboard.press("Enter")
    panel.get_by_role("button", name="Let calls start again").wait_for()
    sound("stopped")
    page.get_by_role("link", name="Developer").click()
    page.locator("summary", has_text="Model call 1").click()
    sound("developer")


def test_person_withdraws_comments_stops_all_starts_and_revokes_a_grant(
    house: House, opened: Opened
) -> None:
    pod, other = (
        house.asks("delete_pod", name="web-1"),
        house.asks("write_file", path="a", text="b"),
    )
    page = enter(opened, house, "bob", width=320)
    panel = inbox(page)
    card = panel.get_by_role("region", name="Proposed tool call: delete_pod")
    card.get_by_role("button", name="Comment…").click()
    page.keyboard.type("see the runbook")
    page.keyboard.press("Enter")
    card.get_by_text("bob: see the runbook").wait_for()
    # It is bob's own request, so it is taken back.
    card.get_by_role("button", name="Withdraw…").click()
    page.keyboard.type("not needed")
    page.keyboard.press("Enter")
    panel.get_by_text("Withdrawn delete_pod: not needed").wait_for()
    assert house.state(pod) == "REJECTED"
    panel.get_by_role("button", name="Stop all starts…").click()
    page.get_by_label("Reason (callers get it)").fill("an incident")
    page.keyboard.press("Enter")
    panel.get_by_text("No approved call starts: stopped by bob").wait_for()
    panel.get_by_text("an incident").wait_for()
    page.locator("#thaw:focus").wait_for()
    panel.get_by_role("button", name="Let calls start again").click()
    panel.get_by_text("No approved call starts").wait_for(state="hidden")
    # The list of decided calls follows by itself, and what is open stays so.
    panel.get_by_role("link", name="Decided").click()
    row = panel.locator("#decided-list details", has_text="Delete pod web-1")
    row.locator("summary").click()
    row.get_by_text("bob: see the runbook").wait_for()
    run(house.service.host.calls.decide(other.id, Caller("cli"), approved=False, reason="no"))
    panel.locator("#decided-list details", has_text="Write file").wait_for()
    assert row.get_by_text("bob: see the runbook").is_visible()
    late = house.asks("write_file", path="b", text="c")
    panel.get_by_role("link", name="My requests").click()
    mine = panel.locator("#decided-list details", has_text="waits")
    mine.locator("summary").click()
    mine.get_by_role("button", name="Withdraw").click()
    until(lambda: house.state(late) == "REJECTED")
    wanted = Grantable("write_file", {"path": "a", "text": "b"}, "bob", 3, 600, "night shift")
    run(house.service.host.grants.give(wanted, Caller("inbox", principal=ANN)))
    panel.get_by_role("link", name="Grants").click()
    grant = panel.get_by_role("article").filter(has_text="night shift")
    grant.get_by_text("For bob; 0 of 3 used").wait_for()
    grant.get_by_role("button", name="Revoke").click()
    grant.get_by_text("revoked").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_page_weighs_less_than_200_kilobytes() -> None:
    static = files("sayso_console").joinpath("static")
    assert sum(len(file.read_bytes()) for file in static.iterdir()) < 200_000
