"""Proposals of `chat`: the person is asked, or decides elsewhere, and the conversation
continues."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from sayso import Agent, Call, Caller, LocalShell, Proposal, tool
from sayso.testing import scripted
from sayso_mcp.conversations import Standing

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
WIPE = {"message": "wipe both"}


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


def cleaner(ran: list[str], *steps: Any) -> Agent:
    """An agent that proposes to wipe two folders at once, and then reports the result."""

    @tool(requires_approval=True)
    def wipe(path: str) -> str:
        """Wipe a folder."""
        ran.append(path)
        return f"wiped {path}"

    def outcome(ask: Any) -> str:
        results = [b for b in ask.turns[-1].blocks if hasattr(b, "output")]
        return " and ".join(result.output for result in results)

    both = [Call("a", "wipe", {"path": "/a"}), Call("b", "wipe", {"path": "/b"})]
    model = scripted(["I wipe them.", *both], *(steps or (outcome,)))
    return Agent(name="cleaner", model=model, tools=[wipe])


@ERAS
def test_person_is_asked_about_each_call_and_the_agent_goes_on(
    serve: Any, human: Any, era: str
) -> None:
    async def run() -> None:
        ran: list[str] = []
        yes = human("accept", approve=True)
        async with (
            serve(agent=cleaner(ran)) as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            result = await client.call_tool("chat", WIPE)
            assert text(result) == "I wipe them.\n\nwiped /a and wiped /b"
            assert "pending" not in result.structured_content
            assert result.structured_content["stop_reason"] == "end_turn"
            assert sorted(ran) == ["/a", "/b"]
            assert ['"/a"' in each.message for each in yes.asked] == [True, False]
            assert {row.state for row in await served.proposals()} == {"DONE"}
            assert {row.decision.protocol for row in await served.proposals()} == {"mcp"}

    asyncio.run(run())


@ERAS
def test_call_that_the_person_rejects_is_not_run_and_the_agent_hears_why(
    serve: Any, era: str
) -> None:
    async def run() -> None:
        ran: list[str] = []

        async def answer(context: Any, params: Any) -> types.ElicitResult:
            if '"/a"' in params.message:
                return types.ElicitResult(action="decline", content={"reason": "keep that"})
            return types.ElicitResult(action="accept", content={"approve": True})

        async with (
            serve(agent=cleaner(ran)) as served,
            served.client(era, elicitation_callback=answer) as client,
        ):
            result = await client.call_tool("chat", WIPE)
            assert "wiped /b" in text(result)
            assert ran == ["/b"]
            rows = {row.input["path"]: row for row in await served.proposals()}
            assert rows["/a"].state == "REJECTED"

    asyncio.run(run())


@ERAS
def test_conversation_goes_on_once_its_calls_are_decided_elsewhere(serve: Any, era: str) -> None:
    page = "https://sayso.example/console"

    async def run() -> None:
        ran: list[str] = []
        caller = {"run": "caller"}
        async with (
            serve(agent=cleaner(ran), page=page, approvals_=caller) as served,
            served.client(era) as client,
        ):
            for _ in range(2):
                result = await client.call_tool("chat", WIPE)
                assert not result.is_error
                assert page in text(result)
                assert len(result.structured_content["pending"]) == 2
                assert len(await served.proposals()) == 2
            first, second = sorted(await served.proposals(), key=lambda row: row.index)
            decide = served.host.calls.decide
            await decide(first.id, Caller("cli"), approved=True, run=False)
            # While one is open the conversation does not go on, and nobody else starts the other.
            assert ran == []
            await decide(second.id, Caller("cli"), approved=False, reason="no", run=False)
            result = await client.call_tool("chat", WIPE)
            assert "wiped /a" in text(result)
            assert "no" in text(result)
            assert ran == ["/a"]
            assert "pending" not in result.structured_content

    asyncio.run(run())


@ERAS
def test_new_message_of_the_same_conversation_goes_on_after_the_decision(
    serve: Any, era: str
) -> None:
    def received(ask: Any) -> str:
        results = [b.output for turn in ask.turns for b in turn.blocks if hasattr(b, "output")]
        return f"{len(results)} results, {len(ask.turns)} turns"

    async def run() -> None:
        ran: list[str] = []
        agent = cleaner(ran, "Somebody has to decide.", received, received)
        async with serve(agent=agent) as served, served.client(era) as client:
            result = await client.call_tool("chat", WIPE)
            history = [
                {"role": "user", "content": WIPE["message"]},
                {"role": "assistant", "content": result.structured_content["content"]},
            ]
            more = {"message": "done?", "history": history}
            # Nobody has decided, so the message is answered like any other.
            assert text(await client.call_tool("chat", more)) == "Somebody has to decide."
            assert ran == []
            for row in await served.proposals():
                await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            reported = text(await client.call_tool("chat", more))
            assert reported.startswith("2 results")
            assert sorted(ran) == ["/a", "/b"]

    asyncio.run(run())


def test_client_that_waits_no_longer_finds_its_conversation_again(serve: Any) -> None:
    async def run() -> None:
        ran: list[str] = []
        asked = 0

        async def answer(context: Any, params: Any) -> types.ElicitResult:
            nonlocal asked
            asked += 1
            if asked == 1:
                await asyncio.Event().wait()
            return types.ElicitResult(action="accept", content={"approve": True})

        async with (
            serve(agent=cleaner(ran)) as served,
            served.client("legacy", elicitation_callback=answer) as client,
        ):
            with pytest.raises(MCPError, match="timed out"):
                await client.call_tool("chat", WIPE, read_timeout_seconds=1)
            assert {row.state for row in await served.proposals()} == {"PENDING"}
            assert "wiped /a and wiped /b" in text(await client.call_tool("chat", WIPE))
            assert len(await served.proposals()) == 2

    asyncio.run(run())


def test_chat_that_its_client_cancels_begins_anew(serve: Any, eventually: Any) -> None:
    async def run() -> None:
        ran: list[str] = []
        asked = asyncio.Event()

        async def answer(context: Any, params: Any) -> types.ElicitResult:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        agent = cleaner(ran, "Nothing to do.")
        async with serve(agent=agent) as served:
            async with served.client("legacy", elicitation_callback=answer) as client:
                call = asyncio.ensure_future(client.call_tool("chat", WIPE))
                await asyncio.wait_for(asked.wait(), 60)
                call.cancel()
                await asyncio.wait([call])

                async def withdrawn() -> bool:
                    return {r.state for r in await served.proposals()} == {"REJECTED"}

                await eventually(withdrawn)
                assert text(await client.call_tool("chat", WIPE)) == "Nothing to do."
            assert ran == []

    asyncio.run(run())


def test_replayed_answers_run_nothing_twice_and_fit_no_other_message(serve: Any, raw: Any) -> None:
    async def run() -> None:
        ran: list[str] = []
        async with serve(agent=cleaner(ran, "Done.")) as served:
            client = raw(served.url)
            asked = (await client.call("chat", WIPE))["result"]
            assert set(asked["inputRequests"]) == {r.id for r in await served.proposals()}
            yes = {"action": "accept", "content": {"approve": True}}
            answers = {
                "requestState": asked["requestState"],
                "inputResponses": dict.fromkeys(asked["inputRequests"], yes),
            }
            other = await client.call("chat", {"message": "wipe all"}, **answers)
            assert other["error"]["code"] == -32602
            assert ran == []
            done = (await client.call("chat", WIPE, **answers))["result"]
            assert done["structuredContent"]["content"] == "I wipe them.\n\nDone."
            again = (await client.call("chat", WIPE, **answers))["result"]
            assert again["structuredContent"] == done["structuredContent"]
            assert sorted(ran) == ["/a", "/b"]

    asyncio.run(run())


@ERAS
def test_command_is_asked_for_and_runs(serve: Any, human: Any, era: str) -> None:
    async def run() -> None:
        yes = human("accept", approve=True)
        suggested = Call("c", "suggest_commands", {"commands": [{"command": "echo hello"}]})
        agent = Agent(name="ops", model=scripted([suggested], "Ran."), commands=LocalShell())
        async with (
            serve(agent=agent) as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            result = await client.call_tool("chat", {"message": "say hello"})
            [question] = yes.asked
            assert "this command" in question.message
            assert "echo hello" in question.message
            [row] = await served.proposals()
            assert (row.kind, row.state) == ("command", "DONE")
            assert "Ran." in text(result)

    asyncio.run(run())


@ERAS
@pytest.mark.parametrize("approvals", ["inbox", "deny"])
def test_client_is_not_asked_where_its_answer_does_not_count(
    serve: Any, human: Any, era: str, approvals: str
) -> None:
    async def run() -> None:
        ran: list[str] = []
        yes = human("accept", approve=True)
        agent = cleaner(ran, "Again.")
        async with (
            serve(agent=agent, approvals=approvals, approvals_={"run": "caller"}) as served,
            served.client(era, elicitation_callback=yes) as client,
        ):
            result = await client.call_tool("chat", WIPE)
            assert json.dumps({"path": "/a"}) in text(result)
            for row in await served.proposals():
                await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            await client.call_tool("chat", WIPE)
            assert (yes.asked, len(ran)) == ([], 2 if approvals == "inbox" else 0)

    asyncio.run(run())


@ERAS
def test_client_that_opens_the_page_waits_there_for_the_decisions(
    serve: Any, human: Any, era: str
) -> None:
    async def run() -> None:
        ran: list[str] = []
        opened = human("accept")
        page = "https://sayso.example/console"
        async with (
            serve(agent=cleaner(ran), approvals="inbox", page=page) as served,
            served.client(era, elicitation_callback=opened) as client,
        ):
            call = asyncio.ensure_future(client.call_tool("chat", WIPE))
            decided: set[str] = set()
            while not call.done():
                for asked in list(opened.asked):
                    id_ = asked.url.partition("#")[2]
                    if id_ not in decided:
                        decided.add(id_)
                        decide = served.host.calls.decide
                        await decide(id_, Caller("console"), approved=True, run=False)
                await asyncio.sleep(0.02)
            assert "wiped /a and wiped /b" in text(await call)

    asyncio.run(run())


@ERAS
@pytest.mark.parametrize("more", [False, True], ids=["asked again", "said more"])
def test_conversation_goes_on_by_itself_once_its_calls_are_decided_elsewhere(
    serve: Any, eventually: Any, era: str, more: bool
) -> None:
    async def run() -> None:
        ran: list[str] = []
        async with (
            serve(agent=cleaner(ran), approvals="inbox") as served,
            served.client(era) as client,
        ):
            first = await client.call_tool("chat", WIPE)
            for row in await served.proposals():
                await served.host.calls.decide(row.id, Caller("cli"), approved=True, run=False)
            await eventually(lambda: len(served.host.agent.model.asks) == 2)
            assert sorted(ran) == ["/a", "/b"]
            if more:
                said = [{"role": "user", "content": WIPE["message"]}]
                said.append({"role": "assistant", "content": text(first)})
                await client.call_tool("chat", {"message": "and?", "history": said})
                assert "wiped /a" in str(served.host.agent.model.asks[-1].turns)
            else:
                again = await client.call_tool("chat", WIPE)
                assert "wiped /a and wiped /b" in text(again)
                assert len(served.host.agent.model.asks) == 2, "the reply was there"
            assert sorted(ran) == ["/a", "/b"]

    asyncio.run(run())


@ERAS
def test_conversation_goes_on_with_the_input_that_its_approver_changed(
    serve: Any, eventually: Any, era: str
) -> None:
    ran: list[str] = []

    @tool(requires_approval=True, editable=True)
    def wipe(path: str) -> str:
        """Wipe a folder."""
        ran.append(path)
        return f"wiped {path}"

    model = scripted([Call("a", "wipe", {"path": "/a"})], "Wiped.")
    agent = Agent(name="cleaner", model=model, tools=[wipe])

    async def run() -> None:
        async with serve(agent=agent, approvals="inbox") as served, served.client(era) as client:
            await client.call_tool("chat", WIPE)
            [row] = await served.proposals()
            changed = {"path": "/b"}
            decide = served.host.calls.decide
            await decide(
                row.id, Caller("cli"), approved=True, input=row.input, edited=changed, run=False
            )
            await eventually(lambda: ran == ["/b"])
            assert "Wiped." in text(await client.call_tool("chat", WIPE))

    asyncio.run(run())


@pytest.mark.parametrize("idempotent", [True, False])
def test_conversation_goes_on_with_an_unknown_outcome_and_runs_nothing_again(
    idempotent: bool,
) -> None:
    unknown = Proposal(
        *("a", "tool_call", "delete", {}, "t", 0, "a", 0.0, 1.0),
        state="INDETERMINATE",
        idempotent=idempotent,
    )
    standing = Standing([unknown], {})
    assert not standing.is_over
    (stated,) = standing.decisions
    # An approval would run an idempotent call a second time.
    assert (stated["id"], stated["execute"]) == ("a", not idempotent)
