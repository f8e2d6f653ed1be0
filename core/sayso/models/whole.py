"""A reply that is known at once, as the events of a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sayso.models import (
    Attachment,
    Block,
    Call,
    ModelError,
    ModelEvent,
    Reply,
    Result,
    Text,
    TextDelta,
    Thought,
    ToolStart,
    Turn,
)


def streamed(
    parts: Sequence[Block | Thought | str], reply: Reply | None = None
) -> Iterator[ModelEvent]:
    """The events for `parts`, texts word by word, then `reply`, or else the reply made of the
    parts.

    Raises ModelError for a part of another type.
    """
    blocks: list[Block] = []
    for part in parts:
        match part:
            case Thought():
                yield part
            case Call():
                yield ToolStart(part.name)
                blocks.append(part)
            case str() | Text():
                text = part if isinstance(part, str) else part.text
                yield from map(TextDelta, pieces(text))
                if text.strip():
                    blocks.append(Text(text))
            case Result() | Attachment():
                blocks.append(part)
            case _:
                kind = type(part).__name__
                wanted = "Call, Text, Thought or str, a Reply or an exception"
                raise ModelError("bad_request", f"a model's reply holds {kind}; give {wanted}")
    yield reply or _reply(blocks)


def pieces(text: str) -> Iterator[str]:
    """`text` in streamed pieces: word by word; after the beginning of a long one, in larger
    pieces."""
    short, rest = text[:4096], text[4096:]
    yield from re.findall(r"\s*\S+\s*?(?=\s|$)|\s+$", short)
    for start in range(0, len(rest), 2048):
        yield rest[start : start + 2048]


def _reply(blocks: Sequence[Block]) -> Reply:
    calls = any(isinstance(block, Call) for block in blocks)
    return Reply(Turn("assistant", tuple(blocks)), "tool_use" if calls else "end_turn")
