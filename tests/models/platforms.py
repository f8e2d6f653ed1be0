"""Local servers for Claude models elsewhere than at Anthropic, each with its own address, key and
framing, and with the rules of the messages API."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from providers import SECRET, AnthropicServer, Request, anthropic_rules

REGION = "eu-central-1"
ACCESS_KEY = "AKIDEXAMPLE0123456789"
_SIGNED = re.compile(
    rf"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/\d{{8}}/{REGION}/bedrock/aws4_request, "
    r"SignedHeaders=[\w;-]*host[\w;-]*, Signature=[0-9a-f]{64}"
)


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A message in the framing of Amazon's event streams."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


class BedrockServer(AnthropicServer):
    """POST /model/ID/invoke-with-response-stream: SigV4 or a bearer key, event stream."""

    def settings(self) -> dict[str, Any]:
        return {"base_url": self.url}

    def message(self, *args: Any, **fields: Any) -> list[bytes]:
        return [_framed(event) for event in super().message(*args, **fields)]

    def error_event(self) -> bytes:
        headers = {":message-type": "exception", ":exception-type": "serviceUnavailableException"}
        return frame(headers, json.dumps({"message": "come again"}).encode())

    def refuse(self, request: Request) -> str | None:
        found = re.fullmatch(r"/model/([^/]+)/invoke-with-response-stream", request.path)
        if found is None:
            return f"path {request.path}"
        key = request.headers.get("authorization", "")
        if key != f"Bearer {SECRET}" and not _SIGNED.fullmatch(key):
            return f"credentials {key}"
        if "model" in request.body or "stream" in request.body:
            return "model or stream in the body"
        return anthropic_rules(_plain(request, found[1]), late_system=False)


class VertexServer(AnthropicServer):
    """POST .../publishers/anthropic/models/ID:streamRawPredict with an access token."""

    def settings(self) -> dict[str, Any]:
        return {"base_url": f"{self.url}/v1", "api_key": SECRET}

    def refuse(self, request: Request) -> str | None:
        form = r"/v1/projects/p-1/locations/([^/]+)/publishers/anthropic/models/([^/:]+):(\w+)"
        found = re.fullmatch(form, request.path)
        if found is None or found[3] != "streamRawPredict":
            return f"path {request.path}"
        if request.headers.get("authorization") != f"Bearer {SECRET}":
            return "credentials"
        return anthropic_rules(_plain(request, found[2]), late_system=False)


class FoundryServer(AnthropicServer):
    """POST /anthropic/v1/messages with a key of Azure's."""

    def settings(self) -> dict[str, Any]:
        return {"base_url": f"{self.url}/anthropic", "api_key": SECRET}

    def refuse(self, request: Request) -> str | None:
        if request.path != "/anthropic/v1/messages":
            return f"path {request.path}"
        if request.headers.get("x-api-key") != SECRET or "authorization" in request.headers:
            return "credentials"
        return anthropic_rules(request)


def _plain(request: Request, model: str) -> Request:
    """The request as it would be at Anthropic."""
    body = dict(request.body)
    version = body.pop("anthropic_version", None)
    if not version:
        return replace(request, body={"unknown": "no anthropic_version"})
    headers = {**request.headers, "anthropic-version": version}
    return replace(request, headers=headers, body={**body, "model": model, "stream": True})


def _framed(event: bytes) -> bytes:
    data = event.decode().partition("data: ")[2].strip()
    payload = json.dumps({"bytes": base64.b64encode(data.encode()).decode()}).encode()
    headers = {
        ":event-type": "chunk",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return frame(headers, payload)
