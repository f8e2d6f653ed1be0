"""Gated tools over MCP: approved ones run once, all others never."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from sayso import Agent, Call, Caller, ChatRequest, Principal, Result, Session, tool
from sayso.testing import scripted
from sayso_mcp.call import _Call
from sayso_mcp.service import Service

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
POD = {"name": "web-1"}
YES = {"approval": {"action": "accept", "content": {"approve": True}}}
NO = {"approval": {"action": "decline"}}


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


def raw_text(answer: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in answer["result"]["content"])


@ERAS
def test_accepted_explicit_yes_runs_once_and_is_recorded(serve: Any, human: Any, era: str) -> None:
    async def run() -> None:
        yes = human("accept", approve=True, reason="fine")
        async with serve() as served, served.client(era, elicitation_callback=yes) as client:
            meta = {"sayso/intent": "the pod hangs"}
            result = await client.call_tool("delete_pod", POD, meta=meta)
            assert not result.is_error
            assert text(result) == "deleted default/web-1"
            assert served.ran.calls == [{"name": "web-1", "namespace": "default"}]
            [question] = yes.asked
            for part in ("delete_pod", '"web-1"', "the pod hangs", "Delete a pod."):
                assert part in question.message
            schema = question.requested_schema
            assert schema["properties"]["approve"]["type"] == "boolean"
            assert schema["required"] == ["approve"]
            # FastMCP sends null for an optional field without a default, and refuses that itself.
            assert schema["properties"]["reason"]["default"] == ""
            [row] = await served.proposals()
            assert (row.state, row.protocol, row.intent) == ("DONE", "mcp", "the pod hangs")
            assert row.client == "mcp 0.1.0"
            assert (row.decision.approved, row.decision.protocol) == (True, "mcp")

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_approved_call_that_is_the_first_to_use_the_session_leaves_it_to_the_next(
    serve: Any, human: Any, transport: str
) -> None:
    @tool(requires_approval=True)
    def note(word: str, session: Session) -> str:
        """Note a word, and return the previous one."""
        before = session.get("word", "nothing")
        session.set("word", word)
        return str(before)

    agent = Agent(name="notes", model="offline", tools=[note])

    async def run() -> None:
        yes = human("accept", approve=True)
        async with (
            serve(agent=agent, transport=transport) as served,
            served.client("legacy", elicitation_callback=yes) as client,
        ):
            assert text(await client.call_tool("note", {"word": "one"})) == "nothing"
            assert text(await client.call_tool("note", {"word": "two"})) == "one"

    asyncio.run(run())


@ERAS
def test_anything_but_an_accepted_yes_does_not_run(serve: Any, human: Any, era: str) -> None:
    answers = [
        ("decline", {}),
        ("cancel", {}),
        ("accept", {"approve": False}),
        ("accept", {}),
        ("accept", {"approve": "true"}),
        ("accept", {"approve": 1}),
        ("decline", {"approve": True}),
    ]

    async def run() -> None:
        answer = human("decline")
        async with serve() as served, served.client(era, elicitation_callback=answer) as client:
            for action, content in answers:
                answer.answer = types.ElicitResult(action=action, content=content or None)
                result = await client.call_tool("delete_pod", POD)
                assert result.is_error, (action, content)
                assert "Not run" in text(result)
            assert len(answer.asked) == len(answers)
            assert served.ran.calls == []
            assert {row.state for row in await served.proposals()} == {"REJECTED"}

    asyncio.run(run())


@ERAS
def test_call_of_a_client_that_cannot_ask_waits_for_the_page_and_says_so(
    serve: Any, human: Any, era: str
) -> None:
    page = "https://sayso.example/console"

    async def run() -> None:
        async with serve(page=page) as served:
            async with served.client(era) as client:
                result = await client.call_tool("delete_pod", POD)
                [row] = await served.proposals()
                assert result.is_error
                assert f"{page}#{row.id}" in text(result)
                assert f"sayso approvals approve {row.id}" in text(result)
                assert served.ran.calls == []
                await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
                assert text(await client.call_tool("delete_pod", POD)) == "deleted default/web-1"
            # A client that can ask its person, on the same port, is asked.
            yes = human("accept", approve=True)
            async with served.client(era, elicitation_callback=yes) as client:
                assert text(await client.call_tool("delete_pod", POD)) == "deleted default/web-1"
            assert len(yes.asked) == 1
            assert len(served.ran.calls) == 2

    asyncio.run(run())


@ERAS
def test_client_that_opens_pages_and_has_no_forms_is_sent_to_the_page(
    serve: Any, human: Any, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = types.ElicitationCapability(url=types.UrlElicitationCapability())
    capabilities = types.ClientCapabilities(elicitation=links)
    monkeypatch.setattr(ClientSession, "_build_capabilities", lambda *_: capabilities)

    async def run() -> None:
        page = "https://sayso.example/console"
        async with serve(page=page) as served:
            opened = human("accept")
            async with served.client(era, elicitation_callback=opened) as client:
                call = asyncio.ensure_future(client.call_tool("delete_pod", POD))
                while not opened.asked:
                    assert not call.done(), call.result()
                    await asyncio.sleep(0.02)
                [row] = await served.proposals()
                assert opened.asked[0].url == f"{page}#{row.id}"
                await decide_by_chat(served, row, execute=True)
                assert text(await call) == "deleted default/web-1"

    asyncio.run(run())


@ERAS
def test_call_that_nobody_could_ever_approve_says_so_and_is_not_recorded(
    serve: Any, era: str
) -> None:
    async def run() -> None:
        alone = {"approvals_": {"ledger": "memory://"}}
        async with serve(**alone) as served, served.client(era) as client:
            result = await client.call_tool("delete_pod", POD)
            assert result.is_error
            for way in ("form elicitation", "plugin.mcp.page", "approvals.ledger"):
                assert way in text(result)
            assert await served.proposals() == []

    asyncio.run(run())


@ERAS
def test_wrong_arguments_are_not_proposed(serve: Any, human: Any, era: str) -> None:
    async def run() -> None:
        yes = human("accept", approve=True)
        async with serve() as served, served.client(era, elicitation_callback=yes) as client:
            result = await client.call_tool("delete_pod", {"nome": "web-1"})
            assert result.is_error
            assert yes.asked == []
            assert await served.proposals() == []

    asyncio.run(run())


def test_replayed_round_gets_the_recorded_outcome(serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            client = raw(served.url)
            asked = await client.call("delete_pod", POD)
            state = asked["result"]["requestState"]
            assert asked["result"]["resultType"] == "input_required"
            answered = {"requestState": state, "inputResponses": YES}
            for _ in range(3):
                answer = await client.call("delete_pod", POD, **answered)
                assert raw_text(answer) == "deleted default/web-1"
            assert len(served.ran.calls) == 1

    asyncio.run(run())


def test_concurrent_replays_run_once(serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            state = (await raw(served.url).call("delete_pod", POD))["result"]["requestState"]
            answers = await asyncio.gather(
                *(
                    raw(served.url).call("delete_pod", POD, requestState=state, inputResponses=YES)
                    for _ in range(8)
                )
            )
            assert {raw_text(answer) for answer in answers} == {"deleted default/web-1"}
            assert len(served.ran.calls) == 1

    asyncio.run(run())


@ERAS
def test_no_here_after_yes_elsewhere_is_told_as_it_ended(serve: Any, era: str) -> None:
    """The first decision counts. The service may see it before the client's answer comes, and runs
    the call then."""

    async def run() -> None:
        async def no(context: Any, params: Any) -> types.ElicitResult:
            [row] = await served.proposals()
            await served.host.calls.decide(row.id, Caller("console"), approved=True, run=False)
            return types.ElicitResult(action="decline")

        only_here = {"approvals_": {"run": "caller"}}
        async with (
            serve(**only_here) as served,
            served.client(era, elicitation_callback=no) as client,
        ):
            result = await client.call_tool("delete_pod", POD)
            assert result.is_error is (served.ran.calls == [])
            assert ("Not run" in text(result)) is result.is_error

    asyncio.run(run())


@pytest.mark.parametrize("answer", [YES, NO])
def test_answer_for_a_call_that_a_restart_forgot_is_refused(
    serve: Any, raw: Any, tmp_path: Path, answer: Any
) -> None:
    async def run() -> None:
        forgetful = {"approvals_": {"ledger": "memory://"}, "key_file": tmp_path / "key"}
        async with serve(**forgetful) as served:
            state = (await raw(served.url).call("delete_pod", POD))["result"]["requestState"]
        async with serve(**forgetful) as served:
            answered = {"requestState": state, "inputResponses": answer}
            reported = await raw(served.url).call("delete_pod", POD, **answered)
            assert raw_text(reported) == "Not run: this service did not propose this call"
            assert served.ran.calls == []

    asyncio.run(run())


def test_swapped_arguments_are_refused(serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            client = raw(served.url)
            state = (await client.call("delete_pod", POD))["result"]["requestState"]
            for name, other in (("delete_pod", {"name": "db-1"}), ("add", {"a": 1, "b": 2})):
                answer = await client.call(name, other, requestState=state, inputResponses=YES)
                assert answer["error"]["code"] == -32602
            assert served.ran.calls == []

    asyncio.run(run())


def test_forged_state_is_refused(serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            client = raw(served.url)
            state = (await client.call("delete_pod", POD))["result"]["requestState"]
            [row] = await served.proposals()
            changed = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
            for forged in (changed, row.id, "", "v1.AAAA", state[::-1]):
                answer = await client.call(
                    "delete_pod", POD, requestState=forged, inputResponses=YES
                )
                assert answer["error"]["code"] == -32602
            assert served.ran.calls == []

    asyncio.run(run())


def test_expired_state_is_refused(serve: Any, raw: Any, eventually: Any) -> None:
    async def run() -> None:
        async with serve(ask_timeout=0.3) as served:
            client = raw(served.url)
            state = (await client.call("delete_pod", POD))["result"]["requestState"]
            minted = time.monotonic()
            await eventually(lambda: time.monotonic() > minted + 0.3)
            answer = await client.call("delete_pod", POD, requestState=state, inputResponses=YES)
            assert answer["error"]["code"] == -32602
            assert served.ran.calls == []

    asyncio.run(run())


def test_answer_before_the_question_is_only_a_question(serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            answer = await raw(served.url).call("delete_pod", POD, inputResponses=YES)
            assert answer["result"]["resultType"] == "input_required"
            assert served.ran.calls == []

    asyncio.run(run())


def test_state_without_an_answer_asks_again_for_the_same_proposal(serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            client = raw(served.url)
            state = (await client.call("delete_pod", POD))["result"]["requestState"]
            again = await client.call("delete_pod", POD, requestState=state)
            assert again["result"]["resultType"] == "input_required"
            assert len(await served.proposals()) == 1
            assert served.ran.calls == []

    asyncio.run(run())


def test_yes_after_no_does_not_run(serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            client = raw(served.url)
            state = (await client.call("delete_pod", POD))["result"]["requestState"]
            await client.call("delete_pod", POD, requestState=state, inputResponses=NO)
            answer = await client.call("delete_pod", POD, requestState=state, inputResponses=YES)
            assert answer["result"]["isError"]
            assert served.ran.calls == []

    asyncio.run(run())


def test_state_survives_a_restart_and_still_runs_once(tmp_path: Any, serve: Any, raw: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            state = (await raw(served.url).call("delete_pod", POD))["result"]["requestState"]
        assert (tmp_path / "mcp.key").stat().st_mode & 0o777 == 0o600
        for runs in (1, 0):
            async with serve() as served:
                answer = await raw(served.url).call(
                    "delete_pod", POD, requestState=state, inputResponses=YES
                )
                assert raw_text(answer) == "deleted default/web-1"
                assert len(served.ran.calls) == runs

    asyncio.run(run())


def test_another_principal_cannot_use_the_state(serve: Any, raw: Any) -> None:
    async def run() -> None:
        tokens = {"scheme": "bearer", "tokens": {"ann": "token-a", "bob": "token-b"}}
        async with serve(auth=tokens) as served:
            ann = raw(served.url, authorization="Bearer token-a")
            bob = raw(served.url, authorization="Bearer token-b")
            state = (await ann.call("delete_pod", POD))["result"]["requestState"]
            answer = await bob.call("delete_pod", POD, requestState=state, inputResponses=YES)
            assert answer["error"]["code"] == -32602
            assert served.ran.calls == []
            answer = await ann.call("delete_pod", POD, requestState=state, inputResponses=YES)
            assert len(served.ran.calls) == 1
            [row] = await served.proposals()
            assert (row.principal, row.decision.who) == ("ann", "ann")

    asyncio.run(run())


def test_agent_that_answers_for_a_person_runs_nothing(serve: Any, raw: Any) -> None:
    async def run() -> None:
        auth = {
            "scheme": "bearer",
            "tokens": {"bot": "token-b"},
            "principals": {"bot": {"kind": "agent"}},
        }
        async with serve(auth=auth) as served:
            bot = raw(served.url, authorization="Bearer token-b")
            state = (await bot.call("delete_pod", POD))["result"]["requestState"]
            answer = await bot.call("delete_pod", POD, requestState=state, inputResponses=YES)
            assert "an agent decides nothing" in json.dumps(answer)
            assert served.ran.calls == []
            [row] = await served.proposals()
            assert row.decision is None or not row.decision.approved

    asyncio.run(run())


def test_call_that_its_client_cancels_while_its_person_is_asked_is_withdrawn(
    serve: Any, eventually: Any
) -> None:
    async def run() -> None:
        asked = asyncio.Event()

        async def think(context: Any, params: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        async with serve() as served:
            async with served.client("legacy", elicitation_callback=think) as client:
                call = asyncio.ensure_future(client.call_tool("delete_pod", POD))
                await asyncio.wait_for(asked.wait(), 60)
                call.cancel()
                await asyncio.wait([call])

            async def rejected() -> bool:
                return [row.state for row in await served.proposals()] == ["REJECTED"]

            await eventually(rejected)
            [row] = await served.proposals()
            assert row.decision.reason == "the client cancelled its call"
            assert served.ran.calls == []

    asyncio.run(run())


def test_claimed_call_ends_although_its_client_went_away(
    serve: Any, raw: Any, eventually: Any
) -> None:
    started = threading.Event()
    release = threading.Event()

    @tool(requires_approval=True)
    def work() -> str:
        """Work until told to stop."""
        started.set()
        release.wait(120)
        return "worked"

    async def run() -> None:
        agent = Agent(name="worker", model="offline", tools=[work])
        async with serve(agent=agent) as served:
            client = raw(served.url)
            state = (await client.call("work", {}))["result"]["requestState"]
            answered = client.call("work", {}, requestState=state, inputResponses=YES)
            call = asyncio.ensure_future(answered)
            await eventually(started.is_set)
            call.cancel()
            await asyncio.wait([call])
            release.set()

            async def done() -> bool:
                return [row.state for row in await served.proposals()] == ["DONE"]

            await eventually(done)
            again = await client.call("work", {}, requestState=state, inputResponses=YES)
            assert raw_text(again) == "worked"

    asyncio.run(run())


def test_call_without_its_client_has_the_whole_drain_to_end(serve: Any) -> None:
    async def run() -> None:
        async with serve() as served:
            service = Service(served.host, SimpleNamespace(chat="", key_file=None))
            ended = asyncio.Event()
            kept = service.calls.keep(ended.wait())
            draining = asyncio.ensure_future(service.drain(120))
            # Longer than recording the outcome alone may take.
            await asyncio.wait({draining}, timeout=6)
            assert not draining.done()
            ended.set()
            await draining
            assert kept.done()

    asyncio.run(run())


def test_end_without_time_for_calls_complains_of_none_where_none_runs(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with serve() as served:
            await Service(served.host, SimpleNamespace(chat="", key_file=None)).drain(0.0)

    asyncio.run(run())
    assert "did not end in time" not in caplog.text


def test_question_that_nobody_answers_in_time_leaves_the_call_open_for_a_later_yes(
    serve: Any, human: Any
) -> None:
    async def run() -> None:
        later = human("accept", approve=True)

        async def think(context: Any, params: Any) -> Any:
            if not later.asked:
                later.asked.append(params)
                await asyncio.Event().wait()
            return await later(context, params)

        async with (
            serve(ask_timeout=0.3) as served,
            served.client("legacy", elicitation_callback=think) as client,
        ):
            result = await client.call_tool("delete_pod", POD)
            assert result.is_error
            [row] = await served.proposals()
            assert row.state == "PENDING"
            assert row.id in text(result)
            assert served.ran.calls == []
            assert text(await client.call_tool("delete_pod", POD)) == "deleted default/web-1"
            assert [row.id for row in await served.proposals()] == [row.id]

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_client_that_waits_no_longer_leaves_the_call_open_for_a_later_yes(
    serve: Any, transport: str
) -> None:
    async def run() -> None:
        async def think(context: Any, params: Any) -> Any:
            await asyncio.Event().wait()

        async with (
            serve(transport=transport) as served,
            served.client("legacy", elicitation_callback=think) as client,
        ):
            with pytest.raises(MCPError, match="timed out"):
                await client.call_tool("delete_pod", POD, read_timeout_seconds=1)
            [row] = await served.proposals()
            assert row.state == "PENDING"
            await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            assert text(await client.call_tool("delete_pod", POD)) == "deleted default/web-1"
            assert len(served.ran.calls) == 1

    asyncio.run(run())


def test_equal_calls_whose_persons_are_asked_at_once_are_two_calls(serve: Any) -> None:
    async def run() -> None:
        asked: list[Any] = []
        both = asyncio.Event()

        async def yes(context: Any, params: Any) -> Any:
            asked.append(params)
            if len(asked) == 2:
                both.set()
            await both.wait()
            return types.ElicitResult(action="accept", content={"approve": True})

        async with serve() as served, served.client("legacy", elicitation_callback=yes) as client:
            calls = [client.call_tool("delete_pod", POD) for _ in range(2)]
            for result in await asyncio.gather(*calls):
                assert text(result) == "deleted default/web-1"
            assert len(served.ran.calls) == 2

    asyncio.run(run())


def test_no_a_dismissal_a_cancel_and_a_timeout_differ_in_the_log(serve: Any) -> None:
    async def run() -> None:
        asked = asyncio.Event()
        answers: list[Any] = [
            types.ElicitResult(action="decline", content={"reason": "not on a Friday"}),
            types.ElicitResult(action="decline"),
            types.ElicitResult(action="cancel"),
            None,
            None,
        ]

        async def answer(context: Any, params: Any) -> Any:
            given = answers.pop(0)
            asked.set()
            if given is None:
                await asyncio.Event().wait()
            return given

        async with (
            serve() as served,
            served.client("legacy", elicitation_callback=answer) as client,
        ):
            for _ in range(3):
                await client.call_tool("delete_pod", POD)
            asked.clear()
            call = asyncio.ensure_future(client.call_tool("delete_pod", POD))
            await asyncio.wait_for(asked.wait(), 60)
            call.cancel()
            await asyncio.wait([call])
            with pytest.raises(MCPError, match="timed out"):
                await client.call_tool("delete_pod", POD, read_timeout_seconds=1)
            rows = sorted(await served.proposals(), key=lambda row: row.created)
            reported = [(row.state, row.decision and row.decision.reason) for row in rows]
            assert reported == [
                ("REJECTED", "not on a Friday"),
                ("REJECTED", "no reason given"),
                ("REJECTED", "the question was dismissed"),
                ("REJECTED", "the client cancelled its call"),
                ("PENDING", None),
            ]

    asyncio.run(run())


@pytest.mark.parametrize("page", [None, "https://sayso.example/console"])
def test_progress_keeps_a_call_alive_while_its_person_is_asked(
    serve: Any, monkeypatch: pytest.MonkeyPatch, page: str | None
) -> None:
    monkeypatch.setattr("sayso_mcp.progress.ALIVE", 0.05)

    async def run() -> None:
        seen: list[tuple[float, str | None]] = []
        enough = asyncio.Event()

        async def progress(value: float, total: float | None, message: str | None) -> None:
            seen.append((value, message))
            if len(seen) == 3:
                enough.set()

        async def answer(context: Any, params: Any) -> Any:
            if page is None:
                await enough.wait()
            return types.ElicitResult(
                action="accept", content={"approve": True} if not page else None
            )

        settings = {"approvals": "inbox" if page else "client", "page": page}
        async with (
            serve(**settings) as served,
            served.client("legacy", elicitation_callback=answer) as client,
        ):
            call = client.call_tool("delete_pod", POD, progress_callback=progress)
            calling = asyncio.ensure_future(call)
            await asyncio.wait_for(enough.wait(), 60)
            [row] = await served.proposals()
            if page is not None:
                await decide_by_chat(served, row, execute=True)
            assert text(await calling) == "deleted default/web-1"
            assert row.id in (seen[0][1] or "")
            assert [value for value, _ in seen] == sorted({value for value, _ in seen})

    asyncio.run(run())


def test_call_that_was_approved_elsewhere_is_told_as_it_ended(serve: Any) -> None:
    async def run() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def think(context: Any, params: Any) -> Any:
            asked.set()
            await answer.wait()
            return types.ElicitResult(action="decline")

        async with serve() as served, served.client("legacy", elicitation_callback=think) as client:
            call = asyncio.ensure_future(client.call_tool("delete_pod", POD))
            await asyncio.wait_for(asked.wait(), 60)
            [row] = await served.proposals()
            await decide_by_chat(served, row, execute=True)
            answer.set()
            assert text(await call) == "deleted default/web-1"
            assert len(served.ran.calls) == 1

    asyncio.run(run())


@ERAS
def test_question_shows_what_people_cannot_see(serve: Any, human: Any, era: str) -> None:
    async def run() -> None:
        no = human("decline")
        async with serve() as served, served.client(era, elicitation_callback=no) as client:
            for hidden in "\u202e\u3164\ufe0f\U000e0041\u00a0":
                await client.call_tool("delete_pod", {"name": f"web{hidden}1"})
                message = no.asked.pop().message
                assert f'"web{json.dumps(hidden)[1:-1]}1"' in message
                assert hidden not in message

    asyncio.run(run())


@ERAS
def test_denied_tools_are_hidden_and_refused(serve: Any, human: Any, era: str) -> None:
    async def run() -> None:
        yes = human("accept", approve=True)
        async with (
            serve(approvals="deny") as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "delete_pod" not in names
            assert "add" in names
            result = await client.call_tool("delete_pod", POD)
            assert result.is_error
            assert (yes.asked, served.ran.calls) == ([], [])

    asyncio.run(run())


async def decide_by_chat(served: Any, row: Any, **decision: Any) -> None:
    """Decide as Sayso's page does, by a request to /api/chat."""
    call = {"id": row.id, "name": row.name, "input": row.input, **decision}
    request = ChatRequest.model_validate(
        {"messages": [{"role": "user", "content": "", "data": {"tool_calls": [call]}}]}
    )
    await served.host.chat(request, Caller("v2"))


@pytest.mark.parametrize(("era", "name"), [("legacy", "console"), (MODERN, "inbox")])
def test_on_the_console_only_saysos_own_decision_counts(
    serve: Any, human: Any, era: str, name: str
) -> None:
    async def run() -> None:
        yes = human("accept", approve=True)
        async with (
            serve(approvals=name) as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            for _ in range(2):
                result = await client.call_tool("delete_pod", POD)
                [row] = await served.proposals()
                assert "Waiting for approval" in text(result)
                assert row.id in text(result)
            assert (yes.asked, served.ran.calls) == ([], [])
            await decide_by_chat(served, row, execute=True)
            assert len(served.ran.calls) == 1
            result = await client.call_tool("delete_pod", POD)
            assert text(result) == "deleted default/web-1"
            assert len(served.ran.calls) == 1

    asyncio.run(run())


@ERAS
def test_the_same_call_at_once_waits_once(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve(approvals="inbox") as served, served.client(era) as client:
            calls = [client.call_tool("delete_pod", POD) for _ in range(5)]
            answers = {text(result) for result in await asyncio.gather(*calls)}
            assert len(answers) == 1
            assert len(await served.proposals()) == 1
            await client.call_tool("delete_pod", {"name": "web-2"})
            assert len(await served.proposals()) == 2

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
@ERAS
def test_call_that_waits_on_the_console_is_found_after_a_restart_and_by_a_new_session(
    serve: Any, era: str, transport: str
) -> None:
    settings = {"approvals": "inbox", "transport": transport}

    async def run() -> None:
        async with serve(**settings) as served:
            for _ in range(2):
                async with served.client(era) as client:
                    await client.call_tool("delete_pod", POD)
            [row] = await served.proposals()
        async with serve(**settings) as served:
            async with served.client(era) as client:
                assert row.id in text(await client.call_tool("delete_pod", POD))
            await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
        async with serve(**settings) as served, served.client(era) as client:
            assert text(await client.call_tool("delete_pod", POD)) == "deleted default/web-1"
            assert served.ran.calls == [{**POD, "namespace": "default"}]
            assert "Waiting for approval" in text(await client.call_tool("delete_pod", POD))
            assert len(served.ran.calls) == 1

    asyncio.run(run())


@ERAS
def test_call_that_outlasted_its_turn_is_found_again_on_the_console(serve: Any, era: str) -> None:
    go = threading.Event()

    @tool(requires_approval=True)
    def rebuild() -> str:
        """Rebuild the index."""
        assert go.wait(60)
        return "rebuilt"

    async def run() -> None:
        settings = {"approvals": "inbox", "limits": {"turn_time": 1}}
        agent = Agent(model="offline", tools=[rebuild])
        async with serve(agent=agent, **settings) as served, served.client(era) as client:
            await client.call_tool("rebuild", {})
            [row] = await served.proposals()
            await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            said = text(await client.call_tool("rebuild", {}))
            assert "ran longer" in said
            go.set()
            while said != "rebuilt":
                said = text(await client.call_tool("rebuild", {}))
                assert len(await served.proposals()) == 1

    asyncio.run(run())


@ERAS
def test_recorded_approval_runs_at_the_next_call(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve(approvals="inbox") as served, served.client(era) as client:
            await client.call_tool("delete_pod", POD)
            [row] = await served.proposals()
            await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            assert served.ran.calls == []
            result = await client.call_tool("delete_pod", POD)
            assert text(result) == "deleted default/web-1"
            assert len(served.ran.calls) == 1
            # The outcome was delivered, so the same call is a new one that waits for its own
            # decision.
            assert "Waiting" in text(await client.call_tool("delete_pod", POD))
            assert len(served.ran.calls) == 1

    asyncio.run(run())


@ERAS
@pytest.mark.parametrize("fails", [False, True])
def test_client_is_told_of_the_input_that_the_approver_changed(
    serve: Any, era: str, fails: bool
) -> None:
    @tool(requires_approval=True, editable=["hours"])
    def book(hours: int, pet: str) -> str:
        """Book a walk."""
        if fails:
            raise ValueError(f"no walker for {hours} hours")
        return f"{pet} walks {hours} hours"

    agent = Agent(model="offline", tools=[book])

    async def run() -> None:
        async with (
            serve(approvals="inbox", agent=agent) as served,
            served.client(era) as client,
        ):
            asked = {"hours": 1, "pet": "Rex"}
            await client.call_tool("book", asked)
            [row] = await served.proposals()
            changed = {"hours": 2, "pet": "Rex"}
            decide = served.host.calls.decide
            await decide(row.id, Caller("console"), approved=True, edited=changed, run=False)
            result = await client.call_tool("book", asked)
            reported = 'The approver changed the input to {"hours": 2, "pet": "Rex"}.'
            first, second = result.content
            assert reported in second.text
            ended = "Error: no walker for 2 hours" if fails else "Rex walks 2 hours"
            assert (first.text, result.is_error) == (ended, fails)

    asyncio.run(run())


def test_outcome_told_late_does_not_forget_the_next_question(
    serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = _Call._standing
    started: list[Any] = []
    late = asyncio.Event()

    async def held(self: Any, row: Any) -> Any:
        started.append(row)
        first = len(started) == 1
        result = await standing(self, row)
        if first:
            await late.wait()
        return result

    monkeypatch.setattr(_Call, "_standing", held)

    async def run() -> None:
        async with serve(approvals="inbox") as served, served.client("legacy") as client:
            await client.call_tool("delete_pod", POD)
            [row] = await served.proposals()
            await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            first = asyncio.create_task(client.call_tool("delete_pod", POD))
            await eventually(lambda: started)
            assert text(await client.call_tool("delete_pod", POD)) == "deleted default/web-1"
            asked = text(await client.call_tool("delete_pod", POD))
            late.set()
            assert text(await first) == "deleted default/web-1"
            assert text(await client.call_tool("delete_pod", POD)) == asked
            assert len(await served.proposals()) == 2

    asyncio.run(run())


@ERAS
def test_rejection_on_the_console_is_told_with_its_reason(serve: Any, era: str) -> None:
    async def run() -> None:
        async with serve(approvals="inbox") as served, served.client(era) as client:
            await client.call_tool("delete_pod", POD)
            [row] = await served.proposals()
            await decide_by_chat(served, row, rejection_reason="not today")
            result = await client.call_tool("delete_pod", POD)
            assert result.is_error
            assert "not today" in text(result)
            assert served.ran.calls == []

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
@ERAS
def test_opened_page_is_no_decision(serve: Any, human: Any, era: str, transport: str) -> None:
    async def run() -> None:
        opened = human("accept")
        page = "https://sayso.example/console"
        async with serve(
            approvals="inbox", page=page, ask_timeout=120, transport=transport
        ) as served:
            async with served.client(era, elicitation_callback=opened) as client:
                call = asyncio.ensure_future(client.call_tool("delete_pod", POD))
                while not opened.asked:
                    assert not call.done(), call.result()
                    await asyncio.sleep(0.02)
                [row] = await served.proposals()
                assert opened.asked[0].url == f"{page}#{row.id}"
                done, _ = await asyncio.wait([call], timeout=0.5)
                assert not done
                assert served.ran.calls == []
                await decide_by_chat(served, row, execute=True)
                assert text(await call) == "deleted default/web-1"
                assert len(served.ran.calls) == 1

    asyncio.run(run())


TWO_PEOPLE: dict[str, Any] = {
    "auth": {
        "scheme": "bearer",
        "tokens": {"ann": "token-a", "bob": "token-b"},
        "principals": {"ann": {"kind": "person"}, "bob": {"kind": "person"}},
    },
    "approvals_": {"rules": [{"tool": "book", "approvers": ["ann", "bob"], "quorum": 2}]},
}


async def edit(served: Any, hours: int) -> None:
    """Bob changes the input of the pending call; that is one of the two approvals it needs."""
    (row,) = await served.proposals()
    bob = served.host.directory.known(Principal("bob"), "bearer")
    changed = {"hours": hours}
    await served.host.calls.decide(row.id, Caller("v2", bob), approved=True, edited=changed)


@ERAS
@pytest.mark.parametrize("named", ["book", "chat"])
def test_form_shows_and_approves_the_revision_that_would_run(
    serve: Any, era: str, named: str
) -> None:
    @tool(requires_approval=True, editable=True)
    def book(hours: int) -> str:
        """Book a walk."""
        return f"walked {hours} hours"

    asked: list[str] = []

    def reply(ask: Any) -> Any:
        last = ask.turns[-1].blocks[-1]
        return last.output if isinstance(last, Result) else [Call("c", "book", {"hours": 1})]

    agent = Agent(model=scripted(*[reply] * 6), tools=[book])
    arguments = {"hours": 1} if named == "book" else {"message": "walk the dog"}

    async def run() -> None:
        async def answer(context: Any, params: Any) -> types.ElicitResult:
            asked.append(params.message)
            if len(asked) == 1:
                await edit(served, 2)
            return types.ElicitResult(action="accept", content={"approve": True})

        async with (
            serve(agent=agent, **TWO_PEOPLE) as served,
            httpx2.AsyncClient(headers={"authorization": "Bearer token-a"}, timeout=60) as http,
            Client(
                streamable_http_client(served.url, http_client=http),
                mode=era,
                elicitation_callback=answer,
            ) as client,
        ):
            result = await client.call_tool(named, arguments)
            if len(asked) == 1:
                assert "walked" not in text(result)
                [row] = await served.proposals()
                assert (row.state, row.revision) == ("PENDING", 2)
                result = await client.call_tool(named, arguments)
            assert '"hours": 1' in asked[0]
            assert "revision 2" in asked[1]
            assert '"hours": 2' in asked[1]
            assert "walked 2 hours" in text(result)
            assert len(asked) == 2
            assert [row.output for row in await served.proposals()] == ["walked 2 hours"]

    asyncio.run(run())
