"""The parts of a reply beside its text: artifacts and their parts, in the form of A2A 1.0."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sayso.trees import rebuilt

Json = dict[str, Any]
_EXACT = 2.0**53


@dataclass(frozen=True, slots=True)
class File:
    """A file as a part: its bytes, or the `url` of its content; `media_type` as in HTTP."""

    name: str = ""
    media_type: str = "application/octet-stream"
    data: bytes | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        if (self.data is None) is (self.url is None):
            raise ValueError("a file has either data or a url")


Content = str | bytes | File | Mapping[str, Any] | list[Any]
"""The content of a part: text, bytes, a file, or a JSON object or array."""


class Artifact:
    """A result: one or more parts under one id; an id is made if none is given."""

    def __init__(
        self, *parts: Content, id: str | None = None, name: str = "", description: str = ""
    ) -> None:
        if not parts:
            raise ValueError("an artifact has at least one part")
        self.parts = [part_json(part) for part in parts]
        self.id = id or secrets.token_hex(8)
        self.name = name
        self.description = description

    def json(self) -> Json:
        """The artifact as A2A 1.0 JSON."""
        shown: Json = {"artifactId": self.id, "parts": self.parts}
        if self.name:
            shown["name"] = self.name
        if self.description:
            shown["description"] = self.description
        return shown


def part_json(part: Content) -> Json:
    """One part as A2A 1.0 JSON; bytes are base64."""
    match part:
        case str():
            return {"text": part}
        case bytes():
            return part_json(File(data=part))
        case File(url=str() as url):
            return _named(part, {"url": url})
        case File():
            return _named(part, {"raw": base64.b64encode(part.data or b"").decode()})
        case Mapping() | list():
            return {"data": part}
    raise TypeError(
        f"a part is text, bytes, a File, an object or a list, not {type(part).__name__}"
    )


def _named(file: File, shown: Json) -> Json:
    shown["mediaType"] = file.media_type
    if file.name:
        shown["filename"] = file.name
    return shown


def merged(artifacts: list[Json], chunk: Mapping[str, Any], *, append: bool) -> None:
    """Merge `chunk` into `artifacts`: add it, replace the artifact of its id, or append its
    parts."""
    for index, known in enumerate(artifacts):
        if known["artifactId"] == chunk["artifactId"]:
            if append:
                known["parts"] = [*known["parts"], *chunk["parts"]]
            else:
                artifacts[index] = dict(chunk)
            return
    artifacts.append(dict(chunk))


def text_of_parts(parts: Iterable[Mapping[str, Any]]) -> str:
    """The parts as the text that a model reads: data as JSON, files by name and type."""
    return "\n".join(line for line in map(_line, parts) if line)


def _line(part: Mapping[str, Any]) -> str:
    if "text" in part:
        return str(part["text"])
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False)
    name = part.get("filename") or "a file"
    kind = part.get("mediaType") or "unknown type"
    where = f" at {part['url']}" if "url" in part else ""
    return f"[{name}, {kind}{where}]"


def whole(value: Any) -> Any:
    """JSON with integers restored: protobuf has only doubles."""
    return rebuilt(value, _whole)


def _whole(leaf: Any) -> Any:
    exact = isinstance(leaf, float) and leaf.is_integer() and abs(leaf) <= _EXACT
    return int(leaf) if exact else leaf
