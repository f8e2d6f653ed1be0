"""A local server that speaks the Gemini API, with its rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from providers import BODY_MARK, SECRET, Provider, Request, data, fragments

_TOP = {"contents", "systemInstruction", "tools", "generationConfig"}
_GENERATION = {
    "temperature",
    "topP",
    "topK",
    "maxOutputTokens",
    "thinkingConfig",
    "responseMimeType",
    "responseJsonSchema",
}
_PATH = re.compile(r"/v1(?:beta)?/models/([\w.-]+):streamGenerateContent\?alt=sse")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_STOPS = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
SIGNATURE = "c2lnbmF0dXJl"


class GeminiServer(Provider):
    """POST /v1beta/models/ID:streamGenerateContent with server-sent events."""

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
        """The chunks of one message; calls are `(id, name, JSON text)`, the first one signed."""
        parts: list[dict[str, Any]] = [
            {"text": piece, "thought": True} for piece in fragments(thinking)
        ]
        parts += [{"text": piece} for piece in fragments(text)]
        for n, (call_id, name, arguments) in enumerate(calls):
            call = {"functionCall": {"id": call_id, "name": name, "args": json.loads(arguments)}}
            parts.append(call | ({} if n else {"thoughtSignature": SIGNATURE}))
        chunks = [_chunk([part]) for part in parts]
        usage = {
            "promptTokenCount": 16,
            "cachedContentTokenCount": 5,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 2,
        }
        last = _chunk([{"text": ""}], finishReason=_STOPS.get(stop or "", "STOP"))
        return [data(chunk) for chunk in [*chunks, {**last, "usageMetadata": usage}]]

    def error_event(self) -> bytes:
        error = {"code": 503, "status": "UNAVAILABLE", "message": f"{BODY_MARK} {SECRET}"}
        return data({"error": error})

    def refuse(self, request: Request) -> str | None:
        return gemini_refusal(request)


def _chunk(parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": parts}
    return {"candidates": [{"index": 0, "content": content, **more}], "modelVersion": "gemini"}


def gemini_refusal(request: Request) -> str | None:
    """The rule of the Gemini API that a request breaks, None when it breaks none."""
    body = request.body
    found = _PATH.fullmatch(request.path)
    if found is None:
        return f"path {request.path}"
    if request.headers.get("x-goog-api-key") != SECRET:
        return "API key not valid. Please pass a valid API key."
    config = body.get("generationConfig") or {}
    if unknown := (body.keys() - _TOP) | (config.keys() - _GENERATION):
        return f"Invalid JSON payload received. Unknown name {min(unknown)!r}"
    reasons = (
        _thinking(config, found[1]),
        _tools(body.get("tools") or ()),
        _contents(body["contents"], found[1]),
    )
    return next((reason for reason in reasons if reason), None)


def _thinking(config: Mapping[str, Any], model: str) -> str | None:
    asked = _camel(config.get("thinkingConfig") or {})
    levels = model.startswith(("gemini-3", "gemini-4"))
    if "thinkingBudget" in asked and levels or "thinkingLevel" in asked and not levels:
        return "thinking_config does not fit this model"
    if asked.get("thinkingBudget") == 0 and "pro" in model:
        return "Budget 0 is invalid. This model only works in thinking mode."
    return None


def _tools(tools: Sequence[Mapping[str, Any]]) -> str | None:
    for tool in tools:
        for declared in map(_camel, tool["functionDeclarations"]):
            if not _NAME.fullmatch(declared["name"]):
                return f"function name {declared['name']!r}"
            if declared["parametersJsonSchema"].get("type") != "object":
                return "parameters of a function"
    return None


def _contents(contents: Sequence[Mapping[str, Any]], model: str) -> str | None:
    if not contents or contents[0]["role"] != "user":
        return "the first turn must be a user's"
    waiting: list[str] = []
    for content in contents:
        if not content["parts"]:
            return "contents.parts must not be empty"
        parts = [_camel(part) for part in content["parts"]]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        calls = [part for part in parts if "functionCall" in part]
        if [answer["name"] for answer in answers] != waiting:
            return "the number of function response parts must equal that of function call parts"
        signs = model.startswith(("gemini-3", "gemini-4"))
        if signs and calls and not calls[0].get("thoughtSignature"):
            return "Function call is missing a thought_signature"
        if calls and content["role"] != "model":
            return "a function call of the user"
        waiting = [call["functionCall"]["name"] for call in calls]
    return "a function call without its response" if waiting else None


def _camel(fields: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` by one kind of names; the API takes both."""
    named = {}
    for name, value in fields.items():
        first, *rest = name.split("_")
        named[first + "".join(map(str.capitalize, rest))] = value
    return named
