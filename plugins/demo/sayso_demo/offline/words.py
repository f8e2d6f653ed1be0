"""The offline model's reading of words: stems, related words, kinds of actions."""

from __future__ import annotations

import re

_STOP = frozenset(
    """a about after again all also am an and any are as at be been but by can could did do does
    for from give had has have here hers his how i if in into is it its just let like may me might
    mine more most much must my need now of off on one onto or our out over please shall she
    should so some than that the their them then there these they this those to too under
    until up us very want was we were what when where which while who whom whose why will with
    within would yes you your""".split()
)
_GROUPS = [
    "delete remove erase rm unlink drop destroy purge trash discard",
    "list show display get fetch view print see",
    "read open cat show view content",
    "largest biggest big large huge fill eat hog heavy top",
    "disk storage drive partition filesystem space df",
    "usage used use consume free size space full",
    "memory ram swap",
    "process task running run cpu program ps",
    "restart reboot bounce",
    "stop kill terminate halt",
    "create add new make",
    "update change edit modify set",
    "search find look query lookup",
    "log journal",
    "tail last end latest recent",
    "send post notify mail email",
    "file document",
    "directory folder dir",
    "pod container",
    "weather forecast",
    "time clock date",
    "host machine server system",
    "ticket issue incident",
]
_ACTIONS = {
    "read": "list show display get fetch view print read see describe tail find search check count",
    "delete": "delete remove erase rm unlink drop destroy purge trash discard",
    "create": "create add make",
    "update": "update change edit modify set scale write rename move",
    "stop": "stop kill terminate halt shutdown",
    "restart": "restart reboot bounce",
    "run": "run execute",
    "send": "send post notify",
}
_POLITE = re.compile(
    r"^(?:[\s,.!]*(?:please|kindly|now|also|then|just|next|first|finally|ok|okay|hi|hello|hey|"
    r"can you|could you|would you|will you|i want (?:you )?to|i'd like (?:you )?to|i would like to|"
    r"i need (?:you )?to|let's|let us|go ahead and|you can|you may)\b)*[\s,.!]*",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"(?:what|which|who|whom|whose|when|where|why|how|is|are|was|were|does|did|has|have|am)\b",
    re.IGNORECASE,
)


def stem(word: str) -> str:
    """`word` without its usual endings: `files` and `file`, `deleting` and `delete` are equal."""
    word = word.lower().replace("'s", "")
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif re.search(r"(?:ss|x|ch|sh)es$", word):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = re.sub(r"([bdgmnprt])\1$", r"\1", word.removesuffix(ending))
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


_RELATED: dict[str, set[int]] = {}
for _number, _group in enumerate(_GROUPS):
    for _word in _group.split():
        _RELATED.setdefault(stem(_word), set()).add(_number)
_ACTION_OF = {stem(word): kind for kind, words in _ACTIONS.items() for word in words.split()}


def related(one: str, other: str) -> bool:
    """Whether two stems mean about the same."""
    return bool(_RELATED.get(one, set()) & _RELATED.get(other, set()))


def words(text: str) -> list[str]:
    """The words of `text`, in lower case, identifiers taken apart at `_`, `-` and capitals."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z0-9']*", apart)]


def stems(text: str) -> list[str]:
    """The stems of the words that carry meaning, in order."""
    return [stem(word) for word in words(text) if word not in _STOP]


def is_stop(word: str) -> bool:
    """Whether `word` carries no meaning of its own."""
    return word.lower().removesuffix("'s") in _STOP


def action_of(word: str) -> str | None:
    """The kind of action that a verb names: `read`, `delete`, `create`, … or None."""
    return _ACTION_OF.get(stem(word))


def without_politeness(text: str) -> str:
    """`text` from its verb or question word on."""
    return _POLITE.sub("", text, count=1)


def is_question(text: str) -> bool:
    """Whether `text` asks for information rather than for an action."""
    return bool(_QUESTION.match(without_politeness(text)))


def verb_of(text: str) -> str | None:
    """The first word of an imperative clause; None for a question."""
    rest = without_politeness(text)
    first = re.match(r"[A-Za-z]+", rest)
    return first[0].lower() if first and not is_question(text) else None
