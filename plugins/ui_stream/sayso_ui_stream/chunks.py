"""A turn's events as chunks of the stream (AI SDK 7, "UI message stream protocol").

The page must find each call in the message that an outcome or a question belongs to, and get an
outcome for each call that it has decided: otherwise it would post again and again.
"""

import secrets
from collections.abc import Iterator, Sequence

from pydantic_core import to_json

from sayso import (
    Approval,
    Approvals,
    Done,
    ErrorEvent,
    Event,
    ExecutedApproval,
    IntermittentUpdate,
    Proposal,
    TextDelta,
    needed_approvals,
    outcomes_of,
    sse_frame,
)
from sayso_ui_stream.messages import MARK, SHELL, Json, Read

END = sse_frame(b"[DONE]")
_FINISHES = {
    "approval_required": "tool-calls",
    "max_tokens": "length",
    "max_steps": "other",
    "refusal": "content-filter",
}


class Chunks:
    """The stream of one reply."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._known = dict(read.known)
        self._message = read.continues or f"msg-{secrets.token_hex(12)}"
        self._started = False
        self._in_step = False
        self._text: str | None = None

    def of(self, event: Event) -> Iterator[bytes]:
        """The chunks of one event."""
        match event:
            case TextDelta(text=text):
                yield from self._say(text)
            case IntermittentUpdate(text=text, content=content):
                yield from self._start()
                data = {"text": text, "content": content}
                yield _chunk("data-update", data=data, transient=True)
            case Approvals(approvals=approvals):
                for one in approvals:
                    yield from self._ask(one, needed_approvals(one))
            case Done():
                yield from self._finish(event)
            case ErrorEvent():
                yield from self.failed(event.words, event.incident)
            case _:
                for ended in outcomes_of(event):
                    yield from self._outcome(ended)

    def restated(self, rows: Sequence[Proposal], words: str) -> Iterator[bytes]:
        """The reply to a message that arrived while `rows` are pending."""
        yield from self._say(words)
        for row in rows:
            one = Approval(
                id=row.id, type=row.kind, name=row.name, input=row.runs, intent=row.intent
            )
            yield from self._ask(one, needed_approvals(row))
        yield from self._finish(Done("approval_required"))

    def failed(self, text: str, incident: str | None = None) -> Iterator[bytes]:
        """The chunks that end a failed turn."""
        yield from self._close()
        yield _chunk("error", errorText=f"{text} (incident {incident})" if incident else text)
        yield END

    def _start(self) -> Iterator[bytes]:
        if not self._started:
            self._started = True
            yield _chunk("start", messageId=self._message)

    def _step(self) -> Iterator[bytes]:
        yield from self._start()
        if not self._in_step:
            self._in_step = True
            yield _chunk("start-step")

    def _say(self, piece: str) -> Iterator[bytes]:
        yield from self._step()
        if self._text is None:
            self._text = f"text-{secrets.token_hex(6)}"
            yield _chunk("text-start", id=self._text)
        yield _chunk("text-delta", id=self._text, delta=piece)

    def _close(self) -> Iterator[bytes]:
        if self._text is not None:
            yield _chunk("text-end", id=self._text)
            self._text = None

    def _call(self, id: str, kind: str, name: str, input: Json) -> Iterator[bytes]:
        """The call as a part of the message, unless it is one."""
        if id in self._known:
            return
        self._known[id] = _question_of(id, self._read)
        yield from self._step()
        yield _chunk(
            "tool-input-available",
            toolCallId=id,
            toolName=SHELL if kind == "command" else name,
            input=input,
            # The page does not know our tools, and must not run one itself.
            dynamic=True,
            providerExecuted=True,
        )

    def _ask(self, one: Approval, needed: str) -> Iterator[bytes]:
        yield from self._close()
        yield from self._start()
        yield from self._call(one.id, one.type, one.name, one.input)
        said = " ".join(filter(None, [one.intent, needed]))
        reason: Json = {"reason": said} if said else {}
        yield _chunk(
            "tool-approval-request", approvalId=self._known[one.id], toolCallId=one.id, **reason
        )

    def _outcome(self, ended: ExecutedApproval) -> Iterator[bytes]:
        yield from self._close()
        yield from self._start()
        yield from self._call(ended.id, ended.type, ended.name, ended.input)
        made: Json = {"toolCallId": ended.id, "dynamic": True, "providerExecuted": True}
        if ended.output.startswith("Rejected:"):
            yield _chunk("tool-output-denied", toolCallId=ended.id)
        elif ended.output.startswith(("Error:", "Outcome unknown:")):
            yield _chunk("tool-output-error", errorText=ended.output, **made)
        else:
            yield _chunk("tool-output-available", output=ended.output, **made)

    def _finish(self, done: Done) -> Iterator[bytes]:
        said: Json = {"stop_reason": done.stop_reason}
        if done.session is not None:
            said["session"] = done.session
        if usage := done.meta_data.get("usage"):
            said["usage"] = usage
        if not self._started and done.stop_reason == "silent":
            # Without an id the page shows no empty message.
            yield _chunk("start")
        else:
            # Also after an outcome alone: the step says that there was an answer.
            yield from self._step()
        yield from self._close()
        if self._in_step:
            yield _chunk("finish-step")
        reason = _FINISHES.get(done.stop_reason, "stop")
        yield _chunk("finish", finishReason=reason, messageMetadata=said)
        yield END


def _question_of(id: str, read: Read) -> str:
    """The id of the question; each message that asks it has another one."""
    before = read.asked.get(id, 0)
    return f"{id}{MARK}{before + 1}" if before else id


def _chunk(kind: str, **fields: object) -> bytes:
    return sse_frame(to_json({"type": kind, **fields}, inf_nan_mode="null"))
