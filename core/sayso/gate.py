"""The gate: the one function that runs a tool (design, section 10, "One gate")."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import Any

from sayso.context import RequestContext, Session
from sayso.ledger import State
from sayso.ledger.choices import unknown_outcome
from sayso.ledger.claims import CallNotStarted, Grant
from sayso.policy import Policy, Verdict, forbidden
from sayso.tools import Tool, ToolInputError
from sayso.tools.values import ToolResult, text_of
from sayso.wire.events import ToolExecuted, ToolExecutionFailed
from sayso.wire.masking import cut, error_text, hidden_trace, mask
from sayso.wire.messages import Approval
from sayso.workers.abandoned import MOST, Watched
from sayso.workers.code import UserCode, passed_on
from sayso.workers.loop import may_block_here
from sayso.workers.running import Place, leave_fork

logger = logging.getLogger("sayso.tools")


@dataclass(slots=True, unsafe_hash=True)
class Outcome:
    """The end of a call: DONE, FAILED or INDETERMINATE, its text, seconds, and the raw value.

    `began` is false for a call that was refused before the tool's own code ran.
    """

    state: State
    output: str
    duration: float = 0.0
    value: Any = None
    began: bool = True

    @property
    def failed(self) -> bool:
        """Whether the model gets it as an error."""
        return self.state != "DONE"

    def event(self, call: Approval) -> ToolExecuted | ToolExecutionFailed:
        """The event for handlers; `call` is the call that ran."""
        kind = ToolExecutionFailed if self.failed else ToolExecuted
        return kind(call, self.output, self.duration)


Late = Callable[[Outcome], Awaitable[None]]
_MOMENT = 0.01
"""Seconds for a call that can no longer be withdrawn to report that it starts."""


class NotEnded(Exception):
    """A call has started and is still running, and nobody waits for it any more."""


class Gate:
    """Runs tools: validated, timed, truncated, masked; gated ones only with a grant."""

    def __init__(self, code: UserCode, policy: Policy, *, output_limit: int) -> None:
        self.code = code
        self.policy = policy
        self.output_limit = output_limit
        self.abandoned = code.abandoned

    def known(self, tool: Tool[..., Any], context: RequestContext) -> Verdict | None:
        """The verdict if it does not depend on the input; None if a rule reads inputs."""
        policy = self.policy
        return None if policy.reads_inputs else policy.verdict(tool, None, context.stated_platform)

    async def verdict(
        self, tool: Tool[..., Any], input: Mapping[str, Any], context: RequestContext
    ) -> Verdict:
        """Whether this call runs at once, waits for approval, or is refused."""
        # Reading an input calls user code.
        platform = context.stated_platform
        return await self.code.check(self.policy.verdict, tool, input, platform)

    async def run(
        self,
        tool: Tool[..., Any],
        input: Mapping[str, Any],
        session: Session,
        context: RequestContext,
        grant: Grant | None = None,
        late: Late | None = None,
        place: Place | None = None,
        call_id: str = "",
        until: float = math.inf,
        begin: Callable[[], None] | None = None,
    ) -> Outcome:
        """Run `tool` once and return its outcome.

        Raises only on misuse, CallNotStarted and NotEnded.

        A call that needs approval runs only with the grant for exactly this call, which is spent,
        and in its `place`. If it does not start in the grant's time, or by `until` (monotonic
        seconds), CallNotStarted is raised. If it has started and no timeout ends it, NotEnded is
        raised then. `late` is called with the real outcome of a call that was abandoned as
        INDETERMINATE, or raised NotEnded. A call without a grant has the model's id `call_id`;
        `begin` is called directly before its tool, and may raise CallNotStarted.
        """
        stated = context.stated_platform
        secrets = stated.secrets() if stated is not None else ()
        start = time.perf_counter()
        if tool.takes_context:
            known = (grant.proposal.id, grant.fence) if grant else (call_id or token_hex(16), 0)
            context = context.for_call(*known)
        called = partial(_called, tool, input, session, context)
        what = f"tool {tool.name}"
        full = self.abandoned.full(what)
        watched = Watched(self.abandoned, what, tool.is_async)
        if grant is not None:
            row = grant.proposal
            if place is None or row.name != tool.name or dict(input) != row.runs:
                raise RuntimeError(f"the grant is for another call than {tool.name!r}")
            grant.spend()
            if full:
                return _full(tool)
            run = _Run(tool, grant, secrets, self.output_limit, start, watched)
            begins = partial(called, self._begins(run, context))
            call = self.code.in_place(place, _bound(tool, begins, watched, run.own))
            return await self._timed(run, call, late, until)
        verdict = self.known(tool, context) or await self.verdict(tool, input, context)
        if verdict != "allow":
            raise RuntimeError(f"tool {tool.name!r} needs approval and no grant was given")
        if full:
            return _full(tool)
        if tool.timeout is not None:
            run = _Run(tool, None, secrets, self.output_limit, start, watched, begin)
            bound = _bound(tool, partial(called, run.begin), watched, run.own)
            call = self.code.call(bound, watched=watched)
            return await self._timed(run, call, late, math.inf)
        if begin is not None:
            called = partial(called, begin)
        # A call that cannot be abandoned needs no task of its own.
        try:
            if tool.is_async and may_block_here():
                value = await called()
                text = text_of(value)
                leave_fork()
            elif tool.is_async:
                value, text = await self.code.call(_bound(tool, called, watched))
            else:
                value, text = await self.code.in_thread(
                    _bound(tool, called, watched), watched=watched
                )
        except BaseException as error:
            passing = passed_on(error)
            if not isinstance(passing, Exception):
                watched.abandon()
                raise
            return _Run(tool, grant, secrets, self.output_limit, start, watched).failed(passing)
        return _done(value, text, secrets, self.output_limit, time.perf_counter() - start)

    def _begins(self, run: _Run, context: RequestContext) -> Callable[[], None]:
        """The step before the tool of an approved call, in the place where the tool runs."""
        tool, grant, policy = run.tool, run.grant, self.policy
        assert grant is not None

        def begin() -> None:
            # A rule may be newer than the approval, or forbid the approver's changes.
            if policy.verdict(tool, grant.proposal.runs, context.stated_platform) == "deny":
                raise _Unfit(forbidden(tool.name))
            grant.begin()
            run.begin()

        return begin

    async def _timed(
        self, run: _Run, calling: Coroutine[Any, Any, _Result], late: Late | None, until: float
    ) -> Outcome:
        """The end of the call. It is abandoned when the tool's `timeout` is over, counted from its
        start; without a timeout at `until`, like a call that has not started by then."""
        tool, own = run.tool, run.own
        call = asyncio.ensure_future(calling)
        try:
            while (left := run.left(until)) > 0:
                done, _ = await asyncio.wait({call}, timeout=None if left == math.inf else left)
                if done:
                    return run.ended(call)
        except (asyncio.CancelledError, CallNotStarted):
            call.cancel()
            run.watched.abandon()
            raise
        run.watched.abandon()
        if tool.timeout is None:
            call.add_done_callback(partial(run.report_late, late))
            raise NotEnded
        # Only the tool's own task: a task that resists cancellation still has an outcome.
        for task in own:
            task.get_loop().call_soon_threadsafe(task.cancel)
        call.add_done_callback(partial(run.report_late, late))
        why = f"the tool did not end within its timeout of {tool.timeout:g} s"
        output = unknown_outcome(why, idempotent=tool.idempotent)
        return Outcome("INDETERMINATE", output, run.took)


@dataclass(slots=True)
class _Run:
    """A running call, and the report of its end."""

    tool: Tool[..., Any]
    grant: Grant | None
    secrets: Sequence[str]
    output_limit: int
    start: float
    watched: Watched
    before: Callable[[], None] | None = None
    started: bool = False
    own: list[asyncio.Task[Any]] = field(default_factory=list)
    """The task of an async tool, once that has started."""

    def begin(self) -> None:
        """Count the time from here, because the next step is the tool."""
        if self.before is not None:
            self.before()
        self.start, self.started = time.perf_counter(), True

    def left(self, until: float) -> float:
        """The seconds for which the call is still waited for; infinite without a limit.

        Raises CallNotStarted for an approved call that has not started by `until`, and from then on
        each time."""
        limit, now = self.tool.timeout, time.monotonic()
        if self.grant is None or self.started:
            # A call that waits for a thread or a loop has not started, and has all of its time.
            return until - now if limit is None else limit - (self.took if self.started else 0.0)
        if now < until:
            return min(until - now, limit or math.inf)
        if self.grant.withdraw():
            raise CallNotStarted
        return _MOMENT

    @property
    def took(self) -> float:
        return time.perf_counter() - self.start

    def ended(self, call: asyncio.Future[_Result]) -> Outcome:
        if call.cancelled():
            return Outcome("FAILED", "Error: the tool was cancelled", self.took)
        if (error := call.exception()) is not None:
            return self.failed(error)
        value, text = call.result()
        return _done(value, text, self.secrets, self.output_limit, self.took)

    def failed(self, error: BaseException) -> Outcome:
        if isinstance(error, CallNotStarted):
            raise error
        if isinstance(error, _Unfit):
            return Outcome("FAILED", f"Error: {mask(str(error), self.secrets)}", began=False)
        took = self.took
        what = f"tool {self.tool.name}"
        if self.grant is not None:
            what = f"call {self.grant.proposal.id} of {self.tool.name}"
        logger.info("%s failed\n%s", what, hidden_trace(error, self.secrets))
        return Outcome("FAILED", error_text(error, self.secrets), took)

    def report_late(self, late: Late | None, call: asyncio.Future[_Result]) -> None:
        """Report to `late` the outcome of a call that was abandoned."""
        # Our cancellation says nothing about the call's effects.
        if call.cancelled() or _was_cancelled(call.exception()):
            return
        outcome = self.ended(call)
        if late is not None:
            task = asyncio.ensure_future(late(outcome))
            _late.add(task)
            task.add_done_callback(_late.discard)


def _done(value: Any, text: str, secrets: Sequence[str], limit: int, took: float) -> Outcome:
    # Masked first: after truncation, half of a secret would not be recognised.
    output = cut(mask(text, secrets) if secrets else text, limit)
    failed = isinstance(value, ToolResult) and value.is_error
    if failed and not output.startswith("Error:"):
        output = f"Error: {output}"
    return Outcome("FAILED" if failed else "DONE", output, took, value)


def _full(tool: Tool[..., Any]) -> Outcome:
    text = f"Error: not run: {MOST} earlier calls have not ended"
    return Outcome("FAILED", text, began=False)


_late: set[asyncio.Future[None]] = set()


def _was_cancelled(error: BaseException | None) -> bool:
    # UserCode raises an exception in place of a cancellation, with it as the cause.
    return error is not None and isinstance(error.__cause__, asyncio.CancelledError)


class _Unfit(Exception):
    """The input is invalid for the tool, which has not run."""


def _called(
    tool: Tool[..., Any],
    input: Mapping[str, Any],
    session: Session,
    context: RequestContext,
    begin: Callable[[], None] | None = None,
) -> Any:
    """The result of the tool, an awaitable if it is async; raises _Unfit.

    Validators are user code, so they run where the tool does. `begin` is called directly before the
    tool.
    """
    try:
        arguments = tool.validate(input)
    except ToolInputError as error:
        raise _Unfit(str(error)) from error
    if begin is not None:
        begin()
    return tool.call(arguments, session, context)


_Result = tuple[Any, str]
"""A tool's result, and its text. Making the text may call user code, so it is made there."""


def _shown(value: Any) -> _Result | Awaitable[_Result]:
    return _awaited(value) if inspect.isawaitable(value) else (value, text_of(value))


async def _awaited(value: Awaitable[Any]) -> _Result:
    given = await value
    return given, text_of(given)


def _bound(
    tool: Tool[..., Any],
    called: Callable[[], Any],
    watched: Watched,
    own: list[asyncio.Task[Any]] | None = None,
) -> Callable[[], Any]:
    """The call with its text; an async tool puts its task into `own`."""
    if tool.is_async:

        async def run_async() -> Any:
            if own is not None and (task := asyncio.current_task()):
                own.append(task)
            watched.begin()
            try:
                return await _awaited(called())
            finally:
                watched.end()

        return run_async

    def run() -> Any:
        watched.begin()
        try:
            return _shown(called())
        finally:
            watched.end()

    return run
