"""One tool call over MCP: it runs through the core's gate; `approvals` says who approves a gated
one."""

from __future__ import annotations

import asyncio
import logging
from functools import cached_property
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from sayso import (
    Busy,
    Caller,
    InvalidRequest,
    Outcome,
    Proposal,
    StillRunning,
    ToolInputError,
)
from sayso_mcp import questions, waiting
from sayso_mcp.calls import Result, ToolCalls
from sayso_mcp.content import check_json, result_of, said, unknown, without_nulls
from sayso_mcp.endings import ended, noted
from sayso_mcp.outputs import output_schema, typed
from sayso_mcp.peers import Context, Peer, caller_of, is_modern, peer_of
from sayso_mcp.progress import progress_of, status_lines
from sayso_mcp.questions import Answer

logger = logging.getLogger("sayso.mcp")
INTENT = "sayso/intent"
"""The key of `_meta` with which a client may say why it calls."""
_AROUND = 2
"""Levels of JSON that the request adds around the arguments of a call."""


async def call_tool(
    calls: ToolCalls, context: Context, params: types.CallToolRequestParams
) -> Result:
    """The result of one `tools/call`, or the question that its client must answer first."""
    tools = calls.host.agent.tools
    if params.name not in tools:
        raise MCPError(code=types.INVALID_PARAMS, message=f"unknown tool: {params.name!r}")
    result = await _Call(calls, context, params).result()
    if isinstance(result, types.CallToolResult):
        return typed(result, output_schema(tools[params.name]))
    return result


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
        self.tool = calls.host.agent.tools[params.name]
        self.input = without_nulls(params.arguments or {}, self.tool.input_schema)
        self.caller: Caller = caller_of(context)
        self.peer: Peer = peer_of(context)
        self.sending = progress_of(context)
        self.person = calls.person(context, self.sending)
        self.known = calls.waiting.get(waiting.who(self.caller))
        self.runs_on = False
        """Whether the client was told that its call still runs, so that it has yet to get the
        outcome."""

    @cached_property
    def key(self) -> str:
        """The key under which the same call finds its proposal; the input must have been
        checked."""
        return waiting.digest(self.name, self.input)

    async def result(self) -> Result:
        try:
            check_json(self.input, self.host.config.limits.nesting - _AROUND)
            verdict = await self.host.calls.verdict(self.name, self.input)
            if verdict == "allow":
                return await self._run()
            if verdict == "deny":
                return said(f"Error: {self.name!r} may not run with this input", error=True)
            if self.settings.approvals != "deny":
                return await self._gated()
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
            async with status_lines(self.sending) as update:
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
        structured = output_schema(self.tool) is not None
        modern = is_modern(self.context)
        return result_of(outcome, limit=limit, modern=modern, structured=structured)

    async def _propose(self) -> Proposal:
        meta: Any = self.context.meta or {}
        intent = meta.get(INTENT)
        return await self.host.calls.propose(
            self.name,
            self.input,
            self.caller,
            intent=intent[:1000] if isinstance(intent, str) else None,
        )

    async def _gated(self) -> Result:
        """Have a person decide: at the client if it can ask them, otherwise on Sayso's page.

        From 2026-07-28 on the question is a result, and the answer comes with a second call whose
        sealed state brings the proposal's id back, bound to this tool and these arguments.
        """
        if not self._has_a_way:
            return said(f"Error: {waiting.no_way(self.name)}", error=True)
        state, answer = self._round()
        if state is not None and answer is not None and self.person.fills_forms:
            id_, seen = questions.named(state)
            return await self._decided(id_, questions.answer_of(answer, seen))
        row = await self._proposal(state)
        if row.state == "PENDING" and self.person.reads(row):
            if not is_modern(self.context):
                given = await self._asked(row)
                if given is not None:
                    return await self._decided(row.id, given)
            elif state is None or answer is None:
                request = self.person.question(row)
                return types.InputRequiredResult(
                    input_requests={"approval": request}, request_state=questions.name_of(row)
                )
            elif answer.action == "accept":
                await self.person.at_page(row)
            row = await self.host.calls.look(row.id, self.caller) or row
        if row.state == "PENDING":
            self.known.leave(self.key, row.id)
            pending = waiting.pending(row, self.settings.page)
            return self.calls.with_card(self.context, pending, [row])
        return await self._delivered(row.id, await self._standing(row))

    @property
    def _has_a_way(self) -> bool:
        """Whether anybody could decide at all; if the ledger is shared, this may be another
        process."""
        grants = self.host.config.approvals.grants
        elsewhere = self.settings.approvals == "inbox" or self.settings.page or grants
        return bool(self.person.is_there or elsewhere or self.host.shares_ledger)

    def _round(self) -> tuple[str | None, types.ElicitResult | None]:
        """The proposal's id from an earlier round, and the answer sent with this one."""
        if not is_modern(self.context):
            return None, None
        answer = (self.params.input_responses or {}).get("approval")
        return self.params.request_state, (
            answer if isinstance(answer, types.ElicitResult) else None
        )

    async def _proposal(self, state: str | None) -> Proposal:
        """The proposal of the earlier round, or the one this call already has, or a new one.

        While the client asks its person about a proposal, no other call uses it: the same call sent
        in parallel gets a proposal of its own until the first one stops waiting.
        """
        async with self.known.lock:
            row = await (self._open() if state is None else self._of_round(state))
            row = row or await self._propose()
            if self.person.fills_forms:
                self.known.forget(self.key, row.id)
            else:
                self.known.ids[self.key] = row.id
            return row

    async def _open(self) -> Proposal | None:
        await self.known.read(self.host, self.caller)
        id_ = self.known.ids.get(self.key)
        row = None if id_ is None else await self.host.calls.look(id_, self.caller)
        asked_about = self.person.fills_forms and id_ not in self.known.no_longer_asked
        return None if row is not None and row.state == "PENDING" and asked_about else row

    async def _of_round(self, state: str) -> Proposal:
        id_, _ = questions.named(state)
        row = await self.host.calls.look(id_, self.caller)
        if row is None or row.name != self.name or row.asked != self.input:
            raise ToolInputError("this approval is not known, or is for another call")
        return row

    async def _asked(self, row: Proposal) -> Answer | None:
        """The person's answer up to protocol 2025-11-25, where the question is a request to the
        client while its call waits. None if the person gave no answer; the proposal then stays
        open."""
        request = str(self.context.request_id)
        self.peer.asked[request] = [row.id]
        try:
            answer = await self.person.asked(row)
        except asyncio.CancelledError:
            # Unless the client cancelled the call itself, which removes the entry.
            if request in self.peer.asked:
                self.known.leave(self.key, row.id)
                logger.info("the client of call %s is gone; the call can still be decided", row.id)
            raise
        self.peer.asked.pop(request, None)
        if answer is None:
            logger.info("the question for call %s has no answer; the call stays open", row.id)
        return answer

    async def _decided(self, id_: str, answer: Answer) -> types.CallToolResult:
        """Record the answer, run what it approves, and show how the call stands."""
        try:
            return await self._delivered(id_, await self._carried_out(id_, answer))
        except asyncio.CancelledError:
            self.known.leave(self.key, id_)
            raise

    async def _carried_out(self, id_: str, answer: Answer) -> types.CallToolResult:
        """Decide on the call and run it."""
        ran: list[Outcome] = []
        limit = self.host.config.limits.turn_time
        asked = await self.host.calls.look(id_, self.caller)
        # The client sends the input as it was proposed, and the person has seen the revision that
        # the question showed. Any other input is refused by the ledger.
        same = asked is not None and asked.asked == self.input
        async with status_lines(self.sending) as update:
            work = self.host.calls.decide(
                id_,
                self.caller,
                approved=answer.approved,
                reason=answer.reason,
                input=None if same else self.input,
                seen=answer.seen,
                session=self.peer.session,
                update=update,
                wait=limit,
                ran=ran.append,
            )
            try:
                async with asyncio.timeout(limit) as timer:
                    # Shielded: the decision is carried out even if the request is cancelled.
                    row = await asyncio.shield(self.calls.keep(work))
            except TimeoutError:
                if not timer.expired():
                    raise
                return self._still(
                    f"the approved call {id_} ran longer than {self._limit} seconds; its end is "
                    "recorded when it comes"
                )
            except InvalidRequest as error:
                return await self._refused(id_, error)
            except StillRunning:
                return self._still(f"the approved call {id_} is still running")
        if row.state == "APPROVED" and answer.approved:
            why = self.host.record.standing(row) or (
                f"the call {id_} was approved and has not begun: no thread was free for it in "
                "time, the service stood still, or it needs a credential that it had when it was "
                "proposed"
            )
            return self._still(f"{why}; call the tool again")
        return noted(row, self._shown(ran[0])) if ran else self._ended(row)

    async def _refused(self, id_: str, error: InvalidRequest) -> types.CallToolResult:
        """Why a decision does not count; for a call that was already decided, how it stands."""
        row = await self.host.calls.look(id_, self.caller)
        if row is not None and row.state != "PENDING" and row.asked == self.input:
            return self._ended(row)
        if row is not None and row.revision > 1 and row.asked == self.input:
            return self._still(f"{error.items[0]['msg']}; call the tool again to be asked about it")
        return said(f"Not run: {error.items[0]['msg']}", error=True)

    def _ended(self, row: Proposal) -> types.CallToolResult:
        if row.state == "PENDING":
            return self._still(f"not run yet: {self.host.record.standing(row)}")
        return ended(row) or self._still(f"the approved call {row.id} is still running")

    def _still(self, text: str) -> types.CallToolResult:
        self.runs_on = True
        return said(f"Error: {text}", error=True)

    async def _standing(self, row: Proposal) -> types.CallToolResult:
        """How a call stands. If it was approved and has not run, run it now."""
        if row.state in ("APPROVED", "EXECUTING"):
            # It was approved elsewhere, perhaps with an edited input; run the input that was
            # approved.
            return await self._carried_out(row.id, Answer(True, None, row.seen))
        return self._ended(row)

    async def _delivered(self, id_: str, result: types.CallToolResult) -> types.CallToolResult:
        """The result. Unless it reaches the client, the same call will find the proposal again."""
        if await self._reaches_nobody():
            self.known.leave(self.key, id_)
        else:
            # The same call may have made a new proposal meanwhile, so forget only this one.
            self.known.forget(self.key, id_)
        return result

    async def _reaches_nobody(self) -> bool:
        """Whether the client will not learn the outcome from this reply: the call still runs, or
        the connection is closed."""
        return self.runs_on or await self.calls.is_gone(self.context)
