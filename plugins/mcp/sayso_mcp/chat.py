"""The tool `chat`: a turn with the agent, and further turns once its calls are decided.

Its input cannot approve anything: a person answers a question, or decides elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import mcp_types as types

from sayso import (
    AgentMessage,
    ChatRequest,
    Done,
    ErrorEvent,
    Event,
    Host,
    IntermittentUpdate,
    Proposal,
    Session,
    TextDelta,
    Tool,
    ToolInputError,
    fold,
)
from sayso_mcp.calls import Result, ToolCalls
from sayso_mcp.content import said
from sayso_mcp.conversations import Conversations, Held, Standing, Wire, key_of
from sayso_mcp.peers import Context, caller_of, is_modern, peer_of
from sayso_mcp.progress import Progress, kept_alive, progress_of
from sayso_mcp.questions import Answer, answer_of, name_of
from sayso_mcp.waiting import ways

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent."},
        "history": {
            "type": "array",
            "description": "Earlier messages of the conversation, oldest first.",
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string", "enum": ["user", "assistant"]},
                    "content": {"type": "string"},
                },
                "required": ["role", "content"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}

_LONG = 3600.0
_PENDING = {"id", "type", "name", "input", "intent", "description"}
"""Fields of a pending call that the client is shown."""


class Chat:
    """The tool `chat` of one service."""

    def __init__(self, host: Host, settings: Any, calls: ToolCalls) -> None:
        self.host = host
        self.settings = settings
        self.calls = calls
        self.conversations = Conversations()
        agent = host.agent
        about = f"\n\n{agent.description}" if agent.description else ""
        self.tool: Tool = Tool(
            _shape,
            name=settings.chat,
            input_schema=SCHEMA,
            title=f"Talk to {agent.name}",
            description=(
                f"Talk to the agent {agent.name!r}. Calls that need approval run once a person has "
                "approved them: here, where the client can ask, else where the result says. "
                f"Call again with the same message and history to go on after that.{about}"
            ),
        )

    async def call(self, context: Context, params: types.CallToolRequestParams) -> Result:
        """The agent's reply, or the questions that the client must answer first. The text is also
        sent as progress while it is written."""
        try:
            self.tool.validate(params.arguments or {})
            return await _Talk(self, context, params).result()
        except ToolInputError as error:
            return said(f"Error: {error}", error=True)
        except _Failed as error:
            return said(f"Error: {error}", error=True)


class _Failed(Exception):
    """The turn failed; the message is for the client."""


class _Talk:
    """One call of `chat`."""

    def __init__(self, chat: Chat, context: Context, params: types.CallToolRequestParams) -> None:
        given = params.arguments or {}
        self.chat = chat
        self.host = chat.host
        self.context = context
        self.params = params
        self.caller = caller_of(context)
        self.peer = peer_of(context)
        self.sending = progress_of(context)
        self.person = chat.calls.person(context, self.sending)
        self.said: list[Wire] = [
            *given.get("history", []),
            {"role": "user", "content": given["message"]},
        ]
        self.key = key_of(self.caller, self.said)

    async def result(self) -> Result:
        held = await self._first_reply()
        while held.waiting and self.chat.settings.approvals != "deny":
            answers = await self._answers(held)
            if isinstance(answers, types.InputRequiredResult):
                return answers
            standing = await Standing.of(held, self.host, self.caller, answers)
            if not standing.decisions:
                break
            held = await self._turn(held.messages, "", standing.decisions, held.texts)
        if held.waiting and self.chat.settings.approvals != "deny":
            self.chat.conversations.watch(held, self._going_on)
        pending = [each for each in held.reply.data.approvals if each.id in held.waiting]
        result = _result(held, self._ways)
        return self.chat.calls.with_card(self.context, result, pending) if pending else result

    async def _going_on(self, held: Held) -> None:
        """Continue the conversation once others have decided on its calls, so that the next `chat`
        has the reply."""
        # The caller of this `chat` has its answer already.
        self.sending = None
        while held.waiting:
            rows = await self.host.calls.settled(held.waiting, self.caller, _LONG)
            standing = Standing(rows, {})
            if standing.open:
                continue
            if not standing.decisions:
                return
            held = await self._turn(held.messages, "", standing.decisions, held.texts)
            held.unheard = True

    async def _first_reply(self) -> Held:
        """The conversation after the agent's first reply to this call, or as the same call left it
        earlier.

        A new message continues a conversation once all its calls are decided. Before that, it is
        answered like any other request, by the messages it has.
        """
        if is_modern(self.context) and self.params.request_state is not None:
            return self._asked_before(self.params.request_state)
        held, more = await self._found()
        if held is not None and held.unheard:
            held.unheard = False
            if not more:
                return held
            self.chat.conversations.drop(held)
            return await self._turn([*held.messages, *more[:-1]], more[-1]["content"])
        if held is not None and self.chat.settings.approvals != "deny":
            standing = await Standing.of(held, self.host, self.caller)
            if not standing.is_over and not more:
                return held
            if not standing.is_over and not standing.open:
                before, text = [*held.messages, *more[:-1]], more[-1]["content"]
                answered = await self._turn(before, text, standing.decisions)
                self.chat.conversations.drop(held)
                return answered
        return await self._turn(self.said[:-1], self.said[-1]["content"])

    async def _found(self) -> tuple[Held | None, list[Wire]]:
        """The held conversation and its new messages. If a turn of it continues by itself, that is
        awaited first."""
        conversations = self.chat.conversations
        held, more = conversations.find(self.caller, self.said)
        if held is None or not held.waiting:
            return held, more
        if not (await Standing.of(held, self.host, self.caller)).open:
            async with kept_alive(self.sending, "the conversation continues"):
                await conversations.gone_on(held)
        return conversations.find(self.caller, self.said)

    def _asked_before(self, key: str) -> Held:
        """The conversation of an earlier round, found by the state that the client sent back."""
        held = self.chat.conversations.known(key)
        if held is None:
            raise ToolInputError("this conversation is not known any more; send the message anew")
        return held

    async def _answers(self, held: Held) -> dict[str, Answer] | types.InputRequiredResult:
        """The person's decisions on the pending calls, if the client can ask for them. From
        2026-07-28 on: the questions, if they have not been asked yet."""
        standing = await Standing.of(held, self.host, self.caller)
        rows = [row for row in standing.open if self.person.reads(row)]
        if not is_modern(self.context):
            return await self._asked(rows)
        given = self.params.input_responses or {}
        if self.params.request_state != held.key or any(name_of(row) not in given for row in rows):
            given = {}
        if rows and not given:
            return types.InputRequiredResult(
                input_requests={name_of(row): self.person.question(row) for row in rows},
                request_state=held.key,
            )
        answers: dict[str, Answer] = {}
        for row in rows:
            answer = given[name_of(row)]
            if self.person.fills_forms and isinstance(answer, types.ElicitResult):
                answers[row.id] = answer_of(answer, row.seen)
            elif isinstance(answer, types.ElicitResult) and answer.action == "accept":
                await self.person.at_page(row)
        return answers

    async def _asked(self, rows: list[Proposal]) -> dict[str, Answer]:
        """The person's answers up to 2025-11-25: one question after another while the call
        waits."""
        answers: dict[str, Answer] = {}
        request = str(self.context.request_id)
        self.peer.asked[request] = [row.id for row in rows]
        for row in rows:
            answer = await self.person.asked(row)
            if answer is not None:
                answers[row.id] = answer
            elif await self._is_open(row):
                break
        # If the request is cancelled, the entry stays: the handler of the cancellation needs it to
        # withdraw the calls.
        self.peer.asked.pop(request, None)
        return answers

    async def _is_open(self, row: Proposal) -> bool:
        found = await self.host.calls.look(row.id, self.caller)
        return found is not None and found.state == "PENDING"

    async def _turn(
        self,
        before: list[Wire],
        text: str,
        decisions: Sequence[Wire] = (),
        texts: Sequence[str] = (),
    ) -> Held:
        """The conversation after the agent's reply to `text` and the decisions."""
        data: Wire = {"approvals": list(decisions)} if decisions else {}
        if (state := self.peer.session.dump()) is not None:
            data["session"] = state
        newest: Wire = {"role": "user", "content": text} | ({"data": data} if data else {})
        messages = [*before, newest]
        if len(messages) > self.host.config.limits.messages:
            raise _Failed("the history has too many messages")
        reply, stop_reason = await self._reply(ChatRequest.model_validate({"messages": messages}))
        if reply.data.session is not None:
            self.peer.session = Session(reply.data.session)
        texts = [*texts, reply.content] if reply.content else texts
        answered = {"role": "assistant", "content": reply.content}
        kept = reply.data.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        waiting = [approval.id for approval in reply.data.approvals if not approval.execute]
        messages.append({**answered, "data": kept})
        held = Held(self.key, messages, reply, stop_reason, waiting, list(texts))
        if waiting or decisions:
            self.chat.conversations.hold(held)
        return held

    async def _reply(self, request: ChatRequest) -> tuple[AgentMessage, str]:
        """The reply of one turn, and why it stopped."""
        stream = self.host.stream(request, self.caller)
        # Collected by the reply's observer; a long turn may send a hundred thousand chunks and
        # status lines.
        text: list[str] = []
        events: list[Event] = []
        try:
            while waiting := await stream.ready():
                text += [e.text for e in waiting if isinstance(e, TextDelta)]
                events += [e for e in waiting if not isinstance(e, TextDelta | IntermittentUpdate)]
                if self.sending is not None:
                    await _report(self.sending, waiting)
        finally:
            await stream.aclose()
        end = events[-1]
        if isinstance(end, ErrorEvent):
            incident = f" (incident {end.incident})" if end.incident else ""
            raise _Failed(f"{end.words}{incident}")
        assert isinstance(end, Done)
        return fold([TextDelta("".join(text)), *events]), end.stop_reason

    @property
    def _ways(self) -> str:
        """A sentence for the client on how the conversation continues after a decision."""
        settings = self.chat.settings
        if settings.approvals == "deny":
            return "They are decided elsewhere, and do not run over MCP."
        return (
            f"{ways('ID', settings.page)}\nThen call {self.chat.tool.name!r} again with the same "
            "message and history: it goes on."
        )


async def _report(sending: Progress, events: list[Event]) -> None:
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    for event in events:
        if isinstance(event, IntermittentUpdate) and event.text:
            await sending.report(event.text)
    if text:
        await sending.report(text)


def _result(held: Held, ways: str) -> types.CallToolResult:
    pending = [
        approval.model_dump(include=_PENDING)
        for approval in held.reply.data.approvals
        if approval.id in held.waiting
    ]
    content = "\n\n".join(held.texts)
    shown = [content] if content or not pending else []
    if pending:
        heading = "Waiting for approval; none of these has run:"
        shown.append("\n".join([heading, *map(_line, pending), ways]))
    structured: dict[str, Any] = {"content": content, "stop_reason": held.stop_reason}
    if pending:
        structured["pending"] = pending
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in shown], structured_content=structured
    )


def _line(pending: dict[str, Any]) -> str:
    why = f" ({pending['intent']})" if pending["intent"] else ""
    return f"- {pending['id']}: {pending['name']} {json.dumps(pending['input'])}{why}"


def _shape(**_: Any) -> None:
    """A placeholder function: of this tool only the name and the schema are used."""
