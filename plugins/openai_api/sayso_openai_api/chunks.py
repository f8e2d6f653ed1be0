"""A chat completion as JSON: whole, or chunk by chunk."""

import secrets

from pydantic_core import to_json

from sayso import sse_frame
from sayso_openai_api.answers import Json

_REASONS = {"max_tokens": "length", "max_steps": "length", "refusal": "content_filter"}


def reason_of(stop: str) -> str:
    """The `finish_reason` of a turn. A turn that waits for a person has ended, too: `tool_calls`
    would ask the client to run the call."""
    return _REASONS.get(stop, "stop")


class Completion:
    """One completion: its id, and the forms in which it is sent."""

    def __init__(self, model: str, created: int) -> None:
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._model = model
        self._created = created

    def begin(self) -> bytes:
        """The first chunk."""
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, piece: str) -> bytes:
        """A chunk with a piece of the text."""
        return self._chunk({"content": piece})

    def end(self, stop: str, usage: Json | None, *, with_usage: bool) -> bytes:
        """The last chunks and the end mark."""
        last = self._chunk({}, reason_of(stop))
        if with_usage:
            head = self._head("chat.completion.chunk")
            last += sse_frame(to_json({**head, "choices": [], "usage": usage}))
        return last + sse_frame(b"[DONE]")

    def failed(self, error: Json) -> bytes:
        """The frame that ends a stream instead of all these."""
        return sse_frame(to_json({"error": error}))

    def whole(self, text: str, stop: str, usage: Json | None) -> Json:
        """The completion as one object."""
        message: Json = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": reason_of(stop),
        }
        body = {**self._head("chat.completion"), "choices": [choice]}
        return body if usage is None else {**body, "usage": usage}

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return sse_frame(to_json({**self._head("chat.completion.chunk"), "choices": [choice]}))

    def _head(self, kind: str) -> Json:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}
