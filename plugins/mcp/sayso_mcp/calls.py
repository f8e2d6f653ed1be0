"""Tool calls over MCP: through the core's gate, gated ones as `approvals` says."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from starlette.requests import Request

from sayso import (
    Busy,
    Caller,
    Host,
    InvalidRequest,
    Outcome,
    Proposal,
    StillRunning,
    ToolInputError,
)
from sayso_mcp import questions, waiting
from sayso_mcp.content import check_json, result_of, said, unknown
from sayso_mcp.peers import Context, Peer, Remembered, caller_of, is_modern, peer_of
from sayso_mcp.progress import progress
from sayso_mcp.questions import Answer
from sayso_mcp.waiting import Waiting

logger = logging.getLogger("sayso.mcp")
Result = types.CallToolResult | types.InputRequiredResult
INTENT = "sayso/intent"
"""The key of `_meta` under which a client may say why it calls."""
_LOOK = 0.3
_AROUND = 2
"""Levels of JSON around the arguments of a call."""


class ToolCalls:
    """Calls of the agent's tools. A gated one is recorded before anybody is asked, and runs at
    most once, by the ledger, whatever is replayed."""

    def __init__(self, host: Host, settings: Any) -> None:
        self.host = host
        self.settings = settings
        self.stopping = asyncio.Event()
        self.running = 0
        self.waiting = Remembered(Waiting)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def call(self, context: Context, params: types.CallToolRequestParams) -> Result:
        """The result of one `tools/call`, or the question that its client must answer first."""
        if params.name not in self.host.agent.tools:
            raise MCPError(code=types.INVALID_PARAMS, message=f"unknown tool: {params.name!r}")
        return await _Call(self, context, params).result()

    def keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` to its end, also without anybody waiting."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.debug("a call over MCP ended with an error", exc_info=error)

    async def close(self, seconds: float) -> None:
        """Let decisions that nobody waits for be carried out; for the end of the service."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)


class _Call:
    """One `tools/call`."""

    def __init__(
        self, calls: ToolCalls, context: Context, params: types.CallToolRequestParams
    ) -> None:
        self.calls = calls
        self.host = calls.host
        self.settings = calls.settings
        self.context = context
        self.params = params
        self.name = params.name
        self.input = params.arguments or {}
        self.caller: Caller = caller_of(context)
        self.peer: Peer = peer_of(context)
        self.runs_on = False
        """Whether the client was told that its call still runs: it has yet to learn the end."""

    async def result(self) -> Result:
        try:
            check_json(self.input, self.host.config.limits.nesting - _AROUND)
            verdict = await self.host.calls.verdict(self.name, self.input)
            if verdict == "allow":
                return await self._run()
            if verdict == "deny":
                return said(f"Error: {self.name!r} may not run with this input", error=True)
            match self.settings.approvals:
                case "client" if is_modern(self.context):
                    return await self._ask_by_rounds()
                case "client":
                    return await self._ask_live()
                case "console":
                    return await self._wait_for_page()
            return said(
                f"Error: the tool {self.name!r} needs approval, which is not given over MCP here",
                error=True,
            )
        except ToolInputError as error:
            return said(f"Error: {error}", error=True)
        except MCPError:
            raise
        except Exception as error:
            failure = self.host.failure(error)
            incident = f" (incident {failure.incident})" if failure.incident else ""
            return said(f"Error: {failure.message}{incident}", error=True)

    async def _run(self) -> types.CallToolResult:
        if self.calls.running >= self.host.config.limits.turns:
            raise Busy
        self.calls.running += 1
        try:
            async with progress(self.context) as update:
                async with asyncio.timeout(self.host.config.limits.turn_time) as limit:
                    outcome = await self.host.calls.run(
                        self.name,
                        self.input,
                        self.caller,
                        session=self.peer.session,
                        update=update,
                    )
        except TimeoutError:
            if not limit.expired():
                raise
            return unknown(f"the tool ran longer than {self._limit} seconds")
        finally:
            self.calls.running -= 1
        return self._shown(outcome)

    @property
    def _limit(self) -> str:
        return f"{self.host.config.limits.turn_time:g}"

    def _shown(self, outcome: Outcome) -> types.CallToolResult:
        limit = self.host.config.limits.tool_output
        return result_of(outcome, limit=limit, modern=is_modern(self.context))

    async def _propose(self) -> Proposal:
        meta: Any = self.context.meta or {}
        intent = meta.get(INTENT)
        return await self.host.calls.propose(
            self.name,
            self.input,
            self.caller,
            intent=intent[:1000] if isinstance(intent, str) else None,
        )

    async def _ask_by_rounds(self) -> Result:
        """From 2026-07-28 on: the question is a result, the answer comes with a second call.

        The sealed state brings the proposal's id back, bound to this tool and these arguments.
        """
        id_ = self.params.request_state
        answer = (self.params.input_responses or {}).get("approval")
        if id_ is not None and isinstance(answer, types.ElicitResult):
            return await self._decided(id_, questions.answer_of(answer))
        if not questions.takes_forms(self.context):
            raise questions.cannot_ask(self.name)
        row = await self._asked(id_) if id_ is not None else await self._propose()
        if row.state != "PENDING":
            return await self._standing(row)
        return types.InputRequiredResult(
            input_requests={"approval": questions.form(row)}, request_state=row.id
        )

    async def _asked(self, id_: str) -> Proposal:
        """The proposal of an earlier round."""
        row = await self.host.calls.look(id_, self.caller)
        if row is None or row.name != self.name or row.asked != self.input:
            raise ToolInputError("this approval is not known, or is for another call")
        return row

    async def _ask_live(self) -> types.CallToolResult:
        """Up to 2025-11-25: the question is a request to the client while its call waits."""
        if not questions.takes_forms(self.context):
            raise questions.cannot_ask(self.name)
        row = await self._propose()
        answer = Answer(False, "the client went away before it was decided")
        try:
            answer = await self._elicit(row)
        except asyncio.CancelledError:
            self.calls.keep(self._decided(row.id, answer))
            raise
        return await self._decided(row.id, answer)

    async def _elicit(self, row: Proposal) -> Answer:
        result = await self._answered(questions.form(row))
        if result is None:
            logger.info("the question for call %s was not answered", row.id)
            return Answer(False, "the question was not answered")
        return questions.answer_of(result)

    async def _answered(self, request: types.ElicitRequest) -> types.ElicitResult | None:
        return await questions.answered(
            self.context, request, self.settings.ask_timeout, self.calls.stopping
        )

    async def _decided(self, id_: str, answer: Answer) -> types.CallToolResult:
        """Record the answer, run what it approves, and show how the call stands."""
        ran: list[Outcome] = []
        asked = await self.host.calls.look(id_, self.caller)
        # The client sent its own words, of which the ledger has what the tool gets.
        same = asked is not None and asked.asked == self.input
        input = asked.input if asked is not None and same else self.input
        async with progress(self.context) as update:
            try:
                async with asyncio.timeout(self.host.config.limits.turn_time) as limit:
                    work = self.host.calls.decide(
                        id_,
                        self.caller,
                        approved=answer.approved,
                        reason=answer.reason,
                        input=input,
                        session=self.peer.session,
                        update=update,
                        wait=self.host.config.limits.turn_time,
                        ran=ran.append,
                    )
                    # It goes on when the request is cancelled meanwhile.
                    row = await asyncio.shield(self.calls.keep(work))
            except TimeoutError:
                if not limit.expired():
                    raise
                return self._still(
                    f"the approved call {id_} ran longer than {self._limit} seconds; its end is "
                    "recorded when it comes"
                )
            except InvalidRequest as error:
                return await self._refused(id_, error)
            except StillRunning:
                return self._still(f"the approved call {id_} is still running")
        return _told(row, self._shown(ran[0])) if ran else self._ended(row)

    async def _refused(self, id_: str, error: InvalidRequest) -> types.CallToolResult:
        """Why a decision does not count; of a call that was decided otherwise, how it stands."""
        row = await self.host.calls.look(id_, self.caller)
        if row is not None and row.state != "PENDING" and row.asked == self.input:
            return self._ended(row)
        return said(f"Not run: {error.items[0]['msg']}", error=True)

    def _ended(self, row: Proposal) -> types.CallToolResult:
        match row.state:
            case "DONE":
                return _told(row, said(row.output or ""))
            case "FAILED" | "INDETERMINATE":
                return _told(row, said(row.output or "Error: the tool failed", error=True))
            case "REJECTED":
                reason = row.decision.reason if row.decision else None
                why = f": {reason}" if reason else ""
                return said(f"Not run: the call was rejected{why}", error=True)
            case "EXPIRED":
                return said("Not run: the approval expired", error=True)
            case "APPROVED":
                text = "Not run: it was approved elsewhere, but not by the answer given here"
                return said(text, error=True)
        return self._still(f"the approved call {row.id} is still running")

    def _still(self, text: str) -> types.CallToolResult:
        self.runs_on = True
        return said(f"Error: {text}", error=True)

    async def _standing(self, row: Proposal) -> types.CallToolResult:
        """How a call stands; one that was approved and has not run, runs now."""
        if row.state in ("APPROVED", "EXECUTING"):
            return await self._decided(row.id, Answer(True, None))
        return self._ended(row)

    async def _wait_for_page(self) -> Result:
        """A decision counts only where Sayso itself took it; the client only learns of it."""
        state = self.params.request_state if is_modern(self.context) else None
        key = waiting.digest(self.name, self.input)
        known = self.calls.waiting.get(waiting.who(self.caller))
        async with known.lock:
            await known.read(self.host, self.caller)
            row = await self._waiting(known.ids.get(key), state)
            known.ids[key] = row.id
        if row.state == "PENDING" and self.settings.page and questions.takes_links(self.context):
            request = questions.link(row, self.settings.page)
            if is_modern(self.context) and state is None:
                return types.InputRequiredResult(
                    input_requests={"approval": request}, request_state=row.id
                )
            if await self._sent_to_page(request):
                row = await self._until_decided(row)
        if row.state == "PENDING":
            return waiting.pending(row)
        result = await self._standing(row)
        # The same call may have asked anew meanwhile.
        if not await self._reaches_nobody() and known.ids.get(key) == row.id:
            del known.ids[key]
        return result

    async def _reaches_nobody(self) -> bool:
        """Whether the client has yet to learn the end: its call runs on, or lost its connection."""
        request: Request | None = self.context.request
        # Over sse the result takes another way than the request, which is answered at once.
        if self.runs_on or request is None or self.settings.transport == "sse":
            return self.runs_on
        return await request.is_disconnected()

    async def _waiting(self, id_: str | None, state: str | None) -> Proposal:
        """The proposal that this call already has, else a new one."""
        if state is not None:
            return await self._asked(state)
        if id_ is not None:
            row = await self.host.calls.look(id_, self.caller)
            if row is not None:
                return row
        return await self._propose()

    async def _sent_to_page(self, request: types.ElicitRequest) -> bool:
        """Whether the human went to the page; that is no decision."""
        if is_modern(self.context):
            answer = (self.params.input_responses or {}).get("approval")
            return isinstance(answer, types.ElicitResult) and answer.action == "accept"
        result = await self._answered(request)
        return result is not None and result.action == "accept"

    async def _until_decided(self, row: Proposal) -> Proposal:
        """The proposal once it is decided, or as it stands after `ask_timeout`."""
        deadline = asyncio.get_running_loop().time() + self.settings.ask_timeout
        while row.state == "PENDING" and not self.calls.stopping.is_set():
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(_LOOK)
            row = await self.host.calls.look(row.id, self.caller) or row
        if not is_modern(self.context) and row.state != "PENDING":
            await self.context.session.send_elicit_complete(row.id, self.context.request_id)
        return row


def _told(row: Proposal, result: types.CallToolResult) -> types.CallToolResult:
    """The result, and after it that it is of another input than the client's."""
    if row.edited is not None:
        words = f"(The approver changed the input to {json.dumps(row.edited)}.)"
        result.content.append(types.TextContent(text=words))
    return result
