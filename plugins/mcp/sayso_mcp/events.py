"""Results cut to an event size that clients read: a part that is too large becomes a link or
words."""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from sayso import unbroken

EVENT = 2**20 - 2**14
"""Most bytes of a result in one server-sent event. Clients of the official SDK read no event above
1 MiB: a larger one loses them the call, over `sse` the whole session."""
_FOR_TEXT = EVENT // 4
"""Bytes of an event that texts may always use, before other parts are taken out of it."""
KEPT = 64 * 2**20
"""Most bytes kept for reading by link; the oldest content is dropped first."""
LINKS_SINCE = "2025-06-18"
"""The first version of the protocol whose results can have links."""
Contents = types.TextResourceContents | types.BlobResourceContents


@dataclass(frozen=True, slots=True)
class _Part:
    who: str | None
    contents: Contents
    size: int


class Kept:
    """Parts of results that fit into no event, kept until they are read; each for one principal."""

    def __init__(self) -> None:
        self._parts: OrderedDict[str, _Part] = OrderedDict()
        self._size = 0

    def keep(self, contents: Contents, who: str | None, size: int) -> str:
        """Keep the contents, and return the address at which they can be read."""
        uri = f"sayso://results/{secrets.token_urlsafe(16)}"
        self._parts[uri] = _Part(who, contents.model_copy(update={"uri": uri}), size)
        self._size += size
        while self._size > KEPT and len(self._parts) > 1:
            _, oldest = self._parts.popitem(last=False)
            self._size -= oldest.size
        return uri

    def read(self, uri: str, who: str | None) -> Contents | None:
        """The contents at this address if they were kept for this principal, else None."""
        part = self._parts.get(uri)
        return part.contents if part is not None and part.who == who else None


@dataclass(frozen=True, slots=True)
class Event:
    """The limits of one client: text as ASCII or UTF-8, links or none, and the size of linked
    parts."""

    ascii: bool
    kept: Kept
    who: str | None
    links: bool = True
    readable: float = float("inf")
    """Most bytes of a part that this client can read through a link."""

    def within_limits(self, result: types.CallToolResult, *, typed: bool) -> types.CallToolResult:
        """The result reduced to what fits; a part that is too large becomes a link, or words.

        With `typed` the tool has promised structured content. Without that the result is marked as
        an error, since clients would otherwise reject it instead of showing it.
        """
        blocks = result.content
        texts = sum(self._size(b.text) for b in blocks if isinstance(b, types.TextContent))
        sizes = {n: self._size(b) for n, b in enumerate(blocks) if _is_part(b)}
        structured = self._size(result.structured_content)
        room = EVENT - min(texts, _FOR_TEXT)
        if structured > room:
            self._leave_structured(result, structured, typed=typed)
            structured = 0
        for n in sorted(sizes, key=lambda n: -sizes[n]):
            if structured + sum(sizes.values()) <= room:
                break
            blocks[n] = self._instead(blocks[n], sizes[n])
            sizes[n] = self._size(blocks[n])
        self._cut_texts(blocks, EVENT - structured - sum(sizes.values()))
        return result

    def _leave_structured(self, result: types.CallToolResult, size: int, *, typed: bool) -> None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
        contents = types.TextResourceContents(uri="", mime_type="application/json", text=text)
        words = "[the structured result is too large to be sent with this one]"
        link = self._link("structured result", contents, size)
        if typed:
            words = f"The tool has run. {words}"
            result.is_error = True
        result.structured_content = None
        result.content.append(types.TextContent(text=words))
        if link is not None:
            result.content.append(link)

    def _instead(self, block: types.ContentBlock, size: int) -> types.ContentBlock:
        """A link to the block, or words if it cannot be linked."""
        match block:
            case types.ImageContent(data=data) | types.AudioContent(data=data):
                mime = block.mime_type
                contents: Contents = types.BlobResourceContents(uri="", mime_type=mime, blob=data)
                name = "image" if isinstance(block, types.ImageContent) else "audio"
            case types.EmbeddedResource(resource=contents):
                name = contents.uri
            case _:
                return block
        bytes_ = _bytes_of(contents)
        link = self._link(name, contents, size)
        kind = " ".join(filter(None, (name, contents.mime_type)))
        words = f"[{kind} of {bytes_} bytes left out: too large to be sent to this client]"
        return link or types.TextContent(text=words)

    def _link(self, name: str, contents: Contents, size: int) -> types.ResourceLink | None:
        """A link to the contents, which are kept; None if this client could not read them."""
        if not self.links or size > self.readable:
            return None
        return types.ResourceLink(
            name=name,
            uri=self.kept.keep(contents, self.who, size),
            mime_type=contents.mime_type,
            size=_bytes_of(contents),
            description="Too large to be sent with the result: read it as a resource.",
        )

    def _cut_texts(self, blocks: list[types.ContentBlock], room: int) -> None:
        for block in blocks:
            if isinstance(block, types.TextContent):
                block.text = self._cut(block.text, room)
                room -= self._size(block.text)

    def _cut(self, text: str, room: int) -> str:
        kept = text
        while kept and (used := self._size(kept)) > room:
            kept = kept[: len(kept) * max(room, 0) // used]
        if len(kept) == len(text):
            return text
        return f"{kept}\n[cut: no more than the first {len(kept)} characters can be sent]"

    def _size(self, value: Any) -> int:
        """The number of bytes that a value takes in the event."""
        if isinstance(value, types.ImageContent | types.AudioContent):
            # Base64 needs no escaping, and it may be long: do not encode it just to count.
            return len(value.data) + 200
        if not isinstance(value, str | dict | list | None):
            value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        written = json.dumps(value, ensure_ascii=self.ascii, default=str)
        return len(unbroken(written.encode("utf-8", "replace")))


def _is_part(block: types.ContentBlock) -> bool:
    return isinstance(block, types.ImageContent | types.AudioContent | types.EmbeddedResource)


def _bytes_of(contents: Contents) -> int:
    """The size of the content before it was base64."""
    if isinstance(contents, types.TextResourceContents):
        return len(contents.text.encode())
    return len(contents.blob) * 3 // 4 - contents.blob[-2:].count("=")
