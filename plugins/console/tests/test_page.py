"""The page as a person uses it, in a real browser over a real server."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sayso import (
    Agent,
    Call,
    Caller,
    LocalShell,
    ModelError,
    Proposal,
    RequestContext,
    Result,
    Turn,
    tool,
)
from sayso.testing import Served, Service, scripted

PLUGINS = 'plugins = ["v2", "console"]\n[approvals]\nrun = "caller"\n'
IMAGE = "<img src=x onerror=\"document.title='broken'\">"
Opened = Callable[..., Any]


def served(serve: Served, agent: object, config: str = PLUGINS) -> Service:
    return serve(agent, config=config)


class Files:
    """An agent with a gated tool that counts its runs."""

    def __init__(self, *steps: Any, output: str = "deleted") -> None:
        self.ran: list[str] = []
        self.output = output

        @tool(requires_approval=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.ran.append(path)
            return f"{self.output} {path}"

        self.model = scripted(*steps)
        self.agent = Agent(
            name="files",
            description="Looks after files",
            model=self.model,
            tools=[delete],
            commands=LocalShell(),
        )

    def results(self) -> list[Result]:
        """The results in the model's last ask."""
        turns: list[Turn] = list(self.model.asks[-1].turns)
        return [b for turn in turns for b in turn.blocks if isinstance(b, Result)]


def deleting(*paths: str) -> list[Call]:
    return [Call(f"call-{path}", "delete", {"path": path}) for path in paths]


def rests(page: Any) -> None:
    """Wait until no turn runs: only then the page accepts a message and has stored the last one."""
    page.locator("#stop").wait_for(state="hidden")


def say(page: Any, text: str) -> None:
    rests(page)
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def sees(page: Any, text: str) -> None:
    page.locator("#conversation").get_by_text(text).first.wait_for()


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).first.click()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`, run on a thread of its own, since the browser's driver has a loop
    here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result(60)


def sent(page: Any) -> list[Any]:
    """The bodies that the page sends to the agent, as they arrive."""
    bodies: list[Any] = []

    def note(request: Any) -> None:
        if "/api/" in request.url:
            bodies.append(request.post_data_json)

    page.on("request", note)
    return bodies


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


LOOKS = """() => {
  const { get } = Object.getOwnPropertyDescriptor(Element.prototype, "scrollHeight");
  const frame = window.requestAnimationFrame.bind(window);
  window.looks = window.frames_asked = 0;
  Object.defineProperty(Element.prototype, "scrollHeight", {
    get() { window.looks += 1; return get.call(this); },
  });
  window.requestAnimationFrame = (then) => { window.frames_asked += 1; return frame(then); };
}"""


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


def test_long_log_in_the_message_field_does_not_freeze_the_page(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, lambda messages, context: "Thanks."))
    plain, ours = page.evaluate(FILLED)
    # The browser computes the direction of `dir=auto` in quadratic time.
    assert ours < 3 * plain


def test_message_field_gives_each_line_its_own_direction(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, lambda messages, context: "Thanks."))
    field = page.get_by_label("Message")
    assert field.evaluate("field => getComputedStyle(field).unicodeBidi") == "plaintext"


def test_approved_call_runs_once_and_shows_its_outcome(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(["I would.", *deleting("a.txt")], "It is gone.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete a.txt")
    card = page.get_by_role("region", name="Proposed tool call")
    card.wait_for()
    assert "Delete a file." in card.inner_text()
    assert card.locator("pre").inner_text() == "a.txt"
    assert page.get_by_role("button", name="Send", exact=True).is_disabled()
    assert files.ran == []
    press(page, "Approve")
    sees(page, "It is gone.")
    rests(page)
    assert files.ran == ["a.txt"]
    page.get_by_text("Ran delete").click()
    sees(page, "deleted a.txt")
    sees(page, "Approved delete")


class Walks:
    """An agent with gated calls whose input may be changed, all of it or in part."""

    def __init__(self, *steps: Any, editable: Any = True) -> None:
        self.ran: list[tuple[int, str]] = []

        @tool(requires_approval=True, editable=editable)
        def book(hours: int, pet: str) -> str:
            """Book a walk."""
            self.ran.append((hours, pet))
            return "booked"

        self.agent = Agent(model=scripted(*steps), tools=[book])


def booking(*hours: int, pet: str = "Rex") -> list[Call]:
    return [Call(f"call-{n}", "book", {"hours": n, "pet": pet}) for n in hours]


def as_json(page: Any) -> None:
    """Edit as JSON rather than in the fields, unless that is how it was edited before."""
    if page.get_by_label(", as JSON:").count() == 0:
        press(page, "Edit as JSON")


def edits(page: Any, text: str) -> None:
    press(page, "Edit…")
    as_json(page)
    page.get_by_label(", as JSON:").fill(text)
    press(page, "Approve as edited")


def test_edited_input_is_what_runs(sayso_served: Served, opened: Opened) -> None:
    number = 12345678901234567891
    walks = Walks(booking(number, pet="Rex\u202e"), "Booked.", "Bye.")
    page = opened(served(sayso_served, walks.agent))
    say(page, "a walk for Rex")
    press(page, "Edit…")
    as_json(page)
    field = page.get_by_label("The input that will run, as JSON:")
    shown = field.input_value()
    assert shown == f'{{\n  "hours": {number},\n  "pet": "Rex\\u202e"\n}}'
    field.fill(shown.replace("\\u202e", " and Ben"))
    press(page, "Approve as edited")
    sees(page, "Booked.")
    assert walks.ran == [(number, "Rex and Ben")]
    rests(page)
    page.reload()
    sees(page, "Approved book, edited")
    page.get_by_text("Approved book, edited").click()
    page.locator("details[open] pre").get_by_text("Rex and Ben").wait_for()
    say(page, "thanks")
    sees(page, "Bye.")


def test_edit_that_is_refused_says_why_and_can_be_mended(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.", editable=["hours"])
    page = opened(served(sayso_served, walks.agent))
    say(page, "a walk for Rex")
    edits(page, "2 hours")
    field = page.get_by_label("What may change of the input (hours), as JSON:")
    assert field.evaluate("field => field.validationMessage") == "This is no JSON object."
    field.fill('{"hours": "soon"}')
    press(page, "Approve as edited")
    sees(page, "the changed input does not fit the tool: parameter 'hours'")
    assert walks.ran == []
    press(page, "Edit…")
    as_json(page)
    assert field.input_value() == '{"hours": "soon"}'
    page.keyboard.press("Escape")
    edits(page, '{"hours": 2}')
    sees(page, "Booked.")
    assert walks.ran == [(2, "Rex")]


def test_edit_beside_other_decisions_is_shown_before_it_is_sent(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1, 2), "Booked.")
    page = opened(served(sayso_served, walks.agent))
    say(page, "two walks for Rex")
    edits(page, '{"hours": 3, "pet": "Ben"}')
    page.locator(".card.approved .input pre").get_by_text("Ben").wait_for()
    press(page, "Approve")
    press(page, "Send decisions")
    sees(page, "Booked.")
    assert sorted(walks.ran) == [(2, "Rex"), (3, "Ben")]


def test_input_that_somebody_edits_is_not_approved_with_all_others(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1, 2), "Booked.")
    page = opened(served(sayso_served, walks.agent))
    say(page, "two walks for Rex")
    press(page, "Edit\u2026")
    as_json(page)
    page.locator(".answer textarea").fill('{"hours": 3, "pet": "Ben"}')
    press(page, "Approve all")
    page.get_by_text("1 of 2 decided").wait_for()
    press(page, "Approve as edited")
    press(page, "Send decisions")
    sees(page, "Booked.")
    assert sorted(walks.ran) == [(2, "Rex"), (3, "Ben")]


def test_input_is_edited_however_many_other_calls_wait(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)

    async def crowd() -> None:
        for hours in range(100):
            await service.host.calls.propose("book", {"hours": hours, "pet": "Ben"}, Caller("mcp"))

    run(crowd())
    page = opened(service)
    say(page, "a walk for Rex")
    conversation = page.locator("#conversation")
    conversation.get_by_role("button", name="Edit…").click()
    conversation.get_by_role("button", name="Edit as JSON").click()
    conversation.get_by_label(", as JSON:").fill('{"hours": 3, "pet": "Rex"}')
    press(page, "Approve as edited")
    sees(page, "Booked.")
    assert walks.ran == [(3, "Rex")]


def test_what_may_not_be_changed_has_no_field_for_it(sayso_served: Served, opened: Opened) -> None:
    page = opened(served(sayso_served, Files(deleting("a.txt")).agent))
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    rests(page)
    with page.expect_response("**/console/approvals") as answer:
        look_again(page)
    assert answer.value.json()["agent"]["editable"] == {}
    assert page.get_by_role("button", name="Edit…").count() == 0


def test_rejection_takes_a_reason_to_the_model(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "As you like.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete a.txt")
    press(page, "Reject…")
    page.get_by_label("Why not?").fill("it is still needed")
    page.keyboard.press("Enter")
    sees(page, "As you like.")
    rests(page)
    assert files.ran == []
    assert "it is still needed" in files.results()[0].output
    sees(page, "Rejected delete: it is still needed")


def test_several_proposals_are_decided_and_sent_in_one_message(
    sayso_served: Served, opened: Opened
) -> None:
    command = Call("shell", "suggest_commands", {"commands": [{"command": "echo done"}]})
    files = Files([*deleting("a", "b"), command], "All is decided.")
    page = opened(served(sayso_served, files.agent))
    bodies = sent(page)
    say(page, "clean up")
    page.get_by_role("region", name="Proposed command").wait_for()
    press(page, "Approve")
    press(page, "Undo")
    assert page.locator("#decided").inner_text() == "0 of 3 decided"
    press(page, "Approve")
    press(page, "Reject…")
    page.keyboard.type("keep b")
    page.keyboard.press("Enter")
    press(page, "Approve all")
    assert files.ran == []
    press(page, "Send decisions")
    sees(page, "All is decided.")
    rests(page)
    assert files.ran == ["a"]
    assert len(bodies) == 2
    data = bodies[1]["messages"][-1]["data"]
    assert [c["execute"] for c in data["tool_calls"]] == [True, False]
    assert data["tool_calls"][1]["rejection_reason"] == "keep b"
    assert [c["execute"] for c in data["cmds"]] == [True]
    page.get_by_text("Ran echo done").click()
    page.locator("details pre").get_by_text("done", exact=True).wait_for()


def test_part_of_the_proposals_can_be_sent(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a", "b"), "Both are done.")
    page = opened(served(sayso_served, files.agent))
    say(page, "clean up")
    press(page, "Approve")
    press(page, "Send decisions")
    sees(page, "Ran delete")
    rests(page)
    assert files.ran == ["a"]
    assert page.get_by_role("region", name="Proposed tool call").count() == 1
    press(page, "Approve")
    sees(page, "Both are done.")
    assert files.ran == ["a", "b"]


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


def test_conversation_that_the_browser_has_no_room_for_says_so(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, Files("One.", "Two.").agent))
    note = page.get_by_text("too long to be kept over a reload")
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


def test_session_goes_back_with_each_message(sayso_served: Served, opened: Opened) -> None:
    def agent(messages: Any, context: Any, session: Any) -> str:
        session.set("count", session.get("count", 0) + 1)
        return f"turn {session.get('count')}"

    page = opened(served(sayso_served, agent))
    for turn in (1, 2, 3):
        say(page, "again")
        sees(page, f"turn {turn}")


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


def decided_elsewhere(service: Service, place: int = 0, **decision: Any) -> None:
    row = waiting(service)[place]
    run(service.host.calls.decide(row.id, Caller("cli"), run=False, **decision))


def test_decision_that_is_refused_leaves_a_way_on(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "Then not.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    decided_elsewhere(service, approved=False, reason="by another")
    press(page, "Approve")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text().split("\n") == ["the call was rejected before", "APPROVAL_CONFLICT"]
    sees(page, "Already rejected over the command line")
    sees(page, "Reason: by another")
    say(page, "what now?")
    sees(page, "Then not.")
    assert files.ran == []


def test_call_that_another_approved_can_be_approved_after_all(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a.txt"), "It is gone.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    decided_elsewhere(service, approved=True)
    press(page, "Reject…")
    page.keyboard.press("Enter")
    sees(page, "Already approved over the command line")
    assert files.ran == []
    page.reload()
    sees(page, "Already approved over the command line")
    press(page, "Approve it, too")
    sees(page, "It is gone.")
    assert files.ran == ["a.txt"]


def test_rejection_by_another_can_be_passed_on(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "Then not.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    decided_elsewhere(service, approved=False, reason="by another")
    press(page, "Approve")
    press(page, "Reject it, too")
    sees(page, "Then not.")
    assert files.ran == []
    (result,) = files.results()
    assert result.is_error and "by another" in result.output


def test_only_the_decision_that_is_refused_is_taken_back(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a.txt", "b.txt"), "One is gone.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "delete both")
    page.get_by_role("region", name="Proposed tool call").nth(1).wait_for()
    rests(page)
    # The page's own refresh would show it before the decisions are sent.
    page.route("**/console/approvals", lambda route: route.abort())
    decided_elsewhere(service, 1, approved=False, reason="by another")
    press(page, "Approve")
    page.get_by_text("1 of 2 decided").wait_for()
    press(page, "Approve")
    press(page, "Send decisions")
    page.get_by_role("alert").wait_for()
    page.unroute("**/console/approvals")
    look_again(page)
    sees(page, "Already rejected over the command line")
    card = page.get_by_role("region", name="Proposed tool call").filter(has_text="a.txt")
    card.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("1 of 2 decided").wait_for()
    press(page, "Reject it, too")
    press(page, "Send decisions")
    sees(page, "One is gone.")
    assert files.ran == ["a.txt"]


def inbox(page: Any) -> Any:
    """The inbox, which is a view of its own."""
    page.get_by_role("link", name="Inbox").click()
    region = page.get_by_role("region", name="Inbox")
    region.wait_for()
    return region


def look_again(page: Any) -> None:
    """Make the page refresh its list of pending calls now rather than in some seconds."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def waiting(service: Service) -> list[Proposal]:
    rows: list[Proposal] = run(service.host.calls.pending(Caller("test"))).calls
    return rows


def test_call_of_another_protocol_is_approved_on_the_page(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files("Hello.")
    service = served(sayso_served, files.agent)
    page = opened(service)
    say(page, "hello")
    sees(page, "Hello.")
    caller = Caller("mcp", client="an editor")
    row = run(service.host.calls.propose("delete", {"path": "x"}, caller, intent="tidy up"))
    look_again(page)
    panel = inbox(page)
    panel.wait_for()
    assert "From: MCP · an editor" in panel.inner_text()
    assert "tidy up" in panel.inner_text()
    page.get_by_role("link", name="Inbox 1 waiting").wait_for()
    panel.get_by_role("region", name="Proposed tool call: delete").wait_for()
    panel.get_by_role("button", name="Approve").click()
    panel.get_by_text("Approved delete").wait_for()
    found = run(service.host.calls.look(row.id, caller))
    assert found is not None
    assert (found.state, files.ran) == ("APPROVED", [])
    assert found.decision is not None
    assert found.decision.protocol == "console"
    done = run(service.host.calls.decide(row.id, caller, approved=True))
    assert (done.state, files.ran) == ("DONE", ["x"])


def test_input_of_a_call_of_another_protocol_is_edited_on_the_page(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(editable=["hours"])
    service = served(sayso_served, walks.agent)
    caller, more = Caller("mcp"), 12345678901234567891
    row = run(service.host.calls.propose("book", {"hours": 1, "pet": "Rex"}, caller))
    page = opened(service)
    panel = inbox(page)
    panel.wait_for()
    edits(page, '{"hours": "soon"}')
    panel.get_by_text("the changed input does not fit the tool: parameter 'hours'").wait_for()
    edits(page, f'{{"hours": {more}}}')
    panel.get_by_text("Approved book, edited").wait_for()
    found = run(service.host.calls.look(row.id, caller))
    assert (found.state, found.edited) == ("APPROVED", {"hours": more, "pet": "Rex"})
    done = run(service.host.calls.decide(row.id, caller, approved=True, input=found.runs))
    assert (done.state, walks.ran) == ("DONE", [(more, "Rex")])


def test_call_of_another_protocol_is_rejected_with_a_reason(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files()
    service = served(sayso_served, files.agent)
    caller = Caller("a2a")
    row = run(service.host.calls.propose("delete", {"path": "x"}, caller))
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    panel.get_by_text("Rejected delete: not today").wait_for()
    found = run(service.host.calls.look(row.id, caller))
    assert found is not None
    assert (found.state, found.output) == ("REJECTED", "Rejected: not today")


def test_decision_that_comes_too_late_says_how_another_decided(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files()
    service = served(sayso_served, files.agent)
    run(service.host.calls.propose("delete", {"path": "x"}, Caller("a2a")))
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    decided_elsewhere(service, approved=True)
    page.keyboard.press("Enter")
    panel.get_by_text("Already approved over the command line").wait_for()
    assert "Already approved over the command line" in page.locator("#announcer").inner_text()


def test_call_that_is_gone_while_somebody_works_on_it_says_so(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files()
    service = served(sayso_served, files.agent)
    run(service.host.calls.propose("delete", {"path": "x"}, Caller("a2a")))
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    page.keyboard.type("because")
    decided_elsewhere(service, approved=True)
    look_again(page)
    panel.get_by_text("Already approved over the command line").wait_for()


@pytest.mark.parametrize("opens", ["Edit…", "Reject…"])
def test_what_somebody_writes_into_a_call_that_goes_stays_until_it_is_dismissed(
    sayso_served: Served, opened: Opened, opens: str
) -> None:
    service = served(sayso_served, Walks([], "Bye.").agent)
    run(service.host.calls.propose("book", {"hours": 1, "pet": "Rex"}, Caller("a2a")))
    page = opened(service, clock=True)
    panel = inbox(page)
    panel.get_by_role("button", name=opens).click()
    if opens == "Edit…":
        as_json(page)
    panel.locator(".answer input, .answer textarea").fill('{"pet": "Rex and Ben"}')
    decided_elsewhere(service, approved=False)
    look_through(page)
    panel.get_by_text("Already rejected over the command line").wait_for()
    page.mouse.move(1, 1)
    page.clock.fast_forward(60_000)
    look_through(page)
    assert panel.locator(".kept pre").inner_text() == '{"pet": "Rex and Ben"}'
    panel.get_by_role("button", name="Dismiss").click()
    assert panel.get_by_text("Rex and Ben").count() == 0
    page.mouse.move(1, 1)
    look_through(page)
    panel.get_by_text("Nothing waits.").wait_for()


def with_a_reason(service: Service, opened: Opened) -> tuple[Any, Any]:
    """The page, and its list with one call whose rejection has a reason and is not sent yet."""
    proposed(service, "a")
    page = opened(service)
    panel = inbox(page)
    panel.get_by_role("button", name="Reject…").click()
    page.keyboard.type("not before noon")
    return page, panel


def test_decision_with_a_text_that_comes_too_late_keeps_the_text(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    page, panel = with_a_reason(service, opened)
    decided_elsewhere(service, approved=True)
    page.keyboard.press("Enter")
    panel.get_by_text("Already approved over the command line").wait_for()
    panel.locator(".kept").get_by_text("not before noon").wait_for()


def test_call_of_this_conversation_says_when_another_has_decided_it(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)
    ann, bob = opened(service), opened(service)
    say(ann, "a walk for Rex")
    ann.get_by_role("region", name="Proposed tool call").wait_for()
    rests(ann)
    press(ann, "Reject…")
    ann.keyboard.type("it rains")
    look_again(bob)
    inbox(bob)
    edits(bob, '{"hours": 3, "pet": "Ben"}')
    bob.get_by_text("Approved book, edited").wait_for()
    # Ann would approve a call that she does not see.
    look_again(ann)
    card = ann.get_by_role("region", name="Proposed tool call")
    card.get_by_text("Already approved with another input over a console").wait_for()
    assert card.locator(".input pre").all_inner_texts() == ["3", "Ben"]
    assert card.get_by_role("button").all_inner_texts() == ["Approve it, too"]
    ann.locator(".kept").get_by_text("it rains").wait_for()
    assert "Already approved with another input" in ann.locator("#announcer").inner_text()
    press(ann, "Approve it, too")
    sees(ann, "Booked.")
    assert walks.ran == [(3, "Ben")]


def test_page_that_shows_the_input_before_an_edit_does_not_start_the_edited_call(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)
    page = opened(service)
    say(page, "a walk for Rex")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    rests(page)
    page.route("**/console/approvals", lambda route: route.abort())
    edited: dict[str, Any] = {"hours": 3, "pet": "Ben"}
    decided_elsewhere(service, approved=True, edited=edited)
    press(page, "Approve")
    sees(page, "the input was changed: revision 2 is what would run")
    assert walks.ran == []


def test_page_asks_after_no_call_that_has_not_come_up_in_a_long_list(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1, 2), "Booked.")
    service = served(sayso_served, walks.agent)

    async def crowd() -> None:
        for hours in range(101):
            await service.host.calls.propose("book", {"hours": hours, "pet": "Ben"}, Caller("mcp"))

    run(crowd())
    page = opened(service)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    say(page, "two walks for Rex")
    conversation = page.locator("#conversation")
    conversation.get_by_role("button", name="Edit…").nth(1).wait_for()
    rests(page)
    look_through(page)
    look_through(page)
    # It still asks about calls that another client's calls have pushed off the list.
    ours = [row.id for row in waiting(service) if row.protocol != "mcp"]
    assert len(ours) == 2
    assert [url for url in asked if url.endswith(tuple(ours))] == []
    run(decide_last(service, approved=False, reason="it rains"))
    conversation.get_by_role("button", name="Approve", exact=True).nth(1).click()
    press(page, "Send decisions")
    sees(page, "Reason: it rains")


async def decide_last(service: Service, **decision: Any) -> None:
    row = (await service.host.calls.pending(Caller("test"))).calls[0]
    await service.host.calls.decide(row.id, Caller("cli"), run=False, **decision)


def test_edit_that_comes_after_another_edit_is_told_of_it(
    sayso_served: Served, opened: Opened
) -> None:
    walks = Walks(booking(1), "Booked.")
    service = served(sayso_served, walks.agent)
    page = opened(service)
    say(page, "a walk for Rex")
    press(page, "Edit\u2026")
    as_json(page)
    page.get_by_label(", as JSON:").fill('{"hours": 2, "pet": "Rex"}')
    decided_elsewhere(service, approved=True, edited={"hours": 3, "pet": "Ben"})
    press(page, "Approve as edited")
    sees(page, "Already approved with another input")
    page.locator(".kept").get_by_text('"hours": 2').wait_for()
    press(page, "Approve it, too")
    sees(page, "Booked.")
    assert walks.ran == [(3, "Ben")]


@pytest.mark.parametrize("approved", [True, False])
def test_same_decision_of_another_says_what_stands(
    sayso_served: Served, opened: Opened, approved: bool
) -> None:
    service = served(sayso_served, Walks().agent)
    run(service.host.calls.propose("book", {"hours": 1, "pet": "Rex"}, Caller("mcp")))
    page = opened(service)
    panel = inbox(page)
    if approved:
        panel.get_by_role("button", name="Approve", exact=True).click(trial=True)
        decided_elsewhere(service, approved=True, edited={"hours": 3, "pet": "Ben"})
        panel.get_by_role("button", name="Approve", exact=True).click()
        panel.get_by_text("Already approved with another input").click()
        panel.get_by_text("Ben").wait_for()
    else:
        panel.get_by_role("button", name="Reject…").click()
        page.keyboard.type("it rains")
        decided_elsewhere(service, approved=False, reason="Rex is ill")
        page.keyboard.press("Enter")
        panel.get_by_text("Reason: Rex is ill").wait_for()
        panel.locator(".kept").get_by_text("it rains").wait_for()


def test_call_of_this_conversation_that_expires_blocks_no_message(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a.txt"), "Hello.")
    config = PLUGINS + 'ttl = "1s"\n'
    page = opened(served(sayso_served, files.agent, config))
    say(page, "delete a.txt")
    sees(page, "No longer waits: delete. It has expired.")
    say(page, "hello")
    sees(page, "Hello.")


@pytest.mark.parametrize(
    ("status", "reported"),
    [(None, "The service could not be reached."), (404, "The service refused the request.")],
)
def test_reason_outlives_a_decision_that_could_not_be_sent(
    sayso_served: Served, opened: Opened, status: int | None, reported: str
) -> None:
    def lost(route: Any) -> None:
        # A gateway's answer if no service is behind it.
        route.fulfill(status=status, body="no backend") if status else route.abort()

    service = served(sayso_served, Files().agent)
    page, panel = with_a_reason(service, opened)
    page.route("**/console/approvals/*", lost)
    page.keyboard.press("Enter")
    panel.get_by_text(reported).wait_for()
    page.unroute("**/console/approvals/*")
    panel.get_by_role("button", name="Reject…").click()
    assert panel.get_by_role("textbox").input_value() == "not before noon"
    page.keyboard.press("Enter")
    panel.get_by_text("Rejected delete: not before noon").wait_for()


def test_decision_whose_answer_was_lost_is_not_told_as_anothers(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    (row,) = proposed(service, "a")
    page = opened(service)

    def lose(route: Any) -> None:
        if route.request.method != "POST":
            return route.continue_()
        route.fetch()
        return route.abort()

    page.route("**/console/approvals/*", lose)
    panel = inbox(page)
    panel.get_by_role("button", name="Approve", exact=True).click()
    panel.get_by_text("Already approved over a console").wait_for()
    assert state(service, row) == "APPROVED"


def test_text_in_a_call_stays_while_others_of_its_turn_are_sent(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a", "b"), "One is gone.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete both")
    press(page, "Approve")
    press(page, "Reject…")
    page.keyboard.type("b is needed")
    press(page, "Send decisions")
    sees(page, "Ran delete")
    rests(page)
    assert page.get_by_label("Why not?").input_value() == "b is needed"
    page.get_by_label("Why not?").press("Enter")
    sees(page, "One is gone.")
    assert files.ran == ["a"]


def test_page_says_that_the_service_is_out_of_reach_and_goes_on_by_itself(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    page = opened(service, clock=True)
    proposed(service, "a")
    look_through(page)
    note = page.get_by_role("status").get_by_text("out of reach")
    inbox(page)
    assert note.count() == 0
    for answer in ({"status": 502, "body": "a gateway's page"}, None):
        done = (lambda route: route.abort()) if answer is None else answering(answer)
        page.route("**/console/approvals", done)
        look_again(page)
        note.wait_for()
        page.unroute("**/console/approvals")
        page.clock.fast_forward(10_000)
        note.wait_for(state="detached")


def answering(answer: dict[str, Any]) -> Callable[[Any], None]:
    return lambda route: route.fulfill(**answer)


def test_end_of_a_long_input_is_not_out_of_sight_unsaid(
    sayso_served: Served, opened: Opened
) -> None:
    command = "ls" + "\n" * 60 + "rm -rf /"
    call = Call("shell", "suggest_commands", {"commands": [{"command": command}]})
    page = opened(served(sayso_served, Files([call]).agent))
    say(page, "look")
    card = page.get_by_role("region", name="Proposed command")
    card.get_by_text("In all: 61 lines, 70 characters").wait_for()


def test_own_proposals_do_not_wait_elsewhere(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"))
    page = opened(served(sayso_served, files.agent))
    say(page, "delete a.txt")
    page.get_by_role("region", name="Proposed tool call").wait_for()
    with page.expect_response("**/console/approvals") as answer:
        look_again(page)
    assert len(answer.value.json()["approvals"]) == 1
    assert inbox(page).locator(".card").count() == 0
    page.get_by_text("1 call of this conversation waits in the chat.").click()
    press(page, "New conversation")
    press(page, "Stay here")
    sees(page, "delete a.txt")
    press(page, "New conversation")
    press(page, "Begin a new conversation")
    inbox(page).get_by_role("region", name="Proposed tool call").wait_for()
    assert page.locator("#conversation").inner_text() == ""


def proposed(service: Service, *paths: str) -> list[Proposal]:
    """Calls of another client, which are listed in this order: the newest comes first."""
    calls = service.host.calls
    made = [run(calls.propose("delete", {"path": p}, Caller("mcp"))) for p in reversed(paths)]
    return made[::-1]


def state(service: Service, row: Proposal) -> str:
    found = run(service.host.calls.look(row.id, Caller("test")))
    assert found is not None
    return str(found.state)


def spot(locator: Any) -> tuple[float, float]:
    """The middle of a button, for a pointer that does not look again before it presses."""
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def stop_clock(page: Any) -> None:
    """Stop the clock: from here on a press comes as soon after a change as possible."""
    from playwright.sync_api import Error

    for ahead in (0.1, 1.0, 10.0):
        try:
            page.clock.pause_at(page.evaluate("Date.now()") / 1000 + ahead)
        except Error:
            # The machine is busy, and that moment has passed.
            continue
        return


def look_through(page: Any) -> None:
    """Make the page refresh its list, and wait until it has processed the answer."""
    with page.expect_response("**/console/approvals") as answer:
        look_again(page)
    answer.value.finished()
    page.evaluate(
        "new Promise(done => { const c = new MessageChannel(); "
        "c.port1.onmessage = done; c.port2.postMessage(0) })"
    )


def test_press_for_a_call_that_has_just_gone_does_not_decide_the_next_one(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    first, second = proposed(service, "a", "b")
    page = opened(service, clock=True)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.nth(1).click(trial=True)
    here, below = spot(approve.first), spot(approve.nth(1))
    page.mouse.move(*here)
    decided_elsewhere(service, approved=False, reason="by another")
    look_through(page)
    page.mouse.click(*here)
    look_through(page)
    assert state(service, second) == "PENDING"
    page.get_by_text("Already rejected over the command line").wait_for()
    # However long the pointer rests there, nothing moves up under it.
    page.clock.fast_forward(60_000)
    look_through(page)
    page.mouse.click(*here)
    look_through(page)
    assert spot(approve.first) == below
    assert state(service, second) == "PENDING"
    page.mouse.move(1, 1)
    look_through(page)
    page.get_by_text("Already rejected over the command line").wait_for(state="detached")
    approve.click()
    page.locator("#inbox").get_by_text("Approved delete").wait_for()
    assert (state(service, first), state(service, second)) == ("REJECTED", "APPROVED")


def test_what_a_flood_pushes_off_the_first_page_is_found_on_further_ones(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    [early] = proposed(service, "early")
    page = opened(service)
    panel = inbox(page)
    cards = panel.get_by_role("region", name="Proposed tool call")
    cards.first.wait_for()
    proposed(service, *map(str, range(105)))
    look_through(page)
    look_through(page)
    # It is still pending, and its card says so.
    assert cards.count() == 101
    cards.filter(has_text="early").get_by_role("button", name="Approve", exact=True).wait_for()
    assert panel.get_by_text("No longer waits").count() == 0
    page.reload()
    cards.nth(99).wait_for()
    assert cards.filter(has_text="early").count() == 0
    panel.get_by_role("button", name="Show more").click()
    cards.nth(105).wait_for()
    panel.get_by_role("button", name="Show more").wait_for(state="hidden")
    cards.filter(has_text="early").get_by_role("button", name="Approve", exact=True).click()
    panel.get_by_text("Approved delete").wait_for()
    assert state(service, early) == "APPROVED"


def test_call_that_was_decided_here_keeps_its_place_under_the_pointer(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    first, second = proposed(service, "a", "b")
    page = opened(service)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.nth(1).click(trial=True)
    here, below = spot(approve.first), spot(approve.nth(1))
    page.mouse.click(*here)
    page.locator("#inbox").get_by_text("Approved delete").wait_for()
    page.mouse.click(*here)
    assert spot(approve) == below
    # Another decision needs no wait.
    page.mouse.click(*below)
    page.locator("#inbox").get_by_text("Approved delete").nth(1).wait_for()
    assert (state(service, first), state(service, second)) == ("APPROVED", "APPROVED")


ABOVE = """() => {
  const above = document.createElement("p");
  above.style.height = "150px";
  document.querySelector("main").prepend(above);
}"""


def test_button_that_has_just_moved_takes_no_press(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("own"), "It is gone.")
    service = served(sayso_served, files.agent)
    page = opened(service, height=1200, clock=True)
    bodies = sent(page)
    say(page, "delete own")
    approve = page.locator("#conversation").get_by_role("button", name="Approve", exact=True)
    approve.click(trial=True)
    before = spot(approve)
    stop_clock(page)
    page.evaluate(ABOVE)
    after = spot(approve)
    assert after != before
    page.mouse.click(*before)
    page.mouse.click(*after)
    # A press that began too early and ended late does not count either.
    page.mouse.move(*after)
    page.mouse.down()
    page.clock.run_for(1000)
    page.mouse.up()
    look_through(page)
    assert (len(bodies), files.ran) == (1, [])
    page.clock.resume()
    page.mouse.click(*after)
    sees(page, "It is gone.")
    assert files.ran == ["own"]


def test_answer_that_comes_after_a_newer_one_takes_no_call_away(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    proposed(service, "a")
    page = opened(service)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.wait_for()
    late: list[Any] = []

    def answer(route: Any) -> None:
        if late:
            route.continue_()
        else:
            late.append((route, route.fetch()))

    page.route("**/console/approvals", answer)
    with page.expect_request("**/console/approvals"):
        look_again(page)
    while not late:
        page.wait_for_timeout(20)
    route, before = late[0]
    proposed(service, "b")
    look_through(page)
    approve.nth(1).wait_for()
    with page.expect_event("requestfinished"):
        route.fulfill(response=before)
    look_through(page)
    assert approve.count() == 2
    assert page.get_by_text(re.compile("No longer waits|Already")).count() == 0


def test_press_that_begins_on_one_call_does_not_end_on_another(
    sayso_served: Served, opened: Opened
) -> None:
    service = served(sayso_served, Files().agent)
    _, second = proposed(service, "a", "b")
    page = opened(service)
    inbox(page)
    approve = page.locator("#inbox").get_by_role("button", name="Approve", exact=True)
    approve.nth(1).click(trial=True)
    page.mouse.move(*spot(approve.first))
    page.mouse.down()
    decided_elsewhere(service, approved=True)
    look_through(page)
    page.mouse.up()
    look_through(page)
    assert state(service, second) == "PENDING"


def test_key_that_is_held_or_pressed_twice_decides_and_sends_no_more_than_it_was_meant_to(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a", "b"), "Both are gone.")
    page = opened(served(sayso_served, files.agent), clock=True)
    bodies = sent(page)
    say(page, "delete both")
    approve = page.get_by_role("button", name="Approve", exact=True)
    approve.first.click()
    approve.click(trial=True)
    stop_clock(page)
    approve.focus()
    for _ in range(4):
        page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    page.keyboard.press("Enter")
    page.get_by_text("2 of 2 decided").wait_for()
    assert (len(bodies), files.ran) == (1, [])
    page.clock.resume()
    page.get_by_role("button", name="Send decisions").click(trial=True)
    page.keyboard.press("Enter")
    sees(page, "Both are gone.")


TOKENS = """
[auth]
scheme = "bearer"
tokens = { ann = "a-token-for-ann-0123456789" }
"""


def test_token_is_asked_for_and_kept_in_this_tab_only(sayso_served: Served, opened: Opened) -> None:
    files = Files("Hello, Ann.", "Hello again.")
    page = opened(served(sayso_served, files.agent, PLUGINS + TOKENS))
    field = page.get_by_label("This service asks for a token")
    field.fill("a-wrong-token")
    page.keyboard.press("Enter")
    page.get_by_text("That token was not accepted.").wait_for()
    say(page, "hello")
    page.get_by_role("alert").wait_for()
    field.fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    sees(page, "Hello, Ann.")
    rests(page)
    assert field.is_hidden()
    page.reload()
    say(page, "hello again")
    sees(page, "Hello again.")
    assert "a-token" not in page.evaluate("JSON.stringify(localStorage)")
    assert page.context.cookies() == []
    press(page, "Sign out")
    field.wait_for()
    assert page.evaluate("sessionStorage.getItem('sayso.token')") is None


def test_message_that_was_sent_again_by_hand_is_not_sent_by_signing_in(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files("Hello, Ann.", "Hello once more.")
    page = opened(served(sayso_served, files.agent, PLUGINS + TOKENS))
    bodies = sent(page)
    page.get_by_label("This service asks for a token").wait_for()
    say(page, "hello")
    page.get_by_role("alert").wait_for()
    # The page's own refresh takes time; the person does not wait for it.
    page.route("**/console/approvals", lambda route: route.abort())
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    page.locator("#token-note").get_by_text("The service could not be reached.").wait_for()
    press(page, "Try again")
    sees(page, "Hello, Ann.")
    rests(page)
    page.unroute("**/console/approvals")
    look_again(page)
    page.locator("#sign-in").wait_for(state="hidden")
    look_through(page)
    rests(page)
    assert len(bodies) == 2
    assert len(files.model.asks) == 1
    sees(page, "Hello, Ann.")


def test_accepted_token_leads_the_keyboard_on_to_the_message_field(
    sayso_served: Served, opened: Opened
) -> None:
    page = opened(served(sayso_served, Files("Hello, Ann.").agent, PLUGINS + TOKENS))
    field = page.get_by_label("This service asks for a token")
    field.wait_for()
    page.keyboard.type("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")
    page.keyboard.type("hello")
    page.keyboard.press("Enter")
    sees(page, "Hello, Ann.")


def test_token_that_could_not_be_sent_is_told(sayso_served: Served, opened: Opened) -> None:
    page = opened(served(sayso_served, Files().agent, PLUGINS + TOKENS.replace("-", " ")))
    field = page.get_by_label("This service asks for a token")
    field.fill("a token for ann 0123456789\u200b")
    page.keyboard.press("Enter")
    page.locator("#token-note").get_by_text("holds a character that cannot be sent").wait_for()
    page.route("**/console/approvals", lambda route: route.abort())
    field.fill("a token for ann 0123456789")
    page.keyboard.press("Enter")
    page.locator("#token-note").get_by_text("The service could not be reached.").wait_for()
    page.unroute("**/console/approvals")
    field.fill("a token for ann 0123456789")
    page.keyboard.press("Enter")
    field.wait_for(state="hidden")


def test_page_uses_v1_where_v2_is_missing(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "It is gone.")
    page = opened(served(sayso_served, files.agent, 'plugins = ["v1", "console"]\n'))
    say(page, "delete a.txt")
    press(page, "Approve")
    sees(page, "It is gone.")
    assert files.ran == ["a.txt"]


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


def test_focus_goes_to_the_message_field_where_the_pressed_button_goes_away(
    sayso_served: Served, opened: Opened
) -> None:
    more = threading.Event()
    at_field = "e => e === document.activeElement"

    def agent(messages: Any, context: Any) -> Iterator[str]:
        yield "half a reply"
        more.wait(60)

    files = Files(deleting("a.txt", "b.txt"), ModelError("bad_request", "no"), "Both are gone.")
    page = opened(served(sayso_served, files.agent))
    say(page, "delete both")
    press(page, "Approve")
    press(page, "Approve")
    for button in ("Send decisions", "Try again"):
        pressed = page.get_by_role("button", name=button, exact=True)
        pressed.click(trial=True)
        pressed.press("Enter")
        assert page.locator("#text").evaluate(at_field), button
    sees(page, "Both are gone.")
    page = opened(served(sayso_served, agent))
    say(page, "begin")
    sees(page, "half a reply")
    pressed = page.get_by_role("button", name="Stop", exact=True)
    pressed.click(trial=True)
    pressed.press("Enter")
    rests(page)
    assert page.locator("#text").evaluate(at_field)
    more.set()


def test_page_works_by_keyboard_alone(sayso_served: Served, opened: Opened) -> None:
    files = Files(deleting("a.txt"), "It is gone.")
    from playwright.sync_api import expect

    page = opened(served(sayso_served, files.agent))
    page.keyboard.type("delete")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("a.txt")
    page.keyboard.press("Enter")
    approve = page.get_by_role("button", name="Approve", exact=True)
    approve.wait_for()
    expect(approve).to_be_enabled(timeout=60_000)
    # The focus stays in the message field: a key meant for it decides nothing.
    page.keyboard.press("Enter")
    assert files.ran == []
    assert page.locator("#text").evaluate("e => e === document.activeElement")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert approve.evaluate("e => e === document.activeElement")
    page.keyboard.press("Enter")
    sees(page, "It is gone.")
    assert files.ran == ["a.txt"]


def test_narrow_page_has_room_for_the_name_and_says_why_nothing_can_be_sent(
    sayso_served: Served, opened: Opened
) -> None:
    files = Files(deleting("a"))
    files.agent.name = "help-desk"
    page = opened(served(sayso_served, files.agent, PLUGINS + TOKENS), width=360, height=640)
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    name = page.get_by_role("heading", name="help-desk")
    name.wait_for()
    assert page.get_by_role("button", name="Sign out").is_visible()
    assert name.bounding_box()["height"] < 30  # one line
    say(page, "delete a")
    page.get_by_text("Decide the calls above first.").wait_for()


@pytest.mark.parametrize("width", [320, 375])
def test_narrow_page_has_its_buttons_side_by_side_below_the_name_and_what_waits(
    sayso_served: Served, opened: Opened, width: int
) -> None:
    files = Files()
    files.agent.name = "help-desk"
    service = served(sayso_served, files.agent, PLUGINS + TOKENS)
    run(service.host.calls.propose("delete", {"path": "a"}, Caller("mcp", principal="ann")))
    page = opened(service, width=width, height=640)
    page.get_by_label("This service asks for a token").fill("a-token-for-ann-0123456789")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Inbox 1 waiting").wait_for()
    name = page.get_by_role("heading", name="help-desk").bounding_box()
    waiting = page.get_by_role("link", name="Inbox 1 waiting").bounding_box()
    talks = page.get_by_text("Conversations", exact=True).bounding_box()
    new = page.get_by_role("button", name="New conversation").bounding_box()
    assert abs(talks["y"] - new["y"]) < 4
    assert name["y"] + name["height"] < new["y"] < waiting["y"]
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_narrow_page_does_not_scroll_sideways(sayso_served: Served, opened: Opened) -> None:
    long = "x" * 400
    files = Files(long, deleting(long, "b"), long, output=long)
    service = served(sayso_served, files.agent)
    run(service.host.calls.propose("delete", {"path": long}, Caller("mcp")))
    page = opened(service, width=360, height=640)
    inbox(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.get_by_role("link", name="Chat").click()
    say(page, long)
    sees(page, long)
    say(page, "go on")
    page.locator("#decisions").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.locator("#conversation").get_by_role("button", name="Reject…").first.click()
    page.keyboard.type(long)
    page.keyboard.press("Enter")
    press(page, "Approve all")
    press(page, "Send decisions")
    page.get_by_text("Ran delete").wait_for()
    rests(page)
    page.get_by_text("Ran delete").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


PLACES = """(pre) => {
  const found = {};
  const walk = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data;
    for (const char of "3>9") {
      const at = text.indexOf(char);
      if (at < 0) continue;
      const range = document.createRange();
      range.setStart(walk.currentNode, at);
      range.setEnd(walk.currentNode, at + 1);
      found[char] = range.getBoundingClientRect().left;
    }
  }
  return [found["3"], found[">"], found["9"]];
}"""


def test_text_between_right_to_left_letters_keeps_its_order_in_a_card(
    sayso_served: Served, opened: Opened
) -> None:
    @tool(requires_approval=True)
    def alert(rule: str) -> str:
        """Set an alert."""
        return "set"

    rule = "\u05d0 3 > 9 \u05d1"
    agent = Agent(model=scripted([Call("1", "alert", {"rule": rule})], "set"), tools=[alert])
    page = opened(served(sayso_served, agent))
    say(page, "alert me")
    value = page.locator(".card pre").first
    value.wait_for()
    places = value.evaluate(PLACES)
    assert places == sorted(places)
    assert value.inner_text() == rule
