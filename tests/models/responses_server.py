"""A local server that speaks OpenAI's Responses API, with its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from providers import BODY_MARK, SECRET, Provider, Request, fragments, sse

_TOP = {
    "model",
    "input",
    "instructions",
    "tools",
    "stream",
    "store",
    "include",
    "reasoning",
    "text",
    "max_output_tokens",
    "temperature",
    "top_p",
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ResponsesServer(Provider):
    """POST /responses with server-sent events."""

    def settings(self) -> dict[str, Any]:
        return {"base_url": self.url, "api_key": SECRET}

    def message(
        self,
        text: str = "",
        calls: Sequence[tuple[str, str, str]] = (),
        *,
        thinking: str = "",
        stop: str | None = None,
    ) -> list[bytes]:
        """The events of one response; calls are `(call id, name, JSON text)`."""
        items: list[dict[str, Any]] = []
        if thinking:
            summary = [{"type": "summary_text", "text": thinking}]
            secret = {"encrypted_content": "gAAAA-opaque", "summary": summary}
            items.append({"id": "rs_1", "type": "reasoning", "status": None, **secret})
        if text:
            part = {"type": "output_text", "text": text, "annotations": []}
            if stop == "refusal":
                part = {"type": "refusal", "refusal": text}
            items.append({"id": "msg_1", "type": "message", "role": "assistant", "content": [part]})
        for n, (call_id, name, arguments) in enumerate(calls):
            call = {"call_id": call_id, "name": name, "arguments": arguments}
            items.append({"id": f"fc_{n}", "type": "function_call", **call})
        return [sse(event) for event in _numbered(_events(items, stop))]

    def error_event(self) -> bytes:
        error = {"code": "server_is_overloaded", "message": f"{BODY_MARK} {SECRET}"}
        response = {"id": "resp_1", "status": "failed", "error": error, "output": []}
        return sse({"type": "response.failed", "sequence_number": 9, "response": response})

    def refuse(self, request: Request) -> str | None:
        return responses_refusal(request)


def _events(items: Sequence[dict[str, Any]], stop: str | None) -> Iterator[dict[str, Any]]:
    response = {"id": "resp_1", "object": "response", "created_at": 0, "model": "m", "output": []}
    yield {"type": "response.created", "response": {**response, "status": "in_progress"}}
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        first = {**item, "arguments": ""} if "arguments" in item else item
        yield {"type": "response.output_item.added", "output_index": index, "item": first}
        yield from ({**at, **delta} for delta in _deltas(item))
        done = {**item, "status": "completed"}
        yield {"type": "response.output_item.done", "output_index": index, "item": done}
    usage = {
        "input_tokens": 16,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 23,
    }
    response = {**response, "output": list(items), "usage": usage, "status": "completed"}
    if stop == "max_tokens":
        cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        yield {"type": "response.incomplete", "response": {**response, **cut}}
        return
    yield {"type": "response.completed", "response": response}


def _deltas(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "reasoning":
            for piece in fragments(item["summary"][0]["text"]):
                kind = "response.reasoning_summary_text.delta"
                yield {"type": kind, "summary_index": 0, "delta": piece}
        case "message":
            part = item["content"][0]
            kind = "output_text" if "text" in part else "refusal"
            for piece in fragments(part.get("text") or part["refusal"]):
                delta = {"type": f"response.{kind}.delta", "content_index": 0, "delta": piece}
                yield {**delta, "logprobs": []} if kind == "output_text" else delta
        case "function_call":
            for piece in fragments(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", "delta": piece}


def _numbered(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def responses_refusal(request: Request) -> str | None:
    """The rule of the Responses API that a request breaks, None when it breaks none."""
    body = request.body
    if request.path != "/responses":
        return f"path {request.path}"
    if request.headers.get("authorization") != f"Bearer {SECRET}":
        return "credentials"
    if unknown := body.keys() - _TOP:
        return f"Unknown parameter: '{min(unknown)}'."
    reasons = (_reasoning(body), _tools(body.get("tools", ())), _items(body["input"]))
    return next((reason for reason in reasons if reason), None)


def _reasoning(body: Mapping[str, Any]) -> str | None:
    thinks = re.match(r"gpt-[5-9]|o\d", body["model"]) is not None
    if body.get("store") is not False:
        return "this test wants nothing stored"
    for name in ("temperature", "top_p"):
        if thinks and name in body:
            return f"Unsupported parameter: '{name}' is not supported with this model."
    if not thinks and ("reasoning" in body or "include" in body):
        return "Encrypted content is not supported with this model."
    effort = (body.get("reasoning") or {}).get("effort")
    if effort not in (None, "none", "minimal", "low", "medium", "high", "xhigh", "max"):
        return f"reasoning.effort {effort!r}"
    return None


def _tools(tools: Sequence[Mapping[str, Any]]) -> str | None:
    for tool in tools:
        if tool["type"] != "function" or not _NAME.fullmatch(tool["name"]):
            return f"tool {tool!r}"
        if tool["parameters"].get("type") != "object":
            return "parameters of a tool"
    return None


def _items(items: Sequence[Mapping[str, Any]]) -> str | None:
    """Each call has one output behind it; reasoning goes on with what followed it."""
    open_calls: list[str] = []
    seen: set[str] = set()
    for n, item in enumerate(items):
        match item.get("type", "message"):
            case "function_call":
                if item["call_id"] in seen or len(item["call_id"]) > 64:
                    return f"call_id {item['call_id']!r} twice or too long"
                seen.add(item["call_id"])
                open_calls.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in open_calls:
                    return f"No tool call found for function call output {item['call_id']}."
                open_calls.remove(item["call_id"])
            case "reasoning":
                following = items[n + 1].get("type", "message") if n + 1 < len(items) else ""
                if not item.get("encrypted_content") or following == "function_call_output":
                    return f"Item '{item['id']}' without its required following item."
            case "message":
                if not item["content"] or item["role"] not in ("user", "assistant", "developer"):
                    return "a message without content"
                if item["role"] == "user" and open_calls:
                    return f"No tool output found for function call {open_calls[0]}."
    return f"No tool output found for function call {open_calls[0]}." if open_calls else None
