"""Local servers that speak the wire formats of model providers, faults included.

`AnthropicServer` and `OpenAIServer` listen on a loopback port. Queue their answers with
`then(...)`; `requests` records the requests. A request that the real provider would refuse is
refused here too, with status 400.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

SECRET = "sk-test-5ecret-key-0123456789"
BODY_MARK = "body-of-the-provider-that-nobody-may-see"

Answer = Callable[["Exchange"], None]
"""Writes one response."""


@dataclass
class Request:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Provider:
    """A server on `url` that gives the queued answers, one a request, and records requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.refusals: list[str] = []
        self.connections = 0
        self.received = threading.Event()
        self.disconnected = threading.Event()
        self._answers: deque[Answer] = deque()
        self._stopping = threading.Event()
        provider = self

        class Handler(Exchange):
            owner = provider

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.listed: dict[str, Any] = {}
        """The answers to GET, by path."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def then(self, *answers: Answer) -> None:
        """Answer the next requests with these, in order."""
        self._answers.extend(answers)

    def next(self) -> Answer:
        return self._answers.popleft() if self._answers else status(500)

    def stopping(self) -> bool:
        return self._stopping.is_set()

    def close(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def refuse(self, request: Request) -> str | None:
        """Why the real provider would answer 400; None if it would not."""
        return None


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes away is part of the tests.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Exchange(BaseHTTPRequestHandler):
    """One connection; the writing half is used by answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: Provider

    def setup(self) -> None:
        super().setup()
        self.owner.connections += 1

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(length)
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = Request(self.path, headers, json.loads(raw))
        self.owner.requests.append(request)
        self.owner.received.set()
        if reason := self.owner.refuse(request):
            self.owner.refusals.append(reason)
            status(400, message=reason)(self)
            return
        try:
            self.owner.next()(self)
        except (BrokenPipeError, ConnectionError):
            self.close_connection = True
            self.owner.disconnected.set()

    def do_GET(self) -> None:
        found = self.owner.listed.get(self.path)
        body = json.dumps(found or {"error": "not found"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return

    def whole(self, code: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("request-id", "req_local")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def reset(self) -> None:
        """Drop the connection without a proper end."""
        self.wfile.flush()
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True

    def wait_for_disconnect(self) -> None:
        """Write nothing until the client goes away or the server stops."""
        while not self.owner.stopping():
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1):
                self.owner.disconnected.set()
                break
        self.close_connection = True


def stream(events: Sequence[bytes], ending: str = "end") -> Answer:
    """The events, one chunk each, then `end`, `reset` or `stall`."""

    def write(exchange: Exchange) -> None:
        exchange.begin()
        for event in events:
            exchange.chunk(event)
        match ending:
            case "end":
                exchange.end()
            case "reset":
                exchange.reset()
            case "stall":
                exchange.wait_for_disconnect()

    return write


def status(
    code: int, *, retry_after: str | None = None, kind: str = "api_error", message: str = BODY_MARK
) -> Answer:
    """An error status whose body and headers repeat the key, as providers do."""
    body = {"type": "error", "error": {"type": kind, "message": f"{message} {SECRET}"}}
    headers = {"x-echo": SECRET} | ({"retry-after": retry_after} if retry_after else {})
    data = json.dumps(body).encode()
    return lambda exchange: exchange.whole(code, "application/json", data, headers)


def json_body() -> Answer:
    """A 200 whose body is one JSON document instead of a stream."""
    data = json.dumps({"id": "x", "content": [], "choices": [], "note": BODY_MARK}).encode()
    return lambda exchange: exchange.whole(200, "application/json", data, {})


def drop() -> Answer:
    """Close the connection before any answer."""
    return lambda exchange: exchange.reset()


def silence() -> Answer:
    """Never answer at all."""
    return lambda exchange: exchange.wait_for_disconnect()


def fragments(text: str, size: int = 7) -> Iterable[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


class AnthropicServer(Provider):
    """POST /v1/messages with server-sent events."""

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
        """The events of one message; calls are `(id, name, JSON text)`."""
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if thinking:
            deltas = [{"type": "thinking_delta", "thinking": f} for f in fragments(thinking)]
            deltas.append({"type": "signature_delta", "signature": "c2lnbmF0dXJl"})
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        if text:
            deltas = [{"type": "text_delta", "text": f} for f in fragments(text)]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for call_id, name, arguments in calls:
            block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": f} for f in fragments(arguments)]
            blocks.append((block, deltas))
        reason = stop or ("tool_use" if calls else "end_turn")
        return [sse(event) for event in self._events(blocks, reason)]

    def _events(self, blocks: Any, reason: str) -> Iterable[dict[str, Any]]:
        usage = {
            "input_tokens": 11,
            "output_tokens": 1,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 3,
        }
        yield {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        }
        yield {"type": "ping"}
        for index, (block, deltas) in enumerate(blocks):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}},
        }
        yield {"type": "message_stop"}

    def error_event(self) -> bytes:
        error = {"type": "overloaded_error", "message": f"{BODY_MARK} {SECRET}"}
        return sse({"type": "error", "error": error})

    def refuse(self, request: Request) -> str | None:
        return anthropic_refusal(request)


class OpenAIServer(Provider):
    """POST /chat/completions with server-sent events."""

    def settings(self) -> dict[str, Any]:
        return {"base_url": self.url, "api_key": SECRET}

    def message(
        self,
        text: str = "",
        calls: Sequence[tuple[str, str, str]] = (),
        *,
        thinking: str = "",
        stop: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[bytes]:
        """The chunks of one message, `[DONE]` included; calls are `(id, name, JSON text)`.

        `extra` is the `extra_content` of each call.
        """
        more = {"extra_content": extra} if extra else {}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
        deltas += [{"reasoning_content": f} for f in fragments(thinking)]
        deltas += [{"content": f} for f in fragments(text)]
        for index, (call_id, name, arguments) in enumerate(calls):
            function = {"name": name, "arguments": ""}
            started = {"index": index, "id": call_id, "type": "function", "function": function}
            deltas.append({"tool_calls": [started | more]})
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": f}}]}
                for f in fragments(arguments)
            ]
        names = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter"}
        reason = names.get(stop or "", "tool_calls" if calls else "stop")
        chunks = [chunk(delta) for delta in deltas] + [chunk({}, finish_reason=reason)]
        usage = {
            "prompt_tokens": 16,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 2},
        }
        chunks.append(data({"id": "c1", "choices": [], "usage": usage}))
        return [*chunks, b"data: [DONE]\n\n"]

    def error_event(self) -> bytes:
        error = {"type": "server_error", "code": 503, "message": f"{BODY_MARK} {SECRET}"}
        return data({"error": error})

    def refuse(self, request: Request) -> str | None:
        return openai_refusal(request)


def sse(event: Mapping[str, Any]) -> bytes:
    """An event in Anthropic's framing."""
    body = json.dumps(event, ensure_ascii=False)
    return f"event: {event['type']}\ndata: {body}\n\n".encode()


def data(value: Mapping[str, Any]) -> bytes:
    """A chunk in OpenAI's framing."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def chunk(delta: Mapping[str, Any], *, finish_reason: str | None = None) -> bytes:
    """One chat completions chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return data({"id": "c1", "object": "chat.completion.chunk", "choices": [choice]})


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TOP = {
    "model",
    "max_tokens",
    "messages",
    "stream",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "metadata",
    "stop_sequences",
    "temperature",
    "top_p",
    "top_k",
}


def anthropic_refusal(request: Request) -> str | None:
    """The rule of the messages API that a request breaks; None if it breaks none."""
    if request.path != "/v1/messages":
        return f"path {request.path}"
    if request.headers.get("authorization") != f"Bearer {SECRET}":
        return "credentials"
    return anthropic_rules(request)


def anthropic_rules(request: Request, *, late_system: bool = True) -> str | None:
    """The rule of the messages themselves that a request breaks; `late_system` says whether the
    platform takes system messages among them."""
    body = request.body
    if unknown := body.keys() - _TOP:
        return f"unknown keys {sorted(unknown)}"
    if body["max_tokens"] > most_output(body["model"]):
        return f"max_tokens: {body['max_tokens']} > {most_output(body['model'])}, the maximum"
    marks = json.dumps([body.get(key) for key in ("tools", "system", "messages")])
    if marks.count('"cache_control"') > 4:
        return "more than 4 blocks with cache_control"
    messages = body["messages"]
    reasons = [
        _sampling(request),
        _thinking(body),
        _tools(body.get("tools")),
        _system(body.get("system")),
        _late(messages, late_system and bool(re.search(r"[a-z]-(4-8|5)", body["model"]))),
        _conversation([m for m in messages if m["role"] != "system"], bool(body.get("tools"))),
    ]
    return next((reason for reason in reasons if reason), None)


def most_output(model: str) -> int:
    """The most tokens of an answer of a Claude model."""
    table = {"-4-8": 128_000, "-4-7": 128_000, "opus-4-6": 128_000, "-4-6": 64_000}
    table |= {"-4-5": 64_000, "opus-4": 32_000, "3-5": 8_192}
    return next((most for part, most in table.items() if part in model), 128_000)


def _thinking(body: Mapping[str, Any]) -> str | None:
    kind = (body.get("thinking") or {}).get("type")
    if kind == "disabled" and re.search(r"-5-5", body["model"]):
        return "thinking.type: this model does not take 'disabled'"
    if kind == "adaptive" and re.search(r"-4-[0-5]\b|-3-", body["model"]):
        return "thinking.type: this model does not take 'adaptive'"
    effort = (body.get("output_config") or {}).get("effort")
    if effort not in (None, "low", "medium", "high", "xhigh", "max"):
        return f"output_config.effort: {effort!r}"
    return None


def _late(messages: Sequence[Mapping[str, Any]], allowed: bool) -> str | None:
    before = None
    for message in messages:
        if message["role"] == "system" and (not allowed or before != "user"):
            return "role 'system' is not supported on this model"
        before = message["role"]
    return None


def _sampling(request: Request) -> str | None:
    body = request.body
    used = {"temperature", "top_p", "top_k"} & body.keys()
    if not used:
        return None
    if request.headers.get("anthropic-version") != "2023-06-01":
        return "sampling under the new version of the API"
    if not re.search(r"-4-[56]", body["model"]) or "thinking" in body:
        return "sampling with this model"
    if "-4-5" in body["model"] and {"temperature", "top_p"} <= used:
        return "temperature and top_p together"
    return None


def _tools(tools: Any) -> str | None:
    if tools is None:
        return None
    names = [tool["name"] for tool in tools]
    if not tools or len(set(names)) != len(names):
        return "no tools, or a tool name twice"
    for tool in tools:
        schema = tool["input_schema"]
        if tool.keys() - {"name", "description", "input_schema", "cache_control"}:
            return "unknown keys of a tool"
        if not _NAME.fullmatch(tool["name"]):
            return f"tool name {tool['name']!r}"
        if not all(_KEY.fullmatch(key) for key in schema.get("properties", {})):
            return f"property keys of {tool['name']!r}"
        if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf"} & schema.keys():
            return f"schema of {tool['name']!r}"
    return None


def _system(system: Any) -> str | None:
    for block in system or ():
        if not block["text"].strip():
            return "blank system block"
    return None


def _conversation(messages: Sequence[Mapping[str, Any]], tools: bool) -> str | None:
    if not messages or messages[0]["role"] != "user":
        return "the first message must be a user's"
    seen: set[str] = set()
    waiting: list[str] = []
    role = "assistant"
    for message in messages:
        if message["role"] == role:
            return "two neighbours of one role"
        role = message["role"]
        if not message["content"]:
            return "empty content"
        reason, waiting = _blocks(message, seen, waiting, tools)
        if reason:
            return reason
    return "a call without its result" if waiting else None


def _blocks(
    message: Mapping[str, Any], seen: set[str], waiting: list[str], tools: bool
) -> tuple[str | None, list[str]]:
    content = message["content"]
    results = [block for block in content if block["type"] == "tool_result"]
    if [block["type"] for block in content][: len(results)] != ["tool_result"] * len(results):
        return "results must come first", []
    if sorted(block["tool_use_id"] for block in results) != sorted(waiting):
        return "results and calls do not pair", []
    calls: list[str] = []
    for block in content:
        if block["type"] == "text" and not block["text"].strip():
            return "blank text", []
        if block["type"] == "tool_result" and block.get("is_error") and not block["content"]:
            return "an error without content", []
        if block["type"] in ("tool_use", "tool_result") and not tools:
            return "calls without tools", []
        if block["type"] == "tool_use":
            if not _ID.fullmatch(block["id"]) or block["id"] in seen:
                return f"tool_use id {block['id']!r}", []
            if not _NAME.fullmatch(block["name"]) or not isinstance(block["input"], dict):
                return "a broken tool_use", []
            seen.add(block["id"])
            calls.append(block["id"])
    return None, calls


def openai_refusal(request: Request) -> str | None:
    """The rule of chat completions that a request breaks; None if it breaks none."""
    body = request.body
    if request.path != "/chat/completions":
        return f"path {request.path}"
    if request.headers.get("authorization") != f"Bearer {SECRET}":
        return "credentials"
    waiting: list[str] = []
    seen: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "a result without its call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return "a call without its result"
        if not message.get("content") and not message.get("tool_calls"):
            return "a message without content"
        for call in message.get("tool_calls", ()):
            if call["id"] in seen or len(call["id"]) > 40:
                return "an id twice or too long"
            json.loads(call["function"]["arguments"])
            seen.add(call["id"])
            waiting.append(call["id"])
    return "a call without its result" if waiting else None


def forget_keys(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Leave the test without a key, an address or a profile of the machine's own."""
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_PROFILE",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "ANTHROPIC_FOUNDRY_RESOURCE",
        "AWS_BEARER_TOKEN_BEDROCK",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    # Those of Amazon and Google for the servers of these tests.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE0123456789")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("CLOUD_ML_REGION", "europe-west1")
    monkeypatch.setenv("ANTHROPIC_VERTEX_PROJECT_ID", "p-1")
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(folder / "no-profiles"))
