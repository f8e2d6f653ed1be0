"""The parameters that a model accepts, by its name and the preset; the others are learnt from
refusals."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sayso.models.adapters import IdForm

_REASONING = re.compile(r"(gpt-([5-9]|\d\d)|o\d(-|$)|ft:o\d|codex|computer-use)(?!.*-chat)")
_OPENAI = re.compile(r"(ft:)?(gpt-\d|chatgpt|o\d(-|$)|codex)")
_MISTRAL = re.compile(
    r"(open-)?(mistral|ministral|mixtral|codestral|devstral|magistral|pixtral|voxtral)"
)
_THINKS_FIRST = re.compile(r"deepseek-r1|qwq|r1-distill|qwen3.*thinking|magistral")
_LATE_CONTEXT = ("azure", "deepseek", "groq", "xai")
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The known form of a model's requests.

    `limits` are the names of the output limit, the preferred one first. With `late_context` the
    system context computed for the request follows the history, so that everything before it is
    cached; not every server accepts a system message there. With `joins` a user's text may not
    immediately follow a tool's result. `thinks_first` says that a text without marks begins as
    thought.
    """

    limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    sampling: tuple[str, ...] = ("temperature", "top_p", "top_k")
    effort: Literal["reasoning_effort", "reasoning", ""] = "reasoning_effort"
    usage: bool = True
    late_context: bool = False
    id_form: IdForm | None = None
    joins: bool = False
    thinks_first: bool = False


@lru_cache(maxsize=256)
def dialect_of(preset: str, model: str) -> Dialect:
    """The dialect of `model`, as the endpoint `preset` serves it."""
    name = model.rpartition("/")[2].lower()
    ours = bool(_OPENAI.match(name)) and "gpt-oss" not in name
    reasons = ours and bool(_REASONING.match(name))
    of_mistral = preset == "mistral" or bool(_MISTRAL.match(name))
    sampling: tuple[str, ...] = ("temperature", "top_p", "top_k")
    if reasons:
        sampling = ()
    elif ours or preset in ("mistral", "groq", "xai", "deepseek"):
        sampling = ("temperature", "top_p")
    effort: Literal["reasoning_effort", "reasoning", ""] = "reasoning_effort"
    if preset == "openrouter":
        effort = "reasoning"
    elif ours and not reasons:
        effort = ""
    return Dialect(
        limits=("max_completion_tokens", "max_tokens")
        if ours
        else ("max_tokens", "max_completion_tokens"),
        sampling=sampling,
        effort=effort,
        usage=preset != "mistral",
        late_context=ours or preset in _LATE_CONTEXT,
        id_form=nine_letters if of_mistral else None,
        joins=of_mistral,
        thinks_first=bool(_THINKS_FIRST.search(name)),
    )


def nine_letters(call_id: str) -> str:
    """An id in the only form that Mistral takes, the same for the same `call_id`."""
    if re.fullmatch(r"[a-zA-Z0-9]{9}", call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest())
    letters = []
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return "".join(letters)
