"""Arguments of a tool, taken from the user's words by its schema; none is made up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sayso import ToolDefinition
from sayso.models.adapters import plain_object, resolved
from sayso_demo.offline.words import action_of, is_stop, related, stem, without_politeness, words

QUOTED = r"\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|`[^`]*`|“[^”]*”"
PATH = r"(?<![\w@:/.])(?:~|\.{1,2})?/(?:[^\s,;'\"`?!()]*[^\s,;'\"`?!().:])?"
FILENAME = r"(?<![\w@:/.-])(?:[\w-]+/)*\w[\w-]*(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w@/])"
_NUMBER = r"(?<![\w.:/-])-?\d+(?:\.\d+)?(?![\w:/-]|\.\d)"
_VALUE = r"(\"[^\"]*\"|'[^']*'|`[^`]*`|\[[^\]]*\]|[^\s,;?!\"'`]+)"
_ITEM = r"(?:\"[^\"]*\"|'[^']*'|[^\s,;?!\"'`]+)"
_LIST = rf"(\[[^\]]*\]|{_ITEM}(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+){_ITEM})*)"
_FORMATS = {
    "email": r"(?<![\w@])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "date": r"(?<![\w-])\d{4}-\d\d-\d\d(?![\dT])",
    "uri": r"https?://[^\s,;'\"`)]+",
}
_FREE = frozenset(
    "query q text message question content body title prompt term subject comment note input"
    " description summary search city location place topic keyword".split()
)
_PLACES = frozenset("path file filename filepath directory dir folder root".split())
_PREPOSITIONS = r"(?:in|on|at|of|for|from|under|named|called|inside|within|about|to)"
_LINKING = frozenset(map(stem, "titled entitled called named saying says".split()))
_YES, _NO = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each property of a tool's schema by name, references followed, `null` branches left out."""
    plain = plain_object(schema)
    return {name: _one_branch(value, plain) for name, value in plain["properties"].items()}


def required(schema: Mapping[str, Any]) -> list[str]:
    """The names of the properties that a call must have."""
    known = properties(schema)
    return [name for name in plain_object(schema).get("required", ()) if name in known]


def mask(text: str, filler: str = " ") -> str:
    """`text` of the same length without quotations, paths and file names."""
    for pattern in (QUOTED, PATH, FILENAME):
        text = re.sub(pattern, lambda found: filler * len(found[0]), text)
    return text


def fill(tool: ToolDefinition, clause: str) -> dict[str, Any]:
    """The arguments of `tool` that `clause` states; others are left out."""
    filling = _Filling(tool, clause)
    return {name: filling.found[name] for name in filling.inputs if name in filling.found}


def coerce(text: str, schema: Mapping[str, Any]) -> Any:
    """`text` as a value of the type that `schema` names; None if it is not one."""
    if choices := schema.get("enum"):
        said = re.sub(r"[\s-]", "_", text.lower())
        return next((c for c in choices if re.sub(r"[\s-]", "_", str(c).lower()) == said), None)
    match schema.get("type"):
        case "integer":
            return int(text) if re.fullmatch(r"-?\d{1,4300}", text) else None
        case "number":
            return float(text) if re.fullmatch(r"-?\d{1,300}(?:\.\d+)?", text) else None
        case "boolean":
            return True if text.lower() in _YES else False if text.lower() in _NO else None
        case "array":
            return _document(text, list) or _items(text, schema.get("items") or {})
        case "object":
            return _document(text, dict)
    return text or None


def _document(text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, kind) else None


def _items(text: str, schema: Mapping[str, Any]) -> list[Any] | None:
    parts = [p for p in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", text.strip("[] ")) if p]
    items = [coerce(_unquoted(part), schema) for part in parts]
    return items if items and None not in items else None


def _unquoted(text: str) -> str:
    return text[1:-1] if re.fullmatch(QUOTED, text) else text


def _one_branch(value: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    schema = dict(resolved(value, root))
    branches = [resolved(b, root) for key in ("anyOf", "oneOf") for b in schema.get(key, ())]
    real = [branch for branch in branches if branch.get("type") != "null"]
    schema |= real[0] if real else {}
    if isinstance(kinds := schema.get("type"), list):
        schema["type"] = next((kind for kind in kinds if kind != "null"), "string")
    return schema


def is_place(tool: ToolDefinition, name: str) -> bool:
    """Whether the argument `name` is a path or the name of a file."""
    parts = words(name)
    about = set(words(tool.name)) & {"file", "files", "directory", "folder"}
    return bool(parts and parts[-1] in _PLACES) or (bool(about) and name == "name")


class _Filling:
    """One clause, the part of it that is not used yet, and the values found so far."""

    def __init__(self, tool: ToolDefinition, clause: str) -> None:
        self.inputs = properties(tool.input_schema)
        self.found: dict[str, Any] = {}
        self._tool = tool
        self._named = {stem(part) for part in words(tool.name)}
        self._text = clause
        self._by_name()
        self._by_kind()
        self._by_rest(required(tool.input_schema))

    def _open(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((n, s) for n, s in list(self.inputs.items()) if n not in self.found)

    def _blank(self, start: int, end: int) -> None:
        self._text = self._text[:start] + " " * (end - start) + self._text[end:]

    def _take(self, name: str, *patterns: str, strict: bool = True) -> bool:
        """Find the value of `name`: the group of a pattern, or its whole match."""
        for pattern in patterns:
            for found in re.finditer(pattern, self._text, re.IGNORECASE):
                stated = found[found.lastindex or 0]
                text = _unquoted(stated if stated.startswith("[") else stated.rstrip(".:)"))
                if not strict and (is_stop(text) or self._is_known(text)):
                    continue
                if (value := coerce(text, self.inputs[name])) is not None:
                    self.found[name] = value
                    self._blank(*found.span())
                    return True
        return False

    def _is_known(self, word: str) -> bool:
        known = self._named | {"=", "is"}
        return stem(word) in known or action_of(word) is not None or word in self.inputs

    def _by_name(self) -> None:
        nouns = "|".join(word for word in words(self._tool.name) if action_of(word) is None)
        for name, schema in self._open():
            key = re.escape(name).replace("_", r"[\s_-]?")
            value = _LIST if schema.get("type") == "array" else _VALUE
            self._take(name, rf"(?:--)?(?<!\w){key}\s*[=:]\s*{value}") or self._take(
                name,
                rf"(?<!\w){key}\s+(?:is|of|to|named|called|equals)\s+{value}",
                rf"(?<!\w){key}\s+{value}",
                rf"(?:in|for|of|on|the)\s+{value}\s+{key}(?!\w)",
                strict=False,
            )
            if nouns and words(name)[-1:] in (["name"], ["id"]) and name not in self.found:
                # It is `web-1` of "delete pod web-1".
                self._take(name, rf"(?<!\w)(?:{nouns})\s+{_VALUE}", strict=False)

    def _by_kind(self) -> None:
        for name, schema in self._open():
            kind = schema.get("type", "string")
            if choices := schema.get("enum"):
                spoken = (re.escape(str(c)).replace("_", r"[\s_-]") for c in choices)
                self._take(name, rf"(?<!\w)(?:{'|'.join(spoken)})(?!\w)")
            elif kind == "boolean":
                self._flag(name)
            elif kind == "string" and (form := _FORMATS.get(schema.get("format") or name)):
                self._take(name, form)
            elif kind == "string" and is_place(self._tool, name):
                self._take(name, QUOTED, PATH, FILENAME)
        for name, schema in self._open():
            if schema.get("type") in ("integer", "number"):
                self._take(name, _NUMBER)

    def _flag(self, name: str) -> None:
        key = re.escape(name).replace("_", r"[\s_-]?") + r"(?:ly)?(?!\w)"
        said = re.search(rf"(?P<no>(?:no|not|without)[\s-]+)?(?<!\w){key}", self._text, re.I)
        if said:
            self.found[name] = not said["no"]
            self._blank(*said.span())

    def _by_rest(self, needed: list[str]) -> None:
        strings = [n for n, s in self._open() if s.get("type", "string") == "string"]
        needed = [name for name in strings if name in needed]
        for name in needed or (strings if len(strings) == 1 else []):
            self._take(name, QUOTED)
        needed = [name for name in needed if name not in self.found]
        if len(needed) == 1:
            self._residue(needed[0])
        elif not needed and len(strings) == 1 and strings[0] not in self.found:
            if "enum" not in self.inputs[strings[0]] and not is_place(self._tool, strings[0]):
                self._take(strings[0], rf"(?<!\w){_PREPOSITIONS}\s+{_VALUE}", strict=False)

    def _residue(self, name: str) -> None:
        """Use the remaining words for the only remaining argument."""
        tokens = without_politeness(self._text.strip()).strip(" ?!.,;:").split()
        while tokens and self._is_spent(tokens[0]):
            tokens.pop(0)
        while tokens and self._is_spent(tokens[-1]):
            tokens.pop()
        if tokens and words(name)[-1:] and words(name)[-1] in _FREE:
            self.found[name] = " ".join(tokens)
        elif len(tokens) == 1 and not is_place(self._tool, name) and self._is_name(tokens[0]):
            self.found[name] = tokens[0]

    def _is_spent(self, token: str) -> bool:
        bare = token.strip(",.;:?!").lower()
        named = self._named | _LINKING | {stem(part) for key in self.inputs for part in words(key)}
        return (
            not bare
            or is_stop(bare)
            or any(stem(bare) == part or related(stem(bare), part) for part in named)
            or action_of(bare) is not None
        )

    def _is_name(self, token: str) -> bool:
        """Whether a lone word is a name: `web-1`, or `web` of "restart web"; in "the old pod" the
        word describes the thing."""
        if re.search(r"[\d_.-]|[a-z][A-Z]", token):
            return True
        around = re.search(rf"(\w+)\s+{re.escape(token)}\b\W*(\w*)", self._text)
        return (
            around is not None
            and around[1].lower() not in ("the", "a", "an")
            and stem(around[2]) not in self._named
        )
