"""The part of a conversation that fits into the tokens that a model can read.

Long outputs are shown by their head and tail, and the model may read the rest of them. If the
conversation is still too long, its oldest texts are left out, with a note; calls and outcomes never
are. Tokens are estimated from the length of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sayso.models import Attachment, Block, Call, Result, Text, ToolDefinition, Turn, bound_to_model

BYTES_A_TOKEN = 3.5
_SHARE = 4
"""An output may take this part of what is left."""
_LEAST = 500
"""Tokens of an output that are shown in any case."""
_REPORTED = (
    re.compile(r"(\d{4,8})(?: tokens?)? maximum"),
    re.compile(r"(?:maximum|limit|window|context (?:size|length))[^.;]{0,40}?(\d{4,8})"),
)
"""The forms in which providers report the number of tokens that their model can read."""
_IMAGE = 1_600
"""Tokens of an image, and of a document."""
_DOCUMENT = 8_000
_ANSWER = 8_192
"""Tokens that are kept for the answer, at most a quarter of the window."""

READ_OUTPUT = ToolDefinition(
    "read_output",
    "Read a part of a tool's output whose middle was left out.",
    {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id that stands where it was left out."},
            "start": {"type": "integer", "minimum": 0, "description": "The first character."},
            "end": {"type": "integer", "minimum": 1, "description": "The one behind the last."},
        },
        "required": ["id", "start", "end"],
    },
)
"""The built-in tool by which a model reads what was left out of an output."""


def tokens_of(text: str) -> int:
    """About how many tokens `text` takes."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return int(size / BYTES_A_TOKEN) + 1


class Window:
    """The part of one turn's conversation that the model is shown, in a window of `tokens`, if that
    is known.

    An output is cut once and keeps this form: a text that a model has read may not change. `reads`
    says whether the model may be offered `READ_OUTPUT`.
    """

    def __init__(
        self,
        tokens: int | None,
        prompts: Sequence[str],
        tools: Sequence[ToolDefinition],
        *,
        reads: bool = True,
    ) -> None:
        self._tokens = tokens
        self._prompts = prompts
        self._own = tools
        self._reads = reads and all(tool.name != READ_OUTPUT.name for tool in tools)
        self._cut: dict[str, str] = {}
        self._whole: dict[str, str] = {}

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        """The tools that the model is offered; `READ_OUTPUT` among them once an output was cut."""
        return [*self._own, READ_OUTPUT] if self._cut and self._reads else self._own

    def parted(self, calls: list[Call]) -> tuple[list[Call], list[Call]]:
        """The calls of `READ_OUTPUT`, and all others."""
        if not (self._whole and self._reads):
            return [], calls
        reading = [call for call in calls if call.name == READ_OUTPUT.name]
        return reading, [call for call in calls if call.name != READ_OUTPUT.name]

    def shrink(self, reason: str, turns: Sequence[Turn]) -> bool:
        """Use the window that a provider reported, or else assume less than was tried; False if the
        conversation cannot be shortened further."""
        tried = sum(map(_size, turns))
        before = tried if self._tokens is None else min(self._tokens, tried)
        said = reason.replace(",", "")
        reported = next((found for form in _REPORTED if (found := form.search(said))), None)
        size = int(reported[1]) if reported else 0
        self._tokens = size if _LEAST < size < before else int(before * 0.6)
        self._cut.clear()
        return self._tokens > 2 * _LEAST

    def fitted(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """`turns` as the model is shown them; `turns` itself if all of them fit easily."""
        if self._tokens is None:
            return turns
        size = sum(map(_size, turns))
        if not self._cut and size * 2 * (_SHARE + 1) < self._tokens:
            return turns
        room = self._room()
        shown = self._with_cuts(turns, room)
        return _fitting(shown, room) if sum(map(_size, shown)) > room else shown

    def read(self, call: Call) -> Result:
        """The part of an output that the model asks for by a call of `READ_OUTPUT`."""
        given: Mapping[str, object] = call.input
        whole = self._whole.get(str(given.get("id")))
        start, end = given.get("start"), given.get("end")
        if whole is None:
            return Result(call.id, "Error: there is no output with this id to read", True)
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end:
            return Result(call.id, "Error: give 'start' and 'end' as numbers of characters", True)
        return Result(call.id, whole[start:end] or "(the output ends before that)")

    def _room(self) -> int:
        assert self._tokens is not None
        answer = min(_ANSWER, self._tokens // 4)
        fixed = [*self._prompts, *(str(tool.input_schema) + tool.description for tool in self._own)]
        return int(self._tokens * 0.9) - answer - sum(map(tokens_of, fixed))

    def _with_cuts(self, turns: Sequence[Turn], room: int) -> list[Turn]:
        left = room
        shown = []
        for turn in turns:
            blocks = [self._shown(b, left) if isinstance(b, Result) else b for b in turn.blocks]
            same = all(one is other for one, other in zip(blocks, turn.blocks, strict=True))
            shown.append(turn if same else replace(turn, blocks=blocks))
            left -= _size(shown[-1])
        return _unbound(turns, shown)

    def _shown(self, result: Result, left: int) -> Result:
        key = f"{result.call_id}:{len(result.output)}"
        if key not in self._cut:
            share = max(_LEAST, left // _SHARE)
            if tokens_of(result.output) <= share:
                return result
            self._whole[result.call_id] = result.output
            self._cut[key] = _cut(result, int(share * BYTES_A_TOKEN))
        return replace(result, output=self._cut[key])


def _cut(result: Result, size: int) -> str:
    """Head and tail of an output, and between them what was left out, and how to read it."""
    whole = result.output
    # Characters of more than a byte take more tokens.
    if not whole.isascii():
        size = size * len(whole) // len(whole.encode("utf-8", "replace"))
    head, tail = size * 2 // 3, size // 3
    end = len(whole) - tail
    said = (
        f"[{end - head} of {len(whole)} characters are left out here; read_output with "
        f'id "{result.call_id}", start {head} and end {end} gives them]'
    )
    return f"{whole[:head]}\n{said}\n{whole[end:]}"


def _fitting(turns: Sequence[Turn], room: int) -> list[Turn]:
    """`turns` without the oldest texts, as many as do not fit."""
    kept = list(turns)
    last = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=0)
    over = sum(map(_size, kept)) - room
    left_out = 0
    for n, turn in enumerate(turns[:last]):
        if over <= 0:
            break
        if _is_talk(turn):
            over -= _size(turn)
            kept[n] = Turn(turn.role, ())
            left_out += 1
    if over > 0:
        kept = [_least(turn) for turn in kept]
    if left_out:
        words = f"({left_out} earlier messages are left out: all of them are too long to read)"
        kept.insert(0, Turn("user", (Text(words, note=True),)))
    return _unbound([Turn("user", ()), *turns] if left_out else turns, kept)


def _is_talk(turn: Turn) -> bool:
    """Whether it has nothing but words: no call, no outcome, and no note of the service's own."""
    return all(isinstance(block, Text) and not block.note for block in turn.blocks)


def _least(turn: Turn) -> Turn:
    """The turn with the least of each of its outputs."""
    size = int(_LEAST * BYTES_A_TOKEN)
    blocks: list[Block] = [
        replace(block, output=_cut(block, size))
        if isinstance(block, Result) and len(block.output) > 2 * size
        else block
        for block in turn.blocks
    ]
    return replace(turn, blocks=blocks)


def _unbound(before: Sequence[Turn], shown: list[Turn]) -> list[Turn]:
    """`shown` without what a provider takes back only behind turns that are as they were."""
    changed = False
    for n, (old, new) in enumerate(zip(before, shown, strict=True)):
        if changed and new.raw:
            shown[n] = replace(new, raw=bound_to_model(new.raw))
        changed = changed or new.blocks != old.blocks
    return shown


def _size(turn: Turn) -> int:
    return sum(map(_tokens, turn.blocks)) + 8


def _tokens(block: Block) -> int:
    match block:
        case Text():
            return tokens_of(block.text)
        case Result():
            return tokens_of(block.output)
        case Call():
            return tokens_of(str(block.input)) + 16
        case Attachment():
            return _IMAGE if block.mime.startswith("image/") else _DOCUMENT
