"""The agent in threads and direct messages of Slack: turns, cards, router, continuations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fake_slack import BOT, CHANNEL, TEAM, FakeSlack, buttons, press, slack, until

from sayso import Agent, Caller, Principal, tool
from sayso.testing import Service, scripted, served
from sayso_slack import edits

PEOPLE = """
[auth.people]
ann = ["slack|T0TEAM|U1ANN"]
bob = ["slack|T0TEAM|U2BOB"]
"""
SEEN: list[Any] = []
RAN: list[str] = []


def seen(request: Any, context: Any) -> None:
    SEEN.append((context.source, [m.user and m.user.id for m in request.messages]))


def agent(*steps: Any) -> Agent:
    """An agent with a gated tool, whose model answers by these steps."""
    SEEN.clear()
    RAN.clear()

    @tool(requires_approval=True)
    def delete(path: str) -> str:
        """Delete a file."""
        RAN.append(path)
        return f"deleted {path}"

    return Agent(
        name="ops", id="ops", model=scripted(*steps), tools=[delete], request_interceptors=seen
    )


@contextmanager
def talking(
    *steps: Any, more: str = "", approvals: str = "", plugins: str = "", **options: Any
) -> Iterator[tuple[FakeSlack, Service]]:
    """A service that is connected to a Slack of its own."""
    with slack() as workspace:
        config = (
            f'plugins = ["v2", "notify", "slack"{plugins}]\n[approvals]\ndeciders = "any"\n'
            f"{approvals}\n{PEOPLE}"
            f'[plugin.slack]\nbot_token = "xoxb-1"\napp_token = "xapp-1"\nteams = ["{TEAM}"]\n'
            f'api = "{workspace.api}"\ninputs = ["*"]\n{more}\n'
        )
        with served(agent(*steps), config=config, **options) as running:
            yield workspace, running


def cards(workspace: FakeSlack) -> list[Any]:
    """The messages with buttons, or that had them when they were posted."""
    places = dict.fromkeys((channel, ts) for channel, ts, _ in workspace.shown)
    return [workspace.messages[channel][ts] for channel, ts in places]


def said(ask: Any) -> str:
    """Everything that the model has read, as a text."""
    return repr(ask.turns)


def call(path: str) -> Any:
    """A call of the gated tool."""
    from sayso import Call

    return Call("c1", "delete", {"path": path})


def test_a_mention_is_answered_in_its_thread_and_a_card_there_decides_and_goes_on() -> None:
    model_steps = (["I will delete it.", call("report.pdf")], "It is gone.")
    with talking(*model_steps) as (workspace, service):
        event = workspace.says(f"<@{BOT}> delete report.pdf &amp; be quick")
        thread = event["event"]["ts"]
        mention = {**event, "event": {**event["event"], "type": "app_mention"}}
        for payload in (event, mention, event):
            workspace.send("events_api", payload)
        card = until(lambda: cards(workspace), "the card")[0]
        assert card["thread_ts"] == thread
        assert workspace.texts(CHANNEL)[0] == "I will delete it."
        assert SEEN == [("team-chat", ["U1ANN"])]
        assert "delete report.pdf & be quick" in said(service.host.model.asks[0])  # type: ignore[attr-defined]
        assert RAN == []
        workspace.send("interactive", press(card, buttons(card)["Approve"], user="U1ANN"))
        until(lambda: "It is gone." in workspace.texts(CHANNEL), "the continuation")
        assert RAN == ["report.pdf"]
        until(lambda: "it has run" in card["text"])
        assert "deleted report.pdf" in said(service.host.model.asks[1])  # type: ignore[attr-defined]
        assert len(cards(workspace)) == 1 and len(service.host.model.asks) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "method", ["auth.test", "conversations.replies", "chat.postMessage", "chat.update"]
)
def test_a_failure_of_slack_delays_a_turn_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(edits, "EVERY", 0.0)
    with talking(["I will ", "delete it.", call("a")]) as (workspace, _):
        workspace.failing[method] = 1
        workspace.send("events_api", workspace.says(f"<@{BOT}> delete a"))
        card = until(lambda: cards(workspace), "the card")[0]
        assert buttons(card) and workspace.texts(CHANNEL)[0] == "I will delete it."


def test_a_card_in_a_thread_waits_as_slack_asks() -> None:
    with talking([call("a")]) as (workspace, _):
        workspace.limited = 1
        workspace.send("events_api", workspace.says(f"<@{BOT}> delete a"))
        until(lambda: cards(workspace), "the card")


def test_the_thread_goes_on_after_a_decision_with_what_was_said_in_it() -> None:
    steps = (["One moment.", call("a")], "Kept it.", "You are welcome.")
    with talking(*steps) as (workspace, service):
        first = workspace.says(f"<@{BOT}> delete a")
        thread = first["event"]["ts"]
        workspace.send("events_api", first)
        card = until(lambda: cards(workspace), "the card")[0]
        workspace.send("events_api", workspace.says("and b, too", thread_ts=thread))
        until(lambda: [t for t in workspace.texts(CHANNEL) if "waits for a decision, on" in t])
        id_ = buttons(card)["Reject"]["value"].split(" ")[0]
        bob = Caller("inbox", Principal("bob"))
        asyncio.run(service.host.calls.decide(id_, bob, approved=False, reason="it is needed"))
        until(lambda: "Kept it." in workspace.texts(CHANNEL))
        workspace.send("events_api", workspace.says("thanks", thread_ts=thread))
        until(lambda: "You are welcome." in workspace.texts(CHANNEL))
        asks = service.host.model.asks  # type: ignore[attr-defined]
        assert "it is needed" in said(asks[1]) and len(asks) == 3
        assert "and b, too" in said(asks[1]), "what was said meanwhile is answered now"
        last = said(asks[2])
        assert last.index("One moment.") < last.index("Kept it.") < last.index("thanks")
        assert RAN == []


def test_a_direct_message_needs_no_mention_and_others_in_the_channel_are_not_answered() -> None:
    with talking("Hello Ann.", "Hello again.") as (workspace, service):
        workspace.send("events_api", workspace.says("just talking"))
        workspace.send("events_api", workspace.says("hello", channel="D0ANN"))
        until(lambda: workspace.texts("D0ANN") == ["Hello Ann."])
        workspace.send("events_api", workspace.says("hello", channel="D0ANN"))
        until(lambda: workspace.texts("D0ANN") == ["Hello Ann.", "Hello again."])
        assert "Hello Ann." in said(service.host.model.asks[1])  # type: ignore[attr-defined]
        assert workspace.texts(CHANNEL) == []


def test_the_router_decides_whether_the_agent_answers_a_channel() -> None:
    def route(messages: Any) -> dict[str, Any]:
        return {"should_respond": "disk" in messages[-1].content, "reasoning": "about disks"}

    options: Any = {"channel_router": route}
    listen = f'listen = ["{CHANNEL}"]'
    with talking("90 %.", more=listen, plugins=', "router"', **options) as (workspace, _):
        workspace.send("events_api", workspace.says("who has lunch?"))
        workspace.send("events_api", workspace.says("how full is the disk?"))
        until(lambda: workspace.texts(CHANNEL) == ["90 %."])
        until(lambda: len(SEEN) >= 1)
        assert {source for source, _ in SEEN} == {"team-chat"}


def test_a_user_whom_nobody_mapped_gets_no_turn() -> None:
    with talking("never") as (workspace, service):
        workspace.send("events_api", workspace.says(f"<@{BOT}> hello", user="U9GUEST"))
        notices = until(lambda: workspace.of("chat.postEphemeral"))
        assert notices[0]["user"] == "U9GUEST" and "[auth.people]" in notices[0]["text"]
        foreign = workspace.says(f"<@{BOT}> hello")
        foreign["event"]["user_team"] = "T9OTHER"
        bot = workspace.says(f"<@{BOT}> hello", bot_id="B9")
        for payload in (foreign, bot, {"event": None}, {}, {"event": {"type": "message"}}):
            envelope = workspace.send("events_api", payload)
        until(lambda: envelope in workspace.acks)
        time.sleep(0.3)
        assert service.host.model.asks == []  # type: ignore[attr-defined]
        assert workspace.texts(CHANNEL) == []


def test_a_long_answer_grows_by_edits_and_goes_on_in_another_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edits, "EVERY", 0.0)
    words = " ".join(f"word{n}" for n in range(900)) + " <!channel> <https://evil.example|x>"
    with talking(words) as (workspace, _):
        workspace.send("events_api", workspace.says(f"<@{BOT}> tell me"))
        until(lambda: "".join(workspace.texts(CHANNEL)).endswith("|x&gt;"))
        texts = workspace.texts(CHANNEL)
        assert len(texts) == 3 and all(len(text) < 4_000 for text in texts)
        assert "&lt;!channel&gt;" in texts[-1] and "<" not in "".join(texts)
        posted = workspace.of("chat.postMessage")
        assert {str(one["unfurl_links"]).lower() for one in posted} <= {"false", "0"}
        assert workspace.edits, "the text grew"


def test_an_expired_call_is_told_in_its_thread_and_to_the_model() -> None:
    steps = (["Shall I?", call("a")], "Nobody decided, so it is still there.")
    with talking(*steps, approvals='ttl = "3s"') as (workspace, service):
        first = workspace.says(f"<@{BOT}> delete a")
        workspace.send("events_api", first)
        card = until(lambda: cards(workspace), "the card")[0]
        until(lambda: "has expired" in card["text"])
        again = workspace.says("and now?", thread_ts=first["event"]["ts"])
        workspace.send("events_api", again)
        until(lambda: [t for t in workspace.texts(CHANNEL) if t.startswith("Nobody decided")])
        assert "no longer open" in said(service.host.model.asks[1])  # type: ignore[attr-defined]
        assert RAN == []


def test_a_failing_model_is_told_in_the_thread_without_its_error() -> None:
    with talking(RuntimeError("key sk-12345 refused")) as (workspace, _):
        workspace.send("events_api", workspace.says(f"<@{BOT}> hello"))
        text = until(lambda: workspace.texts(CHANNEL))[0]
        assert "sk-12345" not in text
