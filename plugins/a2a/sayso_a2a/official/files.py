"""The bytes of files in messages. The SDK drops invalid base64, or fails on it."""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from typing import Any

from pydantic_core import from_json, to_json

_WRONG = "the bytes of a file are no base64"
_URL_SAFE = str.maketrans("-_", "+/")


def problem_of_parts(message: object) -> str:
    """Why the SDK cannot read the parts of a message in JSON; empty if it can."""
    for part in _objects(message, "parts"):
        # 0.3 uses standard base64, 1.0 whatever protobuf accepts as base64.
        old = _file(part).get("bytes")
        if not (_is_base64(part.get("raw"), loose=True) and _is_base64(old)):
            return _WRONG
    for part in _objects(message, "content"):
        if not {"text", "file", "data"} & part.keys():
            return "a part has text, a file or data"
        if not _is_base64(_file(part).get("fileWithBytes"), loose=True):
            return _WRONG
    return ""


def as_old_sdk_writes(body: bytes) -> bytes:
    """The body of a REST 0.3 request with its files as base64 of base64, which is how the SDK
    writes and reads them, and nobody else."""
    if b'"fileWithBytes"' not in body:
        return body
    content = from_json(body)
    for part in _objects(content.get("message"), "content"):
        file = _file(part)
        if isinstance(text := file.get("fileWithBytes"), str):
            whole = _whole(text)
            if not _is_base64(a2b_base64(whole).decode("latin-1")):
                file["fileWithBytes"] = b64encode(whole.encode()).decode()
    return to_json(content)


def _objects(message: object, name: str) -> list[dict[str, Any]]:
    """The file parts: of a message in 1.0 or JSON-RPC, or in the content of a REST 0.3 message."""
    if not isinstance(message, dict) or (name == "content" and "parts" in message):
        return []
    parts = message.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _file(part: dict[str, Any]) -> dict[str, Any]:
    file = part.get("file")
    return file if isinstance(file, dict) else {}


def _is_base64(text: object, *, loose: bool = False) -> bool:
    """Whether the value is base64 text, possibly with line breaks."""
    if not isinstance(text, str):
        return True
    try:
        a2b_base64(_whole(text) if loose else "".join(text.split()), strict_mode=True)
    except ValueError:
        return False
    return True


def _whole(text: str) -> str:
    """Base64 in either alphabet, padded or not, converted to the standard's padded form."""
    joined = "".join(text.split()).translate(_URL_SAFE).rstrip("=")
    return joined + "=" * (-len(joined) % 4)
