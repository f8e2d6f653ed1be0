"""A JSON schema by any author cannot keep the process busy: design, section 6, "The deed"."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from typing import Any

import pytest

from sayso import Agent, ToolInputError, tool
from sayso.models import ToolDefinition
from sayso.models.schemas import plain_object
from sayso.tools.bounds import NESTING, VALUES
from sayso.tools.descriptions import describe
from sayso_demo.offline.filling import fill

Schema = dict[str, Any]


def made(schema: Schema) -> Any:
    @tool(name="probe", input_schema=schema)
    def probe(**values: Any) -> str:
        """Probe."""
        return "fine"

    return probe


def read(schema: Schema, **values: Any) -> Any:
    return made(schema)._inputs.read(values)


def doubled(keyword: str, levels: int, wrap: str = "") -> Schema:
    """Definitions that refer twice each to the next, directly or within `wrap`."""

    def reference(level: int) -> Schema:
        direct = {"$ref": f"#/$defs/d{level}"}
        return {wrap: direct} if wrap else direct

    parts: Schema = {f"d{n}": {keyword: [reference(n + 1)] * 2} for n in range(levels)}
    parts[f"d{levels}"] = {"type": "object"}
    return {"allOf": [{"$ref": "#/$defs/d0"}], "$defs": parts}


def nested(depth: int) -> Schema:
    value: Schema = {}
    for _ in range(depth):
        value = {"c": value}
    return value


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("wrap", ["", "not", "if", "then", "else"])
def test_schema_that_doubles_is_refused(keyword: str, wrap: str) -> None:
    for levels in (16, 25, 400):
        with pytest.raises(ValueError, match="tool 'probe': input_schema is not usable"):
            made(doubled(keyword, levels, wrap))


def test_schema_that_doubles_by_maps_is_refused() -> None:
    parts: Schema = {
        f"d{n}": {"dependentSchemas": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}}
        for n in range(20)
    }
    with pytest.raises(ValueError, match="could take too long"):
        made({"$ref": "#/$defs/d0", "$defs": {**parts, "d20": {}}})


def test_small_schemas_with_combinators_are_taken() -> None:
    choice = {"oneOf": [{"const": n} for n in range(100)]}
    schema = {"properties": {"a": choice, "b": {"anyOf": [choice, {"type": "null"}]}}}
    assert read(schema, a=3, b=None) == {"a": 3, "b": None}
    with pytest.raises(ToolInputError, match="parameter 'a'"):
        read(schema, a=-1)


def test_schema_that_doubles_with_each_level_of_an_input_refuses_deep_inputs() -> None:
    part = {"$ref": "#/$defs/node"}
    node: Schema = {"properties": {"c": part}, "patternProperties": {"^c": part}}
    schema: Schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    assert read(schema, c=nested(5))
    started = time.monotonic()
    with pytest.raises(ToolInputError, match="nested too deeply"):
        read(schema, c=nested(60))
    assert time.monotonic() - started < 20


def test_schema_of_a_tree_takes_deep_inputs() -> None:
    here = {"$ref": "#"}
    tree: Schema = {"type": "object", "properties": {"c": here, "left": here, "right": here}}
    assert read(tree, c=nested(60))


def test_wide_inputs_are_refused_where_each_part_is_looked_at_again() -> None:
    schema: Schema = {
        "allOf": [{"properties": {f"p{n}": True}} for n in range(50)],
        "unevaluatedProperties": False,
    }
    assert read(schema, p1=1)
    with pytest.raises(ToolInputError, match="too large"):
        read(schema, **{f"p{n}": n for n in range(2000)})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "are not followed"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "are not followed"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "is not in it"),
        ({"properties": {"a": {"$id": "https://example.com/a"}}}, "address of its own"),
        ({"properties": {f"a{n}": {"pattern": "a"} for n in range(200)}}, "patterns"),
        ({"properties": {"a": {"pattern": "a" * 2000}}}, "patterns"),
        ({"properties": {f"a{n}": {"type": "string"} for n in range(VALUES)}}, "values"),
        ({"default": nested(NESTING)}, "nested more than"),
        ({"default": nested(5000)}, "nested more than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_schema_beyond_its_bounds_is_refused(schema: Schema, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        made(schema)


def test_schema_that_holds_itself_is_refused() -> None:
    schema: Schema = {"properties": {}}
    schema["properties"]["a"] = schema
    with pytest.raises(ValueError, match="nested more than"):
        made(schema)


def test_references_within_a_schema_are_followed() -> None:
    schema: Schema = {
        "$id": "https://example.com/own",
        "properties": {
            "a": {"$ref": "#/$defs/x~1y"},
            "b": {"$ref": "#named"},
            "c": {"$ref": "https://example.com/own#/properties/a"},
        },
        "$defs": {"x/y": {"type": "integer"}, "z": {"$anchor": "named", "type": "string"}},
    }
    assert read(schema, a=1, b="x", c=2) == {"a": 1, "b": "x", "c": 2}
    with pytest.raises(ToolInputError):
        read(schema, b=1)


@pytest.mark.parametrize(
    "pattern", [r"^(?:(a*)*)*\1b", "(?=a)" * 50 + "(a*)*(a*)*b", r"^(?!b)(a|aa)+$(?<=b)"]
)
def test_pattern_that_goes_back_and_forth_ends_soon(pattern: str) -> None:
    started = time.monotonic()
    with pytest.raises(ToolInputError):
        read({"properties": {"a": {"pattern": pattern}}}, a="a" * 100_000 + "!")
    assert time.monotonic() - started < 20


HASTY = """
from sayso.models import ToolDefinition
from sayso_demo.offline.filling import fill

schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}
print(fill(ToolDefinition("probe", "", schema), "probe " + "a" * 60 + "!b"))
"""


def test_offline_model_reads_no_pattern_with_python() -> None:
    ran = subprocess.run([sys.executable, "-c", HASTY], timeout=60, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_offline_model_takes_the_word_that_fits_a_pattern() -> None:
    schema: Schema = {
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": "^[A-Z]+-[0-9]+$"}},
        "required": ["id"],
    }
    probe = ToolDefinition("close_ticket", "Close a ticket.", schema)
    assert fill(probe, "close the ticket OPS-17.") == {"id": "OPS-17"}


def test_names_of_types_that_double_stay_short() -> None:
    parts: Schema = {
        f"d{n}": {"anyOf": [{"type": "array", "items": {"$ref": f"#/$defs/d{n + 1}"}}, again(n)]}
        for n in range(28)
    }
    schema: Schema = {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {**parts, "d28": {"type": "string"}},
    }
    assert len(describe(schema)["a"]["type"]) < 1000


def again(level: int) -> Schema:
    return {"$ref": f"#/$defs/d{level + 1}"}


def test_names_of_types_within_types_have_an_end() -> None:
    parts: Schema = {
        f"d{n}": {"type": "array", "items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(2000)
    }
    schema: Schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**parts, "d2000": {}}}
    assert describe(made(schema).input_schema)["a"]["type"].startswith("array of array of")


def test_schema_in_the_form_for_providers_is_made_soon() -> None:
    wide = {"anyOf": [{"properties": {f"p{n}": {} for n in range(30)}}]}
    schema: Schema = {"anyOf": [copy.deepcopy(wide) for _ in range(100)]}
    agent = Agent(model="offline", tools=[made(schema)])
    started = time.monotonic()
    plain_object(agent.tools["probe"].input_schema)
    assert time.monotonic() - started < 20
