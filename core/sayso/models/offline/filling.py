"""Arguments of a tool, taken from the user's words by its schema; nothing is made up."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sayso.models import ToolDefinition
from sayso.models.offline.words import action_of, is_stop, related, stem, without_politeness, words
from sayso.models.schemas import plain_object, resolved

PATH = re.compile(r"(?<![\w@:/.])(?:~|\.{1,2})?/(?:[^\s,;'\"`?!()]*[^\s,;'\"`?!().:])?")
FILENAME = re.compile(
    r"(?<![\w@:/.-])(?:[\w-]+/)*\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w@/])"
)
_QUOTED = re.compile(r"\"([^\"]*)\"|(?<!\w)'([^']*)'(?!\w)|`([^`]*)`|“([^”]*)”")
_NUMBER = re.compile(r"(?<![\w.:/-])-?\d+(?:\.\d+)?(?![\w:/-]|\.\d)")
_VALUE = r"(\"[^\"]*\"|'[^']*'|`[^`]*`|\[[^\]]*\]|[^\s,;?!\"'`]+)"
_ITEM = r"(?:\"[^\"]*\"|'[^']*'|[^\s,;?!\"'`]+)"
_LIST = rf"(\[[^\]]*\]|{_ITEM}(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+){_ITEM})*)"
_FORMATS = {
    "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "date": r"\d{4}-\d\d-\d\d(?![\dT])",
    "date-time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?",
    "time": r"\d\d:\d\d(?::\d\d)?",
    "uri": r"https?://[^\s,;'\"`)]+",
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": r"\d{1,3}(?:\.\d{1,3}){3}",
    "hostname": r"[A-Za-z0-9][\w-]*(?:\.[\w-]+)+",
}
_FREE = frozenset(
    "query q text message question content body title prompt term subject comment note input"
    " description summary search city location place topic keyword".split()
)
_PLACES = frozenset("path file filename filepath directory dir folder root".split())
_PREPOSITIONS = r"(?:in|on|at|of|for|from|under|named|called|inside|within|about|to)"
_LINKING = frozenset(map(stem, "titled entitled called named saying says".split()))
_YES, _NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
_WORD = re.compile(r"[^\s,;?!\"'`()]+")
_WORDS, _WORD_SIZE = 1000, 100
"""Words that are compared with a pattern, and the characters of the longest."""


@functools.lru_cache(maxsize=256)
def _word_test(pattern: str) -> Callable[[str], bool] | None:
    """Whether a word as a whole fits `pattern`; None for one that is not understood.

    Another's server may have written it, and Python's expressions may take hours for one word.
    """
    import jsonschema_rs

    whole = f"^(?:{pattern.removeprefix('^').removesuffix('$')})$"
    limits = jsonschema_rs.FancyRegexOptions(backtrack_limit=1000, size_limit=2**20)
    try:
        return jsonschema_rs.validator_for({"pattern": whole}, pattern_options=limits).is_valid
    except ValueError:
        return None


def properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each property of a tool's schema by name, references followed, `null` branches left out."""
    plain = plain_object(schema)
    return {name: _one_branch(value, plain) for name, value in plain["properties"].items()}


def required(schema: Mapping[str, Any]) -> list[str]:
    """The names of the properties that a call must have."""
    known = properties(schema)
    return [name for name in plain_object(schema).get("required", ()) if name in known]


def mask(text: str, filler: str = " ") -> str:
    """`text` of the same length without what is quoted, paths and file names."""
    for pattern in (_QUOTED, PATH, FILENAME):
        text = pattern.sub(lambda found: filler * len(found[0]), text)
    return text


def fill(tool: ToolDefinition, clause: str) -> dict[str, Any]:
    """The arguments of `tool` that `clause` states; one that it does not state is left out."""
    filling = _Filling(tool, clause)
    filling.by_rest()
    return filling.ordered()


def answer(tool: ToolDefinition, missing: Sequence[str], text: str) -> dict[str, Any]:
    """The missing arguments that the answer to a question for the first of them gives."""
    filling = _Filling(tool, text)
    found = filling.ordered()
    if found.keys() & set(missing):
        return found
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(missing):
        parts = [text.strip().rstrip(".!")]
    for name, part in zip(missing, parts, strict=False):
        value = coerce(_unquoted(part), filling.inputs[name])
        if value is not None:
            found[name] = value
    return found


def coerce(text: str, schema: Mapping[str, Any]) -> Any:
    """`text` as a value of the type that `schema` names; None when it is none."""
    if choices := schema.get("enum"):
        return next((c for c in choices if str(c).lower() == text.lower()), None)
    match schema.get("type"):
        case "integer":
            return int(text) if re.fullmatch(r"-?\d{1,4300}", text) else None
        case "number":
            return float(text) if re.fullmatch(r"-?\d{1,300}(?:\.\d+)?", text) else None
        case "boolean":
            return True if text.lower() in _YES else False if text.lower() in _NO else None
        case "array" | "object" as kind:
            return _json_value(text, list if kind == "array" else dict) or _items(text, schema)
    return text or None


def _json_value(text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, kind) else None


def _items(text: str, schema: Mapping[str, Any]) -> list[Any] | None:
    if schema.get("type") != "array" or not text:
        return None
    parts = [p for p in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", text.strip("[] ")) if p]
    items = [coerce(_unquoted(part), schema.get("items") or {}) for part in parts]
    return items if items and None not in items else None


def _unquoted(text: str) -> str:
    whole = _QUOTED.fullmatch(text)
    return next(g for g in whole.groups() if g is not None) if whole else text


def _one_branch(value: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    schema = dict(resolved(value, root))
    for key in ("anyOf", "oneOf"):
        branches = [resolved(branch, root) for branch in schema.get(key, ())]
        real = [branch for branch in branches if branch.get("type") != "null"]
        if real:
            schema = {**schema, **real[0]}
    if isinstance(kinds := schema.get("type"), list):
        schema["type"] = next((kind for kind in kinds if kind != "null"), "string")
    return schema


class _Filling:
    """One clause, the part of it that is not used yet, and the values found so far."""

    def __init__(self, tool: ToolDefinition, clause: str) -> None:
        self.tool = tool
        self.inputs = properties(tool.input_schema)
        self.required = required(tool.input_schema)
        self.found: dict[str, Any] = {}
        self._text = clause
        self._from_json()
        self._by_name()
        self._by_kind()

    def ordered(self) -> dict[str, Any]:
        return {name: self.found[name] for name in self.inputs if name in self.found}

    def _from_json(self) -> None:
        start = self._text.find("{")
        if start < 0:
            return
        try:
            value, end = json.JSONDecoder().raw_decode(self._text, start)
        except ValueError:
            return
        if isinstance(value, dict) and value.keys() <= self.inputs.keys():
            self.found.update(value)
            self._blank(start, end)

    def _by_name(self) -> None:
        for name, schema in self._open():
            key = re.escape(name).replace("_", r"[\s_-]?")
            value = _LIST if schema.get("type") == "array" else _VALUE
            for pattern in (
                rf"(?:--)?(?<!\w){key}\s*[=:]\s*{value}",
                rf"(?<!\w){key}\s+(?:is|of|to|named|called|equals)\s+{value}",
                rf"(?<!\w){key}\s+{value}",
                rf"(?:in|for|of|on|the)\s+{value}\s+{key}(?!\w)",
            ):
                if self._take(name, schema, pattern, strict=pattern.startswith("(?:--)?")):
                    break

    def _by_kind(self) -> None:
        for name, schema in self._open():
            if "enum" in schema:
                self._enum(name, schema)
            elif schema.get("type") == "boolean":
                self._boolean(name)
            elif "format" not in schema and isinstance(pattern := schema.get("pattern"), str):
                self._fitting(name, schema, pattern)
            elif (form := self._format(name, schema)) is not None:
                self._take(name, schema, f"(?<![\\w@])({form})", strict=True)
            elif schema.get("type", "string") == "string" and self._is_place(name):
                self._place(name)
        for name, schema in self._open():
            if schema.get("type") in ("integer", "number"):
                self._take(name, schema, f"({_NUMBER.pattern})", strict=True)
            elif schema.get("type") == "array":
                self._array(name, schema)

    def by_rest(self) -> None:
        strings = [n for n, s in self._open() if s.get("type", "string") == "string"]
        needed = [name for name in strings if name in self.required]
        for name in needed or (strings if len(strings) == 1 else []):
            if quoted := _QUOTED.search(self._text):
                self.found[name] = _unquoted(quoted[0])
                self._blank(*quoted.span())
        needed = [name for name in needed if name not in self.found]
        if len(needed) > 1 and self._after_noun(needed[0]):
            needed = needed[1:]
        if len(needed) == 1:
            self._residue(needed[0])
        elif not needed and len(strings) == 1 and strings[0] not in self.found:
            self._after_preposition(strings[0])

    def _open(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((n, s) for n, s in list(self.inputs.items()) if n not in self.found)

    def _blank(self, start: int, end: int) -> None:
        self._text = self._text[:start] + " " * (end - start) + self._text[end:]

    def _take(self, name: str, schema: Mapping[str, Any], pattern: str, *, strict: bool) -> bool:
        for found in re.finditer(pattern, self._text, re.IGNORECASE):
            word = found[1] if found[1].startswith("[") else found[1].rstrip(".:)")
            text = _unquoted(word)
            if not strict and (is_stop(text) or self._is_known(text)):
                continue
            value = coerce(text, schema)
            if value is not None:
                self.found[name] = value
                self._blank(*found.span())
                return True
        return False

    def _is_known(self, word: str) -> bool:
        root = stem(word)
        known = {stem(part) for part in words(self.tool.name)} | {"=", "is"}
        return root in known or action_of(word) is not None or word in self.inputs

    def _enum(self, name: str, schema: Mapping[str, Any]) -> None:
        for choice in schema["enum"]:
            spoken = re.escape(str(choice)).replace("_", r"[\s_-]")
            if found := re.search(rf"(?<!\w){spoken}(?!\w)", self._text, re.IGNORECASE):
                self.found[name] = choice
                self._blank(*found.span())
                return

    def _boolean(self, name: str) -> None:
        key = re.escape(name).replace("_", r"[\s_-]?")
        ending = r"(?:ly)?(?!\w)"
        if found := re.search(rf"(?:no|not|without)[\s-]+{key}{ending}", self._text, re.IGNORECASE):
            self.found[name] = False
        elif found := re.search(rf"(?:--)?(?<!\w){key}{ending}", self._text, re.IGNORECASE):
            self.found[name] = True
        if found:
            self._blank(*found.span())

    def _format(self, name: str, schema: Mapping[str, Any]) -> str | None:
        if schema.get("type", "string") != "string":
            return None
        guess = {"email": "email", "url": "uri", "uri": "uri", "date": "date", "ip": "ipv4"}
        return _FORMATS.get(schema.get("format") or guess.get(name.lower(), ""))

    def _fitting(self, name: str, schema: Mapping[str, Any], pattern: str) -> None:
        """Take the first word that fits a pattern of the tool's own."""
        fits = _word_test(pattern)
        # A pattern that takes any word says nothing about which word is meant.
        if fits is None or fits("anything"):
            return
        for found in itertools.islice(_WORD.finditer(self._text), _WORDS):
            word = found[0].rstrip(".:")
            if len(word) <= _WORD_SIZE and fits(word) and (value := coerce(word, schema)):
                self.found[name] = value
                self._blank(found.start(), found.start() + len(word))
                return

    def _is_place(self, name: str) -> bool:
        parts = words(name)
        about = set(words(self.tool.name)) & {"file", "files", "directory", "folder"}
        return bool(parts and parts[-1] in _PLACES) or (bool(about) and name == "name")

    def _place(self, name: str) -> None:
        for pattern in (_QUOTED, PATH, FILENAME):
            if found := pattern.search(self._text):
                self.found[name] = _unquoted(found[0])
                self._blank(*found.span())
                return

    def _array(self, name: str, schema: Mapping[str, Any]) -> None:
        items = schema.get("items") or {}
        if items.get("type") in ("integer", "number"):
            stated = list(_NUMBER.finditer(self._text))
            values = [value for m in stated if (value := coerce(m[0], items)) is not None]
        else:
            stated = list(_QUOTED.finditer(self._text))
            values = [_unquoted(m[0]) for m in stated]
        if values:
            self.found[name] = values
        for found in stated:
            self._blank(*found.span())

    def _residue(self, name: str) -> None:
        rest = without_politeness(self._text.strip()).strip(" ?!.,;:")
        tokens = rest.split()
        while tokens and self._is_spent(tokens[0]):
            tokens.pop(0)
        while tokens and self._is_spent(tokens[-1]):
            tokens.pop()
        if not tokens:
            return
        if words(name)[-1:] and words(name)[-1] in _FREE:
            self.found[name] = " ".join(tokens)
        elif len(tokens) == 1 and not self._is_place(name) and self._is_identifier(tokens[0]):
            self.found[name] = tokens[0]

    def _is_spent(self, token: str) -> bool:
        bare = token.strip(",.;:?!").lower()
        if not bare or is_stop(bare):
            return True
        root = stem(bare)
        named = {stem(part) for part in words(self.tool.name)} | _LINKING
        named |= {stem(part) for key in self.inputs for part in words(key)}
        return root in named or any(related(root, part) for part in named) or bool(action_of(bare))

    def _is_identifier(self, token: str) -> bool:
        """Whether a lone word stands for a thing by name: `web-1`, or `web` right after `pod`."""
        if re.search(r"[\d_.-]|[a-z][A-Z]", token):
            return True
        tokens = [t.strip(",.;:?!").lower() for t in self._text.split()]
        bare = token.strip(",.;:?!").lower()
        place = tokens.index(bare) if bare in tokens else 0
        before = tokens[place - 1] if place else ""
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        # In "the old pod" the word describes the thing and is no name of it.
        return bool(before) and before not in ("the", "a", "an") and not self._is_named(after)

    def _is_named(self, word: str) -> bool:
        return bool(word) and stem(word) in {stem(part) for part in words(self.tool.name)}

    def _after_noun(self, name: str) -> bool:
        """Take `web-1` of "delete pod web-1" for `name`, `pod_id` or `pod`."""
        nouns = [word for word in words(self.tool.name) if action_of(word) is None]
        last = words(name)[-1:]
        if not nouns or not last or (last[0] not in ("name", "id") and last[0] not in nouns):
            return False
        pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, nouns))})\s+{_VALUE}"
        return self._take(name, self.inputs[name], pattern, strict=False)

    def _after_preposition(self, name: str) -> None:
        schema = self.inputs[name]
        if "enum" not in schema and not self._is_place(name):
            self._take(name, schema, rf"(?<!\w){_PREPOSITIONS}\s+{_VALUE}", strict=False)
