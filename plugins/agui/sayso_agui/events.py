"""A turn's events as AG-UI's (AG-UI 1.0, "Events"); what is absent is left out, never null."""

import secrets
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

from pydantic_core import to_json

from sayso import (
    Done,
    ErrorEvent,
    Event,
    ExecutedApproval,
    Host,
    IntermittentUpdate,
    Proposal,
    TextDelta,
    needed_approvals,
    outcomes_of,
    sse_frame,
)
from sayso_agui.run_input import Json, RunInput

SHELL = "shell"
"""The name under which a command is shown."""
VERSION = "1.0"
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
_LIMITS = ("max_tokens", "max_steps")


class Events:
    """The stream of one run."""

    def __init__(self, host: Host, run: RunInput) -> None:
        self._host = host
        self._run = run
        self._known: set[str] = set()
        self._turns: set[str] = set()
        self._message: str | None = None
        self._last_message: str | None = None
        self._interrupts: list[Json] = []

    def know(self, calls: Collection[str], turns: Collection[str]) -> None:
        """Record the calls that the page has already, and the turns that proposed them: the page
        would append arguments that are sent again to those that it has."""
        self._known |= set(calls)
        self._turns |= set(turns)

    def begin(self) -> bytes:
        """The first event."""
        return self._event("RUN_STARTED", **self._ids(), protocolVersion=VERSION)

    def of(self, event: Event) -> Iterator[bytes]:
        """The AG-UI events for one event; proposals are sent by `ask`."""
        match event:
            case TextDelta(text=text):
                yield from self._say(text)
            case IntermittentUpdate(text=text, content=content):
                yield self._event(
                    "ACTIVITY_SNAPSHOT",
                    messageId=f"activity-{self._run.run_id}",
                    activityType="sayso.update",
                    content={"text": text, **content},
                    replace=True,
                )
            case Done():
                yield from self.finish(event)
            case ErrorEvent():
                yield from self.failed(event.words, event.code, event.incident)
            case _:
                yield from self._close()
                for ended in outcomes_of(event):
                    yield self._outcome(ended)

    def restated(self, rows: Sequence[Proposal], words: str) -> Iterator[bytes]:
        """The run for a message that arrived while `rows` are pending."""
        yield from self._say(words)
        yield from self.ask(rows)
        yield from self.finish(Done("approval_required"))

    def ask(self, rows: Sequence[Proposal]) -> Iterator[bytes]:
        """The pending calls that the run's end asks about."""
        yield from self._close()
        for row in rows:
            self._interrupts.append(self._interrupt(row))
            if row.id in self._known or row.turn in self._turns:
                continue
            self._known.add(row.id)
            parent: Json = {"parentMessageId": self._last_message} if self._last_message else {}
            name = SHELL if row.kind == "command" else row.name
            yield self._event("TOOL_CALL_START", toolCallId=row.id, toolCallName=name, **parent)
            arguments = to_json(row.runs, inf_nan_mode="null").decode()
            yield self._event("TOOL_CALL_ARGS", toolCallId=row.id, delta=arguments)
            yield self._event("TOOL_CALL_END", toolCallId=row.id)

    def finish(self, done: Done) -> Iterator[bytes]:
        """The last events of a run that succeeded, or waits."""
        yield from self._close()
        if done.session:
            yield self._event("STATE_SNAPSHOT", snapshot=done.session)
        last: Json = {
            "outcome": self._outcome_of(done),
            "result": {"stop_reason": done.stop_reason},
        }
        if used := _used(done):
            last["usage"] = used
        yield self._event("RUN_FINISHED", **self._ids(), **last)

    def failed(
        self, message: str, code: str | None = None, incident: str | None = None
    ) -> Iterator[bytes]:
        """The last event of a run that failed."""
        yield from self._close()
        said = f"{message} (incident {incident})" if incident else message
        named: Json = {"code": code} if code else {}
        yield self._event("RUN_ERROR", message=said, **named)

    def _say(self, piece: str) -> Iterator[bytes]:
        if not piece:
            return
        if self._message is None:
            self._message = self._last_message = f"msg-{secrets.token_hex(12)}"
            yield self._event("TEXT_MESSAGE_START", messageId=self._message, role="assistant")
        yield self._event("TEXT_MESSAGE_CONTENT", messageId=self._message, delta=piece)

    def _close(self) -> Iterator[bytes]:
        if self._message is not None:
            yield self._event("TEXT_MESSAGE_END", messageId=self._message)
            self._message = None

    def _outcome(self, ended: ExecutedApproval) -> bytes:
        return self._event(
            "TOOL_CALL_RESULT",
            messageId=f"result-{self._run.run_id}-{ended.id}",
            toolCallId=ended.id,
            content=ended.output,
            role="tool",
        )

    def _outcome_of(self, done: Done) -> Json:
        if self._interrupts:
            return {"type": "interrupt", "interrupts": self._interrupts}
        # Clients before 1.0 take a cancelled run for a failed one.
        cut = done.stop_reason in _LIMITS and self._run.protocol_version is not None
        return {"type": "cancelled" if cut else "success"}

    def _interrupt(self, row: Proposal) -> Json:
        until = datetime.fromtimestamp(min(row.expires, _LAST), UTC).isoformat(timespec="seconds")
        properties: Json = {"approved": {"type": "boolean"}, "reason": {"type": "string"}}
        tool = self._host.agent.tools.get(row.name)
        if row.kind == "tool_call" and tool is not None and tool.editable:
            properties["editedArgs"] = {"type": "object"}
        about = row.intent or row.description or f"Run {row.name}?"
        shown: Json = {
            "id": row.id,
            "reason": "tool_call",
            "message": " ".join(filter(None, [about, needed_approvals(row)])),
            "toolCallId": row.id,
            "responseSchema": {
                "type": "object",
                "properties": properties,
                "required": ["approved"],
            },
            "metadata": {"name": row.name, "input": row.runs, "expires_at": until},
        }
        # Before 1.0 an interrupt that has expired blocks its thread for good.
        return shown if self._run.protocol_version is None else {**shown, "expiresAt": until}

    def _ids(self) -> Json:
        return {"threadId": self._run.thread_id, "runId": self._run.run_id}

    def _event(self, kind: str, **fields: object) -> bytes:
        return sse_frame(to_json({"type": kind, **fields}, inf_nan_mode="null"))


def _used(done: Done) -> list[Json]:
    """The tokens of each model call of the turn; none if no provider counted them."""
    usage = done.meta_data.get("usage") or {}
    return [_tokens(call) for call in usage.get("calls", ())]


def _tokens(call: Json) -> Json:
    provider, _, model = call["model"].partition(":")
    return {
        "provider": provider,
        "model": model,
        "inputTokens": call["input_tokens"],
        "outputTokens": call["output_tokens"],
        "totalTokens": call["input_tokens"] + call["output_tokens"],
    }
