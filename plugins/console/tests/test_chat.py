"""A person talks with the agent on the page: replies, texts, sessions, errors."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from page_kit import (
    Files,
    Opened,
    deleting,
    inbox,
    look_again,
    press,
    rests,
    run,
    say,
    sees,
    served,
)

from sayso import (
    Agent,
    Call,
    Caller,
    ModelError,
    RequestContext,
    tool,
)
from sayso.testing import Served, scripted

IMAGE = "<img src=x onerror=\"document.title='broken'\">"
LOOKS = """() => {
  const { get } = Object.getOwnPropertyDescriptor(Element.prototype, "scrollHeight");
  const frame = window.requestAnimationFrame.bind(window);
  window.looks = window.frames_asked = 0;
  Object.defineProperty(Element.prototype, "scrollHeight", {
    get() { window.looks += 1; return get.call(this); },
  });
  window.requestAnimationFrame = (then) => { window.frames_asked += 1; return frame(then); };
}"""
LATE_END = """() => {
  const own = window.fetch;
  const frame = () => new Promise(requestAnimationFrame);
  window.fetch = async (...asked) => {
    const response = await own(...asked);
    if (!String(asked[0]).includes("api/")) return response;
    const ended = async () => { for (const _ of [1, 2, 3]) await frame(); };
    const late = new TransformStream({ flush: ended });
    return new Response(response.body.pipeThrough(late), response);
  };
}"""
BELOW = """async () => {
  for (const _ of [1, 2, 3]) await new Promise(requestAnimationFrame);
  return document.documentElement.scrollHeight - scrollY - innerHeight;
}"""
FILLED = """() => {
  const plain = document.body.appendChild(document.createElement("textarea"));
  const log = "a line of a log with words in it\\n".repeat(30_000);
  const took = [plain, document.getElementById("text")].map((field) => {
    const begun = performance.now();
    field.value = log;
    field.offsetHeight;
    return performance.now() - begun;
  });
  plain.remove();
  return took;
}"""


@pytest.mark.slow
def test_reply_is_shown_while_it_comes(sayso_served: Served, opened: Opened) -> None:
    more = threading.Event()

    def agent(messages: Any, context: Any) -> Iterator[str]:
        context.update("looking")
        yield "first half, "
        more.wait(60)
        yield "second half"

    page = opened(served(sayso_served, agent))
    say(page, "hello")
    sees(page, "first half, ")
    sees(page, "looking")
    assert not page.get_by_text("second half").count()
    more.set()
    sees(page, "first half, second half")
    sees(page, "1 step")
    rests(page)
    assert page.locator("#announcer").inner_text() == "first half, second half"


@pytest.mark.slow
def test_update_that_comes_again_at_once_is_counted_in_its_line(
    sayso_served: Served, opened: Opened
) -> None:
    @tool
    def count(context: RequestContext) -> None:
        """Count."""
        for number in range(4):
            context.update(str(number))

    # With a response interceptor all of them arrive with the same words.
    agent = Agent(
        model=scripted([Call("1", "count", {})], "Counted."),
        tools=[count],
        response_interceptors=lambda reply, context: None,
    )
    page = opened(served(sayso_served, agent))
    say(page, "count")
    sees(page, "Counted.")
    rests(page)
    page.get_by_text("3 steps").click()
    shown = page.locator(".status li").all_inner_texts()
    assert shown == ["Preparing count", "Running count", "Working \u00d7 4"]


@pytest.mark.slow
def test_long_reply_is_laid_out_once_a_frame_and_followed_to_its_end(
    sayso_served: Served, opened: Opened
) -> None:
    def agent(messages: Any, context: Any) -> Iterator[str]:
        for number in range(3000):
            yield f"word{number} "

    page = opened(served(sayso_served, agent))
    page.evaluate(LOOKS)
    say(page, "hello")
    sees(page, "word2999")
    rests(page)
    # When the page checked after each word, a reply of this length froze it for half a minute.
    assert page.evaluate("looks <= 2 * frames_asked + 10")
    page.wait_for_function("scrollY + innerHeight > document.documentElement.scrollHeight - 160")


@pytest.mark.slow
def test_card_is_followed_to_where_the_reply_ends_some_frames_after_its_last_event(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, Files("word " * 800, deleting("a")).agent))
    page.evaluate(LATE_END)
    say(page, "hello")
    sees(page, "word")
    say(page, "delete a")
    rests(page)
    assert page.evaluate(BELOW) < 2


@pytest.mark.slow
def test_long_log_in_the_message_field_does_not_freeze_the_page(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, lambda messages, context: "Thanks."))
    plain, ours = page.evaluate(FILLED)
    # The browser computes the direction of `dir=auto` in quadratic time.
    assert ours < 3 * plain


@pytest.mark.slow
def test_message_field_gives_each_line_its_own_direction(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, lambda messages, context: "Thanks."))
    field = page.get_by_label("Message")
    assert field.evaluate("field => getComputedStyle(field).unicodeBidi") == "plaintext"


def test_nothing_from_model_and_tools_becomes_html(sayso_served: Served, opened: Opened) -> None:
    def agent(messages: Any, context: Any) -> Any:
        if context.decisions:
            done = [
                {"id": d.id, "name": d.name, "input": d.input, "output": IMAGE}
                for d in context.decisions
            ]
            return {"role": "assistant", "content": IMAGE, "data": {"executed_tool_calls": done}}
        context.update(IMAGE)
        call = {"id": "1", "name": IMAGE, "input": {IMAGE: IMAGE, "list": [IMAGE]}}
        reported = {"tool_description": IMAGE, "intent": IMAGE, "input_description": {}}
        link = {"url": "javascript:document.title='broken'", "description": IMAGE}
        data = {"tool_calls": [{**call, **reported}], "url_configs": [link]}
        return {"role": "assistant", "content": IMAGE, "data": data}

    page = opened(served(sayso_served, agent))
    say(page, IMAGE)
    card = page.get_by_role("region", name="Proposed tool call")
    card.wait_for()
    assert card.inner_text().count(IMAGE) >= 3
    press(page, "Approve")
    page.locator("details", has_text="Ran").last.wait_for()
    rests(page)
    page.reload()
    page.locator("details", has_text="Ran").last.wait_for()
    assert page.locator("img, a[href^=javascript], iframe, script:not([src])").count() == 0
    assert page.title() != "broken"


@pytest.mark.slow
def test_unseen_characters_and_large_numbers_are_shown_exactly(
    sayso_served: Served, opened: Opened
) -> None:
    number = 12345678901234567891
    even = 10_000_000_000_000_000
    ran: list[int] = []

    @tool(requires_approval=True)
    def pay(account: int, cents: int, to: str) -> str:
        ran.append(account)
        return "paid"

    call = Call("1", "pay", {"account": number, "cents": even, "to": "Eve\u202e\u200bmoc\ta"})
    agent = Agent(model=scripted([call], "Paid."), tools=[pay])
    page = opened(served(sayso_served, agent))
    say(page, "pay")
    shown = page.get_by_role("region", name="Proposed tool call").locator("pre")
    shown.first.wait_for()
    assert shown.all_inner_texts() == [str(number), str(even), "EveU+202EU+200BmocU+0009a"]
    rests(page)
    page.reload()
    assert shown.first.inner_text() == str(number)
    press(page, "Approve")
    sees(page, "Paid.")
    assert ran == [number]


@pytest.mark.slow
def test_reload_keeps_the_conversation_and_what_waits_in_it(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files("Hello.", deleting("a.txt"), "It is gone.", "Good night.")
    page = opened(served(sayso_served, files.agent))
    say(page, "hello there")
    sees(page, "Hello.")
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    rests(page)
    page.reload()
    sees(page, "hello there")
    sees(page, "Hello.")
    press(page, "Approve")
    sees(page, "It is gone.")
    rests(page)
    page.reload()
    sees(page, "Approved delete")
    sees(page, "Ran delete")
    assert page.get_by_role("button", name="Approve", exact=True).count() == 0
    say(page, "good night")
    sees(page, "Good night.")
    assert files.ran == ["a.txt"]


@pytest.mark.slow
def test_conversation_that_the_browser_has_no_room_for_says_so(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, Files("One.", "Two.").agent))
    note = page.get_by_text("does not keep all of this conversation")
    page.evaluate("""() => {
      for (let text = "x".repeat(1 << 22), n = 0; text; n += 1) {
        try { localStorage.setItem(`room ${n}`, text); }
        catch { text = text.slice(0, text.length >> 1); }
      }
    }""")
    say(page, "one")
    sees(page, "One.")
    note.wait_for()
    page.evaluate("localStorage.clear()")
    say(page, "two")
    sees(page, "Two.")
    note.wait_for(state="detached")


@pytest.mark.slow
def test_session_goes_back_with_each_message(sayso_served: Served, opened: Opened) -> None:
    def agent(messages: Any, context: Any, session: Any) -> str:
        session.set("count", session.get("count", 0) + 1)
        return f"turn {session.get('count')}"

    page = opened(served(sayso_served, agent))
    for turn in (1, 2, 3):
        say(page, "again")
        sees(page, f"turn {turn}")


@pytest.mark.slow
def test_stop_ends_the_turn(sayso_served: Served, opened: Opened) -> None:
    ended = threading.Event()

    async def agent(messages: Any, context: Any) -> Any:
        if messages[-1].content == "and now?":
            yield f"{len(messages)} messages"
            return
        try:
            yield "a long story"
            await asyncio.sleep(600)
        finally:
            ended.set()

    page = opened(served(sayso_served, agent))
    say(page, "tell me")
    sees(page, "a long story")
    press(page, "Stop")
    sees(page, "Stopped.")
    assert ended.wait(60)
    say(page, "and now?")
    sees(page, "3 messages")


@pytest.mark.slow
def test_error_is_shown_with_its_code_and_can_be_tried_again(
    sayso_served: Served, opened: Opened
) -> None:
    fault = ModelError("server", "the provider is on fire")
    files = Files(deleting("a.txt"), fault, "It is gone after all.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete a.txt")
    press(page, "Approve")
    error = page.get_by_role("alert")
    error.wait_for()
    assert "the provider is on fire" in error.inner_text()
    assert "MODEL_ERROR" in error.inner_text()
    press(page, "Try again")
    sees(page, "It is gone after all.")
    assert files.ran == ["a.txt"]
    assert page.get_by_role("alert").count() == 0


@pytest.mark.slow
def test_page_uses_v1_where_v2_is_missing(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "It is gone.")
    page = opened(served(sayso_served, files.agent, 'plugins = ["v1", "console"]\n'))
    say(page, "delete a.txt")
    press(page, "Approve")
    sees(page, "It is gone.")
    assert files.ran == ["a.txt"]


@pytest.mark.slow
def test_page_goes_on_after_a_gateway_that_found_no_service(
    sayso_served: Served, opened: Opened
) -> None:
    # Answers like a gateway in front of a service that is being replaced.
    files = Files("Hello.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    rests(page)
    gone = re.compile(r"/api/|/console/approvals")
    page.route(gone, lambda route: route.fulfill(status=404, body="no backend"))
    look_again(page)
    say(page, "hello")
    sees(page, "This service has no chat endpoint.")
    page.unroute(gone)
    press(page, "Send")
    sees(page, "Hello.")
    run(service.host.calls.propose("delete", {"path": "x"}, Caller("mcp")))
    look_again(page)
    inbox(page)
