"""The gate: the one function that runs a tool (design, section 10, "One gate")."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from assent.agent import RequestContext
from assent.approvals import mask
from assent.code import UserCode, may_block_here, passed_on
from assent.errors import message_of
from assent.events import ToolExecuted, ToolExecutionFailed
from assent.ledger import State
from assent.ledger.choices import Grant, unknown_outcome
from assent.messages import Approval
from assent.policy import Policy, Verdict
from assent.session import Session
from assent.tools import Tool, ToolInputError, ToolResult, text_of
from assent.workers.forks import leave_fork

logger = logging.getLogger("assent.tools")
_LONGEST_ERROR = 500
_LONGEST_TRACE = 64 * 2**10
_TOLD_MEMBERS = 5


@dataclass(slots=True, unsafe_hash=True)
class Outcome:
    """How a call ended: DONE, FAILED or INDETERMINATE, its text, seconds, and the raw value."""

    state: State
    output: str
    duration: float = 0.0
    value: Any = None

    @property
    def failed(self) -> bool:
        """Whether the model gets it as an error."""
        return self.state != "DONE"

    def event(self, call: Approval) -> ToolExecuted | ToolExecutionFailed:
        """What event handlers are told of it; `call` is what ran."""
        kind = ToolExecutionFailed if self.failed else ToolExecuted
        return kind(call, self.output, self.duration)


Late = Callable[[Outcome], Awaitable[None]]


class Gate:
    """Runs tools: validated, timed, cut to size, masked; gated ones only with a grant."""

    def __init__(self, code: UserCode, policy: Policy, *, output_limit: int) -> None:
        self.code = code
        self.policy = policy
        self.output_limit = output_limit

    async def verdict(
        self, tool: Tool[..., Any], input: Mapping[str, Any], context: RequestContext
    ) -> Verdict:
        """Whether this call runs at once, waits for approval, or is refused."""
        verdict, platform = self.policy.verdict, context.stated_platform
        if self.policy.reads_inputs:
            return await self.code.check(verdict, tool, input, platform)
        return verdict(tool, input, platform)

    async def run(
        self,
        tool: Tool[..., Any],
        input: Mapping[str, Any],
        session: Session,
        context: RequestContext,
        grant: Grant | None = None,
        late: Late | None = None,
    ) -> Outcome:
        """Run `tool` once and say how it ended; raises only on misuse.

        A call that needs approval runs only with the grant for exactly this call, which is spent.
        `late` is told the real end of a call that was given up as INDETERMINATE.
        """
        verdict = await self.verdict(tool, input, context)
        if grant is not None:
            row = grant.proposal
            if row.name != tool.name or dict(input) != row.runs:
                raise RuntimeError(f"the grant is for another call than {tool.name!r}")
            grant.spend()
            # A rule may be newer than the approval, or forbid what the approver changed.
            if verdict == "deny":
                text = f"Error: a rule of this service forbids this call of {tool.name!r}"
                return Outcome("FAILED", text)
        elif verdict != "allow":
            raise RuntimeError(f"tool {tool.name!r} needs approval and no grant was given")
        what = f"tool {tool.name}" if grant is None else f"call {grant.proposal.id} of {tool.name}"
        start = time.perf_counter()
        stated = context.stated_platform
        secrets = stated.secrets() if stated is not None else ()
        if tool.timeout is None and tool.is_async and may_block_here():
            # A call that nobody may have to give up needs no task of its own.
            try:
                result = await _awaited(_called(tool, input, session, context))
                leave_fork()
            except BaseException as error:
                passing = passed_on(error)
                if not isinstance(passing, Exception):
                    raise
                return self._failed(passing, what, start, secrets)
            return self._done(result, start, secrets)
        own: list[asyncio.Task[Any]] = []
        bound = _bound(tool, input, session, context, own)
        call = asyncio.ensure_future(self.code.call(bound))
        try:
            done, _ = await asyncio.wait({call}, timeout=tool.timeout)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if done:
            return self._ended(call, what, start, secrets)
        self._give_up(call, own, tool, what, start, secrets, late)
        why = f"the tool did not end within {tool.timeout:g} seconds"
        output = unknown_outcome(why, idempotent=tool.idempotent)
        return Outcome("INDETERMINATE", output, time.perf_counter() - start)

    def _ended(
        self, call: asyncio.Future[Any], what: str, start: float, secrets: Sequence[str]
    ) -> Outcome:
        if call.cancelled():
            took = time.perf_counter() - start
            return Outcome("FAILED", "Error: the tool was cancelled", took)
        if (error := call.exception()) is not None:
            return self._failed(error, what, start, secrets)
        return self._done(call.result(), start, secrets)

    def _failed(
        self, error: BaseException, what: str, start: float, secrets: Sequence[str]
    ) -> Outcome:
        if isinstance(error, _Unfit):
            return Outcome("FAILED", mask(f"Error: {error}", secrets))
        took = time.perf_counter() - start
        logger.info("%s failed\n%s", what, hidden_trace(error, secrets))
        return Outcome("FAILED", error_text(error, secrets), took)

    def _done(self, result: _Result, start: float, secrets: Sequence[str]) -> Outcome:
        took = time.perf_counter() - start
        value, text = result
        # Masked first: nothing would know half a secret at the cut.
        output = cut(mask(text, secrets) if secrets else text, self.output_limit)
        failed = isinstance(value, ToolResult) and value.is_error
        if failed and not output.startswith("Error:"):
            output = f"Error: {output}"
        return Outcome("FAILED" if failed else "DONE", output, took, value)

    def _give_up(
        self,
        call: asyncio.Future[Any],
        own: Sequence[asyncio.Task[Any]],
        tool: Tool[..., Any],
        what: str,
        start: float,
        secrets: Sequence[str],
        late: Late | None,
    ) -> None:
        # Only the tool's own task: one that does not let itself be cancelled still has an end.
        for task in own:
            task.get_loop().call_soon_threadsafe(task.cancel)
        if tool.is_async and not own:
            call.cancel()

        def tell(ended: asyncio.Future[Any]) -> None:
            # That we cancelled it says nothing of what it has done.
            if ended.cancelled() or _was_cancelled(ended.exception()):
                return
            outcome = self._ended(ended, what, start, secrets)
            if late is not None:
                task = asyncio.ensure_future(late(outcome))
                _late.add(task)
                task.add_done_callback(_late.discard)

        call.add_done_callback(tell)


_late: set[asyncio.Future[None]] = set()


def _was_cancelled(error: BaseException | None) -> bool:
    # UserCode raises an exception in place of a cancellation, with it as the cause.
    return error is not None and isinstance(error.__cause__, asyncio.CancelledError)


class _Unfit(Exception):
    """The input does not fit the tool, which has not run."""


def _called(
    tool: Tool[..., Any], input: Mapping[str, Any], session: Session, context: RequestContext
) -> Any:
    """What the tool gives, an awaitable if it is async; raises _Unfit.

    Validators are user code: they run where the tool does.
    """
    try:
        arguments = tool.validate(input)
    except ToolInputError as error:
        raise _Unfit(str(error)) from error
    return tool.call(arguments, session, context)


_Result = tuple[Any, str]
"""What a tool gave, and its text. Making that may call what users wrote, so it is made there."""


def _shown(value: Any) -> _Result | Awaitable[_Result]:
    return _awaited(value) if inspect.isawaitable(value) else (value, text_of(value))


async def _awaited(value: Awaitable[Any]) -> _Result:
    given = await value
    return given, text_of(given)


def _bound(
    tool: Tool[..., Any],
    input: Mapping[str, Any],
    session: Session,
    context: RequestContext,
    own: list[asyncio.Task[Any]],
) -> Callable[[], Any]:
    """The call without arguments; an async tool puts the task that it runs in into `own`."""
    if tool.is_async:

        async def run_async() -> Any:
            if task := asyncio.current_task():
                own.append(task)
            return await _awaited(_called(tool, input, session, context))

        return run_async
    return lambda: _shown(_called(tool, input, session, context))


def error_text(error: BaseException, secrets: Sequence[str]) -> str:
    """What model and caller read of an exception: one short line, no stack trace, no secret.

    Of a group, such as a TaskGroup raises, what its first exceptions say.
    """
    message = _line(error, secrets)
    if isinstance(error, BaseExceptionGroup):
        first = islice(_members(error), _TOLD_MEMBERS)
        message += f": {'; '.join(_line(each, secrets) for each in first)}"
    # File names that are not UTF-8 hold lone surrogates, which no JSON encoder takes.
    return f"Error: {message[:_LONGEST_ERROR]}".encode("utf-8", "replace").decode()


def _line(error: BaseException, secrets: Sequence[str]) -> str:
    # Masked first, as an output is.
    said = mask(message_of(error), secrets).strip()
    # Its lines are not looked for in the rest: an error may quote a whole output.
    text = said[:_LONGEST_ERROR].splitlines()
    message = text[0] if text else type(error).__name__
    plain = (ValueError, RuntimeError, ToolInputError, BaseExceptionGroup)
    return (
        f"{type(error).__name__}: {message}" if text and not isinstance(error, plain) else message
    )


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _members(each)
        else:
            yield each


def hidden_trace(error: BaseException, secrets: Sequence[str]) -> str:
    """The stack trace of `error` for the log, without the request's secrets, cut to size."""
    try:
        trace = _trace(error)
    except Exception:
        # CPython 3.11 may fail to parse the source lines of a RecursionError.
        trace = f"{type(error).__name__} (its stack trace cannot be shown)"
    return cut(mask(trace, secrets), _LONGEST_TRACE)


def _trace(error: BaseException) -> str:
    chain: dict[int, BaseException] = {}
    cause: BaseException | None = error
    while cause is not None and id(cause) not in chain:
        chain[id(cause)] = cause
        cause = cause.__cause__ or cause.__context__
    if max(len(message_of(each)) for each in chain.values()) < _LONGEST_TRACE:
        return "".join(traceback.format_exception(error))
    # That takes a text apart line by line.
    parts = [
        f"{''.join(traceback.format_tb(each.__traceback__))}{type(each).__name__}: "
        f"{message_of(each)}\n"
        for each in reversed(chain.values())
    ]
    return "\n".join(parts)


def hide(error: BaseException, secrets: Sequence[str]) -> None:
    """Have whoever shows or logs `error` leave these secrets out; see `hidden_in`."""
    error.__dict__["assent_secrets"] = tuple(secrets)


def hidden_in(error: BaseException) -> Sequence[str]:
    """What `hide` was told of `error`."""
    found: Sequence[str] = error.__dict__.get("assent_secrets", ())
    return found


def cut(text: str, limit: int) -> str:
    """`text` within `limit` bytes of UTF-8, with a last line that says what was cut."""
    if len(text) <= limit and text.isascii():
        return text
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode("utf-8")
    kept = raw[:limit].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {limit} of {len(raw)} bytes are shown]"
