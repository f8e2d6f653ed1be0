"""Each cell of the tables in docs/models.md, against a server with the provider's rules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from asking import asked, calls_of, reply_of, said, text_of, user
from gemini_server import GeminiServer
from platforms import BedrockServer, FoundryServer, VertexServer
from providers import AnthropicServer, OpenAIServer, stream
from responses_server import ResponsesServer

from sayso.models import Reply, Result, Thought, dump_turns, load_model, load_turns
from sayso.models.names import EXTRAS
from sayso_openai.presets import PRESETS

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
CALL = ("toolu_1", "get_weather", '{"city": "Rome"}')
ROWS: Mapping[str, tuple[type[Any], str]] = {
    "anthropic": (AnthropicServer, "anthropic:claude-opus-5-5"),
    "bedrock": (BedrockServer, "bedrock:eu.anthropic.claude-opus-4-8"),
    "vertex": (VertexServer, "vertex:claude-opus-5-5"),
    "foundry": (FoundryServer, "foundry:claude-opus-5-5"),
    "openai-responses": (ResponsesServer, "openai-responses:gpt-5.5"),
    "openai-chat": (OpenAIServer, "openai-chat:gemini-like"),
    "gemini": (GeminiServer, "gemini:gemini-3.8-flash"),
}


class Row:
    """A provider's model and its server."""

    def __init__(self, server: Any, spec: str) -> None:
        self.server = server
        self.spec = spec

    def asked(self, *turns: Any, options: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        settings = {**self.server.settings(), "retries": 0, **(options or {})}
        found = asked(load_model(self.spec, settings), *turns, **fields)
        assert self.server.refusals == []
        return found

    def says(self, *args: Any, **fields: Any) -> None:
        self.server.then(stream(self.server.message(*args, **fields)))

    def sent(self, at: int = -1) -> str:
        return json.dumps(self.server.requests[at].body)


def _tools(row: Row) -> bool:
    row.says("", [CALL])
    first: Reply = reply_of(row.asked(user("weather?")))
    row.says("Sunny.")
    found = row.asked(user("weather?"), first.turn, user(Result("toolu_1", "no", is_error=True)))
    return said(found) == "Sunny." and bool(calls_of(first.turn))


def _thoughts(row: Row) -> bool:
    row.says("Fine.", thinking="The user asks.")
    found = row.asked()
    thoughts = "".join(event.text for event in found if isinstance(event, Thought))
    return thoughts == "The user asks." and said(found) == "Fine."


def _resumes(row: Row) -> bool:
    row.says("I look.", [CALL], thinking="The user asks.")
    turn = reply_of(row.asked(user("weather?"))).turn
    (turn,) = load_turns(json.loads(json.dumps(dump_turns([turn]))))
    row.says("Sunny.")
    row.asked(user("weather?"), turn, user(Result("toolu_1", "sun")))
    own = ("c2lnbmF0dXJl", "gAAAA-opaque", "reasoning_content")
    return any(mark in row.sent() for mark in own)


def _structured(row: Row) -> bool:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    row.says('{"ok": true}')
    found = row.asked(user("hi"), schema=schema, tools=())
    return text_of(reply_of(found).turn) == '{"ok": true}' and '"ok"' in row.sent()


def _cached(row: Row) -> bool:
    row.says("Fine.")
    return bool(reply_of(row.asked()).usage.cache_read_tokens == 5)


def _reasoning(row: Row) -> bool:
    row.says("Fine.")
    return bool(reply_of(row.asked()).usage.reasoning_tokens == 2)


def _effort(row: Row) -> bool:
    row.says("Fine.")
    row.asked(options={"effort": "low"})
    return bool(re.search(r'"low"', row.sent(), re.IGNORECASE))


def _marks(row: Row) -> bool:
    row.says("Fine.")
    row.asked(system="S", config={"cache_system_prompt": True})
    return "cache_control" in row.sent()


COLUMNS: Mapping[str, Callable[[Row], bool]] = {
    "tools and approvals": _tools,
    "thoughts shown": _thoughts,
    "suspended turns resume with the provider's own blocks": _resumes,
    "structured replies": _structured,
    "cached tokens counted": _cached,
    "reasoning tokens counted": _reasoning,
    "effort": _effort,
    "cache marks": _marks,
}


def tables() -> list[list[list[str]]]:
    """The tables of the page, each row as its cells."""
    found: list[list[list[str]]] = [[]]
    for line in PAGE.splitlines():
        if line.startswith("| "):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found[-1].append([cell.strip().replace("\\|", "|") for cell in cells])
        elif found[-1]:
            found.append([])
    return [[row for row in table if set(row[0]) != {"-"}] for table in found if table]


def of_capabilities() -> list[list[str]]:
    return next(table for table in tables() if table[0][0] == "")


def cells() -> Sequence[tuple[str, str, str]]:
    head, *rows = of_capabilities()
    return [
        (row[0].strip("`"), column, cell)
        for row in rows
        for column, cell in zip(head[1:], row[1:], strict=True)
    ]


def test_table_has_each_provider_and_each_capability() -> None:
    assert {name for name, _, _ in cells()} == ROWS.keys()
    assert {column for _, column, _ in cells()} == COLUMNS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "column", "cell"), cells())
def test_cell_says_what_the_provider_can_do(name: str, column: str, cell: str) -> None:
    kind, spec = ROWS[name]
    with kind() as server:
        assert ("yes" if COLUMNS[column](Row(server, spec)) else "no") == cell


def test_each_provider_and_preset_stands_on_the_page() -> None:
    named = {row[0].strip("`") for table in tables() for row in table}
    assert EXTRAS.keys() <= named


def test_presets_have_the_addresses_and_keys_that_the_page_says() -> None:
    table = next(table for table in tables() if table[0][0] == "preset")
    said = {row[0].strip("`"): row[1:] for row in table[1:]}
    assert said.keys() == PRESETS.keys()
    for name, preset in PRESETS.items():
        api, address, key = said[name]
        assert api == {"responses": "Responses", "chat": "Chat Completions"}[preset.wire]
        assert all(each in address for each in (preset.address, *preset.addresses))
        assert all(each in key for each in preset.keys)
        assert preset.needs_key is ("if it wants one" not in key and key != "none")
