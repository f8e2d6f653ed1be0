"""A response as JSON: the events of its stream, and the object made from them."""

import secrets
import time
from collections.abc import Iterator, Sequence

from pydantic_core import to_json

from sayso import ExecutedApproval, Proposal, sse_frame
from sayso_openai_api.answers import Json
from sayso_openai_api.bodies import ResponseBody
from sayso_openai_api.cards import cards
from sayso_openai_api.items import SHELL

LABEL = "sayso"
"""The `server_label` of every call, which clients have to name when they declare the tools."""
_INCOMPLETE = {
    "max_tokens": "max_output_tokens",
    "max_steps": "max_output_tokens",
    "refusal": "content_filter",
}


def new_response(body: ResponseBody, instructions: str) -> Json:
    """A response before any output; the fields after `usage` are echoes or fixed."""
    return {
        "id": f"resp_{secrets.token_hex(24)}",
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "model": body.model,
        "previous_response_id": body.previous_response_id,
        "metadata": body.metadata or {},
        "usage": None,
        "instructions": instructions or None,
        "background": body.background,
        "store": body.store,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "text": {"format": {"type": "text"}},
        "reasoning": None,
        "temperature": 1.0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "service_tier": "default",
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


class Output:
    """A response in progress; each method returns the frames for one change."""

    def __init__(self, response: Json) -> None:
        self.response = response
        self._items: list[Json] = response["output"]
        self._text: list[str] | None = None
        self._spoken: list[str] = []
        self._number = 0

    @property
    def text(self) -> str:
        """All text of the agent, without the cards."""
        return "\n\n".join(part for part in self._spoken if part)

    def begin(self) -> Iterator[bytes]:
        """The first two events."""
        yield self._event("response.created", response=self.response)
        yield self._event("response.in_progress", response=self.response)

    def say(self, piece: str) -> Iterator[bytes]:
        """A piece of the text."""
        if self._text is None:
            self._text = []
            message = {"id": f"msg_{secrets.token_hex(24)}", "type": "message", "role": "assistant"}
            yield from self._add({**message, "status": "in_progress", "content": []})
            yield self._part("response.content_part.added", part=_text_part(""))
        self._text.append(piece)
        yield self._part("response.output_text.delta", delta=piece, logprobs=[])

    def outcome(self, ended: ExecutedApproval) -> Iterator[bytes]:
        """A call that has run; a rejected one has not."""
        yield from self._close()
        if ended.output.startswith("Rejected:"):
            return
        failed = ended.output.startswith(("Error:", "Outcome unknown:"))
        item = {
            "id": f"mcp_{secrets.token_hex(24)}",
            "type": "mcp_call",
            **_named(ended.type, ended.name, ended.input),
            "approval_request_id": ended.id,
        }
        yield from self._add({**item, "output": None, "error": None, "status": "in_progress"})
        yield self._at("response.mcp_call.in_progress")
        yield self._at("response.mcp_call_arguments.done", arguments=item["arguments"])
        state = "failed" if failed else "completed"
        yield self._at(f"response.mcp_call.{state}")
        outcome: Json = {
            "output": None,
            "error": None,
            "error" if failed else "output": ended.output,
        }
        yield from self._done({**item, **outcome, "status": state})

    def requests(self, rows: Sequence[Proposal], page: str | None) -> Iterator[bytes]:
        """The pending calls, and the same in words for clients that do not know this item."""
        yield from self._close()
        for row in rows:
            named = _named(row.kind, row.name, row.runs)
            item = {"id": row.id, "type": "mcp_approval_request", **named}
            yield from self._add(item)
            yield from self._done(item)
        if rows:
            yield from self.say(cards(rows, page).strip())
            yield from self._close(card=True)

    def end(self, stop: str) -> Iterator[bytes]:
        """The last event of a successful turn."""
        yield from self._close()
        reason = _INCOMPLETE.get(stop)
        status = "incomplete" if reason else "completed"
        self.response["status"] = status
        self.response["incomplete_details"] = {"reason": reason} if reason else None
        self.response["completed_at"] = int(time.time())
        self.response["metadata"] = {**self.response["metadata"], "stop_reason": stop}
        yield self._event(f"response.{status}", response=self.response)

    def failed(self, error: Json, status: str = "failed") -> Iterator[bytes]:
        """The last event of a turn that failed, or was cancelled."""
        yield from self._close()
        code = error["code"] or "server_error"
        self.response["status"] = status
        self.response["error"] = {"code": code, "message": error["message"]}
        yield self._event("response.failed", response=self.response)

    def _close(self, *, card: bool = False) -> Iterator[bytes]:
        """End the message that is open."""
        if self._text is None:
            return
        text, self._text = "".join(self._text), None
        if not card:
            self._spoken.append(text)
        yield self._part("response.output_text.done", text=text, logprobs=[])
        yield self._part("response.content_part.done", part=_text_part(text))
        yield from self._done(
            {**self._items[-1], "status": "completed", "content": [_text_part(text)]}
        )

    def _add(self, item: Json) -> Iterator[bytes]:
        self._items.append(item)
        index = len(self._items) - 1
        yield self._event("response.output_item.added", output_index=index, item=item)

    def _done(self, item: Json) -> Iterator[bytes]:
        self._items[-1] = item
        index = len(self._items) - 1
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _at(self, kind: str, **fields: object) -> bytes:
        index = len(self._items) - 1
        return self._event(kind, output_index=index, item_id=self._items[-1]["id"], **fields)

    def _part(self, kind: str, **fields: object) -> bytes:
        return self._at(kind, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return sse_frame(to_json(event), kind)


def _named(kind: str, name: str, input: Json) -> Json:
    arguments = to_json(input, inf_nan_mode="null").decode()
    shown = SHELL if kind == "command" else name
    return {"name": shown, "server_label": LABEL, "arguments": arguments}


def _text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
