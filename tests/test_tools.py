from __future__ import annotations

import asyncio
import functools
import json
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum, StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    RootModel,
    field_validator,
)
from typing_extensions import TypeAliasType

from sayso import Agent, Call
from sayso.context import Session
from sayso.errors import ToolInputError
from sayso.testing import scripted, served
from sayso.tools import Tool, as_tools, tool
from sayso.tools.values import (
    AudioContent,
    ImageContent,
    ResourceContent,
    TextContent,
    ToolResult,
    text_of,
)
from sayso.wire.masking import error_text, hidden_trace

if TYPE_CHECKING:
    from sayso.context import RequestContext

SESSION = Session({"a": 1})
CONTEXT = SimpleNamespace(platform=None)


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class Label(BaseModel):
    key: str
    value: str = ""


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    force: bool
    grace: NotRequired[int]


def called(made: Tool, input: Mapping[str, Any]) -> Any:
    return made.call(made.validate(input), SESSION, CONTEXT)


def refusal(made: Tool, input: Mapping[str, Any]) -> str:
    with pytest.raises(ToolInputError) as caught:
        made.validate(input)
    message = str(caught.value)
    assert 0 < len(message) <= 1000
    message.encode()
    return message


def types_of(made: Tool) -> dict[str, str]:
    return {name: entry["type"] for name, entry in made.input_description.items()}


def test_plain_decorator_reads_name_docstring_and_signature() -> None:
    @tool
    def list_pods(namespace: str = "default") -> str:
        """List the pods of a namespace."""
        return f"pods of {namespace}"

    assert list_pods.name == "list_pods"
    assert list_pods.description == "List the pods of a namespace."
    assert list_pods.input_schema == {
        "type": "object",
        "properties": {"namespace": {"type": "string", "default": "default"}},
        "additionalProperties": False,
    }
    assert not list_pods.requires_approval
    assert list_pods("kube") == "pods of kube"
    assert getattr(list_pods, "__name__", None) == "list_pods"
    assert called(list_pods, {}) == "pods of default"


def test_decorator_with_options_keeps_them() -> None:
    @tool(
        requires_approval=True,
        name="rm",
        description="Remove it.",
        timeout=5,
        idempotent=True,
        editable=["path"],
        read_only=False,
        destructive=True,
        title="Remove",
    )
    def remove(path: str, force: bool = False) -> str:
        return path

    assert (remove.name, remove.description, remove.timeout) == ("rm", "Remove it.", 5.0)
    assert remove.requires_approval and remove.idempotent and remove.destructive
    assert remove.editable == ("path",)
    assert remove.title == "Remove" and remove.read_only is False
    assert remove.definition.name == "rm"
    assert remove.definition.input_schema["required"] == ["path"]
    assert "requires_approval=True" in repr(remove)


def test_function_without_parameters_takes_an_empty_object() -> None:
    made = tool(lambda: "now", name="clock")
    assert made.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert called(made, {}) == "now"
    assert "there is no parameter 'zone'" in refusal(made, {"zone": "UTC"})


GOOGLE = """Scale a deployment.

Waits until it is done.

Args:
    name (str): The thing to
        scale.
    count: How many.

Returns:
    A sentence.
"""
NUMPY = """Scale a deployment.

Waits until it is done.

Parameters
----------
name : str
    The thing to scale.
count : int, optional
    How many.

Returns
-------
str
    A sentence.
"""
SPHINX = """Scale a deployment.

Waits until it is done.

:param name: The thing to scale.
:param int count: How many.
:returns: A sentence.
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_parameter_descriptions_come_from_each_docstring_style(docstring: str) -> None:
    def scale(name: str, count: int = 1) -> str:
        return ""

    scale.__doc__ = docstring
    made = tool(scale)
    assert made.description == "Scale a deployment.\n\nWaits until it is done."
    assert made.input_description == {
        "name": {"type": "string", "description": "The thing to scale."},
        "count": {"type": "integer", "description": "How many."},
    }


@pytest.mark.parametrize("place", ["$defs", "definitions"])
def test_definitions_of_a_stated_schema_are_described_by_either_name(place: str) -> None:
    def scale(count: int) -> str:
        return ""

    stated = {
        "properties": {"count": {"$ref": f"#/{place}/Count"}},
        "required": ["count"],
        place: {"Count": {"type": "integer", "description": "How many."}},
    }
    made = tool(scale, input_schema=stated)
    assert made.input_description == {"count": {"type": "integer", "description": "How many."}}


@pytest.mark.parametrize(
    "parameters",
    ["Args:\n    name: The thing.", ":param name: The thing."],
    ids=["google", "sphinx"],
)
def test_what_a_docstring_says_after_the_parameters_is_described_too(parameters: str) -> None:
    def scale(name: str) -> str:
        return name

    scale.__doc__ = f"Scale it.\n\n{parameters}\n\nNever on Fridays.\n\nReturns:\n    A word."
    made = tool(scale)
    assert made.description.startswith("Scale it.\n\nNever on Fridays.")
    assert made.input_description["name"]["description"] == "The thing."


def test_docstring_that_begins_with_its_parameters_describes_them() -> None:
    @tool(description="Scale it.")
    def scale(name: str) -> str:
        """
        Args:
            name: The thing to scale.
        """
        return name

    assert scale.input_description["name"]["description"] == "The thing to scale."


def test_annotated_description_wins_over_the_docstring() -> None:
    @tool
    def scale(
        name: Annotated[str, Field(description="from the field", max_length=3)],
        unit: Annotated[str, "from a note"] = "pod",
        count: int = Field(2, description="from the default", ge=1),
    ) -> tuple[str, str, int]:
        """Scale.

        :param name: from the docstring
        """
        return name, unit, count

    descriptions = [entry["description"] for entry in scale.input_description.values()]
    assert descriptions == ["from the field", "from a note", "from the default"]
    assert called(scale, {"name": "web"}) == ("web", "pod", 2)
    assert "'name'" in refusal(scale, {"name": "webserver"})
    assert "'count'" in refusal(scale, {"name": "web", "count": 0})


def test_rich_types_are_described_and_coerced() -> None:
    @tool
    def apply(
        level: Level,
        mode: Literal["fast", "safe"],
        when: date,
        labels: list[Label],
        at: Point,
        options: Options,
        size: int | str,
        note: str | None = None,
        limits: dict[str, float] = {},  # noqa: B006
        pair: tuple[int, bool] = (1, True),
    ) -> dict[str, Any]:
        return dict(locals())

    assert types_of(apply) == {
        "level": "string",
        "mode": "string",
        "when": "string",
        "labels": "array of object",
        "at": "object",
        "options": "object",
        "size": "integer or string",
        "note": "string or null",
        "limits": "object",
        "pair": "array",
    }
    sent = {
        "level": "low",
        "mode": "fast",
        "when": "2026-01-02",
        "labels": [{"key": "a"}],
        "at": {"x": 1},
        "options": {"force": True},
        "size": "3",
        "pair": [2, False],
    }
    got = called(apply, sent)
    assert got["level"] is Level.LOW and got["when"] == date(2026, 1, 2)
    assert got["labels"] == [Label(key="a")] and got["at"] == Point(1)
    assert got["options"] == {"force": True} and got["size"] == "3" and got["pair"] == (2, False)
    assert "options" in refusal(apply, {**sent, "options": {"force": "never"}})
    assert "options.force" in refusal(apply, {**sent, "options": {"grace": 1}})
    assert got["note"] is None and got["limits"] == {}
    assert "title" not in json.dumps(apply.input_schema["properties"])


def test_type_that_has_itself_within_is_described_and_proposed() -> None:
    tree = TypeAliasType("tree", "list[tree]")  # type: ignore[misc]
    value = TypeAliasType("value", "dict[str, value] | list[value] | str")  # type: ignore[misc]

    @tool(requires_approval=True)
    def plant(at: tree, and_at: tree, what: value) -> str:
        return f"{at} {and_at} {what}"

    assert types_of(plant) == {
        "at": "array of any",
        "and_at": "array of any",
        "what": "object or array of any or string",
    }
    call = Call("1", "plant", {"at": [[]], "and_at": [], "what": {"a": ["b"]}})
    with served(Agent(model=scripted([call], "planted"), tools=[plant])) as service:
        talk = service.conversation()
        talk.say("a tree")
        (done,) = talk.approve()["data"]["executed_tool_calls"]
    assert done["output"] == "[[]] [] {'a': ['b']}"


def test_booleans_are_only_true_and_false() -> None:
    @tool
    def remove(
        force: bool = False,
        each: list[bool] | None = None,
        some: Sequence[Annotated[bool, "whether"]] = (),
        named: Mapping[str, bool] = {},
    ) -> Any:
        return force, each

    assert called(remove, {"force": True, "each": [False]}) == (True, [False])
    assert "'force'" in refusal(remove, {"force": "yes"})
    assert "'force'" in refusal(remove, {"force": 1})
    assert "each.0" in refusal(remove, {"each": ["true"]})
    assert "some.0" in refusal(remove, {"some": ["yes"]})
    assert "named.all" in refusal(remove, {"named": {"all": 1}})


def test_number_written_as_text_is_taken() -> None:
    made = tool(lambda count: count, name="f", input_schema=None)
    assert called(made, {"count": "5"}) == "5"

    @tool
    def lines(count: int) -> int:
        return count

    assert called(lines, {"count": "5"}) == 5
    assert 'got "many"' in refusal(lines, {"count": "many"})


def test_default_of_none_takes_null() -> None:
    @tool
    def find(
        name: str = None,  # type: ignore[assignment]
        limit: Annotated[int, Field(ge=1)] = None,  # type: ignore[assignment]
    ) -> Any:
        return name, limit

    assert called(find, {"name": None, "limit": None}) == (None, None)
    assert "limit" in refusal(find, {"limit": 0})


def test_default_that_is_no_json_stays_with_the_function() -> None:
    missing = object()

    @tool
    def find(
        name: Any = missing,
        root: Path = Path("/srv"),
        most: float = math.inf,
        sep: str = "\udcff",
        limit: float = Field(default=-math.inf, lt=7),
    ) -> Any:
        return name is missing, root, most, sep, limit

    properties = find.input_schema["properties"]
    assert [name for name in properties if "default" in properties[name]] == ["root"]
    assert properties["limit"]["exclusiveMaximum"] == 7
    assert called(find, {}) == (True, Path("/srv"), math.inf, "\udcff", -math.inf)
    assert "limit" in refusal(find, {"limit": 7})


def test_default_in_an_annotation_is_passed() -> None:
    @tool
    def find(name: Annotated[str, Field(default="web")], limit: int = 3) -> Any:
        return name, limit

    assert called(find, {}) == ("web", 3)


def test_default_of_a_sole_model_is_what_an_empty_input_gives() -> None:
    class Options(BaseModel):
        name: str
        limit: int = 20
        seen: list[str] = []

    @dataclass
    class Page:
        size: int = 10

    everything, long = Options(name="all", limit=50), Page(size=30)

    @tool
    def find(options: Options = everything) -> Any:
        options.seen.append("it")
        return options.name, options.limit, options.seen

    @tool(input_schema=Page)
    def page(page: Page = long) -> int:
        return page.size

    for _ in range(2):
        assert called(find, {}) == ("all", 50, ["it"])
    assert called(find, {"name": "a"}) == ("a", 20, ["it"])
    assert "name" in refusal(find, {"limit": 1})
    assert find.as_called({}) == {"name": "all", "limit": 50, "seen": []}
    assert (called(page, {}), called(page, {"size": 1})) == (30, 1)


def test_schema_says_nothing_that_no_json_holds() -> None:
    class Span(BaseModel):
        most: float = math.inf
        least: Annotated[float, Field(ge=0, lt=math.inf)] = 0

    @tool
    def model(span: Span) -> float:
        return span.most

    @tool
    def nested(spans: list[Span], default: Annotated[float | None, Field(gt=-math.inf)]) -> float:
        return spans[0].most

    stated = {"type": "object", "properties": {"most": {"default": math.inf}}}

    @tool(input_schema=stated)
    def given(most: float = math.inf) -> float:
        return most

    for made in (model, nested, given):
        json.dumps([made.input_schema, made.input_description], allow_nan=False)
    assert model.input_schema["properties"]["least"] == {
        "default": 0,
        "minimum": 0,
        "type": "number",
    }
    assert called(model, {}) == called(nested, {"spans": [{}], "default": None}) == math.inf
    assert called(given, {}) == math.inf


def test_validator_of_a_parameter_runs_once() -> None:
    twice = AfterValidator(lambda value: value * 2)
    said = BeforeValidator(lambda value: f"<{value}>")

    @tool
    def order(
        count: Annotated[int, twice],
        more: Annotated[int, Field(ge=1), twice] = 1,
        name: Annotated[str, said, "the name"] = Field(default="x"),
    ) -> Any:
        return count, more, name

    assert called(order, {"count": 2}) == (4, 1, "x")
    assert called(order, {"count": 2, "more": 3, "name": "y"}) == (4, 6, "<y>")
    assert order.input_schema["properties"]["name"]["description"] == "the name"
    assert "more" in refusal(order, {"count": 2, "more": 0})


def test_session_and_context_are_injected_by_annotation() -> None:
    @tool
    def one(ctx: RequestContext, state: Session, text: str) -> Any:
        return ctx, state, text

    @tool
    def two(state: Session | None = None, ctx: RequestContext | None = None) -> Any:
        return ctx, state

    assert list(one.input_schema["properties"]) == ["text"]
    assert called(one, {"text": "t"}) == (CONTEXT, SESSION, "t")
    assert "Session" not in json.dumps(one.input_schema)
    assert two.input_schema["properties"] == {}
    assert called(two, {}) == (CONTEXT, SESSION)


SPELLINGS = [
    ("Session", "RequestContext"),
    ("'Session | None'", "'RequestContext'"),
    ("None | Session", "Optional[RequestContext]"),
    ("Annotated[Session, 'state']", "Annotated[RequestContext | None, 'who asks']"),
    ("sayso.Session", "sayso.RequestContext"),
    ("'a.Session | None'", "Annotated[a.RequestContext, 'who asks']"),
]


@pytest.mark.parametrize(("state", "asking"), SPELLINGS)
def test_classes_imported_for_type_checkers_only_are_injected_in_every_spelling(
    state: str, asking: str
) -> None:
    module: dict[str, Any] = {"Annotated": Annotated, "Optional": Optional}
    lines = [
        "from __future__ import annotations",
        f"def look(state: {state}, asking: {asking}, text: str = '') -> object:",
        "    return state, asking",
    ]
    exec("\n".join(lines), module)
    made = tool(module["look"])
    assert list(made.input_schema["properties"]) == ["text"]
    assert called(made, {}) == (SESSION, CONTEXT)


def test_context_is_injected_when_its_class_is_known_at_run_time() -> None:
    from sayso.context import RequestContext as Known

    class Own(Known):
        pass

    def one(ctx: Any, again: Any, text: str) -> Any:
        return ctx, again

    one.__annotations__.update(ctx=Known, again=Own | None)
    made = tool(one)
    assert list(made.input_schema["properties"]) == ["text"]
    assert called(made, {"text": "t"}) == (CONTEXT, CONTEXT)


def test_typed_dict_whose_fields_cannot_be_read_is_refused_with_the_name_of_the_tool() -> None:
    class Hidden(TypedDict):
        one: NotRequired[Inner]

    class Inner(TypedDict):
        two: int

    def take(it: Hidden, more: int = 1) -> None:
        """Take it."""

    def given(it: Any) -> None:
        """Take it, too."""

    for fn, schema in ((take, None), (given, Hidden)):
        with pytest.raises(TypeError, match="tool 'take': parameter 'it' cannot be described"):
            tool(fn, name="take", input_schema=schema)


def test_session_is_injected_through_the_alias_of_a_type_statement() -> None:
    known = TypeAliasType("known", Session)
    perhaps = TypeAliasType("perhaps", known | None)  # type: ignore[valid-type]

    def note(text: str, state: known, more: perhaps = None) -> None:  # type: ignore[valid-type]
        """Note a text."""

    note.__annotations__ |= {"state": known, "more": perhaps}
    made = tool(note)
    assert list(made.input_schema["properties"]) == ["text"]


def test_session_and_context_are_injected_by_name() -> None:
    @tool
    def one(session, context, text: str):  # type: ignore[no-untyped-def]
        return session, context

    @tool
    def two(session: dict[str, Any], context: Any) -> Any:
        return session, context

    for made in (one, two):
        assert called(made, {"text": "t"} if made is one else {}) == (SESSION, CONTEXT)
        assert not {"session", "context"} & set(made.input_schema["properties"])


def test_parameter_named_context_with_a_type_of_its_own_is_the_models() -> None:
    @tool
    def use(context: str, session: int) -> str:
        """Use a cluster context."""
        return f"{context} {session}"

    assert called(use, {"context": "prod", "session": 3}) == "prod 3"


def test_model_cannot_send_injected_parameters() -> None:
    @tool
    def save(session: Session, **values: str) -> Any:
        return session, values

    assert called(save, {"a": "1"}) == (SESSION, {"a": "1"})
    assert "'session'" in refusal(save, {"session": {"a": 2}})


def test_keyword_rest_is_open_and_typed() -> None:
    @tool
    def label(name: str, **labels: int) -> Any:
        return name, labels

    assert label.input_schema["additionalProperties"] == {"type": "integer"}
    assert called(label, {"name": "a", "x": "1", "p0": 2}) == ("a", {"x": 1, "p0": 2})
    assert "'x'" in refusal(label, {"name": "a", "x": "many"})

    def mark(**marks: bool) -> Any:
        return marks

    assert "'x'" in refusal(tool(mark), {"x": "yes"})


def test_parameters_may_have_any_python_name() -> None:
    @tool
    def odd(json: str, model_config: int, _private: str, copy: bool, schema: str = "s") -> Any:
        return json, model_config, _private, copy, schema

    assert list(odd.input_schema["properties"]) == [
        "json",
        "model_config",
        "_private",
        "copy",
        "schema",
    ]
    given_input = {"json": "j", "model_config": 1, "_private": "p", "copy": True}
    assert called(odd, given_input) == ("j", 1, "p", True, "s")


def test_locally_defined_types_are_found() -> None:
    class Pod(BaseModel):
        name: str

    def make() -> Callable[..., Any]:
        class Node(BaseModel):
            pods: list[Pod]

        @tool
        def drain(node: Node, spare: list[Pod]) -> Any:
            return type(node) is Node and type(spare[0]) is Pod

        return drain

    drain = make()
    assert isinstance(drain, Tool)
    assert called(drain, {"node": {"pods": []}, "spare": [{"name": "a"}]}) is True


def test_partial_hides_what_it_fixes() -> None:
    def scale(cluster: str, name: str, count: int = 1, session: Session | None = None) -> Any:
        """Scale it."""
        return cluster, name, count, session

    made = tool(functools.partial(scale, "prod", count=3))
    assert made.name == "scale" and made.description == "Scale it."
    assert list(made.input_schema["properties"]) == ["name"]
    assert called(made, {"name": "web"}) == ("prod", "web", 3, SESSION)
    assert "'count'" in refusal(made, {"name": "web", "count": 9})
    narrower = tool(functools.partial(made, name="web"))
    assert narrower.input_schema["properties"] == {}
    assert called(narrower, {}) == ("prod", "web", 3, SESSION)
    assert "'count'" in refusal(narrower, {"count": 9})


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


@tool(requires_approval=True, timeout=5)
async def drop(table: str, schema: str) -> str:
    """Drop a table."""
    return f"{schema}.{table}"


GATED = {
    "partial": functools.partial(drop, schema="a"),
    "wrapper": logged(drop),
    "partial of a wrapper": functools.partial(logged(drop), schema="a"),
    "tool again": tool(drop, name="drop_it"),
    "partial as a tool": tool(functools.partial(drop, schema="a"), name="drop_a"),
}


@pytest.mark.parametrize("derived", GATED.values(), ids=GATED)
def test_what_is_made_of_a_gated_tool_stays_gated(derived: Callable[..., Any]) -> None:
    (made,) = as_tools([derived]).values()
    assert made.requires_approval and made.timeout == 5
    assert made.description == "Drop a table."
    given = {"table": "t", "schema": "a"}
    arguments = {name: given[name] for name in made.input_schema["properties"]}
    assert asyncio.run(_awaited(called(made, arguments))) == "a.t"


async def _awaited(result: Any) -> Any:
    return await result


def test_options_given_anew_win_over_those_of_the_tool_below() -> None:
    made = tool(functools.partial(drop, schema="a"), requires_approval=False, name="drop_a")
    assert not made.requires_approval and made.timeout == 5 and made.is_async
    assert made.name == "drop_a"


class Cluster:
    """A cluster."""

    def __init__(self, name: str) -> None:
        self.name = name

    def drain(self, node: str) -> str:
        """Drain a node."""
        return f"{self.name}/{node}"

    @tool(requires_approval=True)
    def restart(self, pod: str) -> str:
        """Restart a pod."""
        return f"{self.name}/{pod}"

    @staticmethod
    def ping(host: str) -> str:
        return host

    @classmethod
    @tool(requires_approval=True)
    def forget(cls, host: str) -> str:
        """Forget a host."""
        return f"{cls.__name__}/{host}"

    async def __call__(self, question: str) -> str:
        """Ask the cluster."""
        return question


def test_bound_methods_callable_objects_and_static_methods_are_tools() -> None:
    cluster = Cluster("east")
    drain, ask = tool(cluster.drain), tool(cluster, name="ask")
    assert drain.description == "Drain a node."
    assert called(drain, {"node": "n1"}) == "east/n1"
    assert ask.description == "Ask the cluster." and ask.is_async
    assert types_of(ask) == {"question": "string"}
    assert called(tool(Cluster.ping), {"host": "h"}) == "h"


def test_method_declared_as_tool_is_bound_by_its_object() -> None:
    bound: Any = Cluster("east").restart
    assert isinstance(bound, Tool) and bound.requires_approval
    assert list(bound.input_schema["properties"]) == ["pod"]
    assert called(bound, {"pod": "p"}) == "east/p"
    assert list(as_tools([bound])) == ["restart"]
    with pytest.raises(TypeError, match=r"instance\.restart"):
        as_tools([Cluster.restart])


def test_class_method_declared_as_tool_is_bound_by_its_class() -> None:
    for bound in (Cluster.forget, Cluster("east").forget):
        (made,) = as_tools([bound]).values()
        assert made.requires_approval
        assert list(made.input_schema["properties"]) == ["host"]
        assert called(made, {"host": "h"}) == "Cluster/h"


def test_wrapped_function_keeps_its_signature() -> None:
    @tool
    @logged
    def scale(name: str, level: Level = Level.LOW) -> Any:
        return name, level

    assert list(scale.input_schema["properties"]) == ["name", "level"]
    assert called(scale, {"name": "a", "level": "high"}) == ("a", Level.HIGH)


async def an_async_tool(name: str) -> str:
    return name


def test_async_function_gives_an_awaitable() -> None:
    made = tool(functools.partial(an_async_tool))
    assert made.is_async and not tool(lambda: 1, name="f").is_async
    assert asyncio.run(called(made, {"name": "a"})) == "a"


def positional(name: str, /) -> None: ...
def starred(*names: str) -> None: ...
def generator() -> Iterator[str]:
    yield ""


def unknown_type(it: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def undescribable(it: Callable[[], None]) -> None: ...
def unserialisable(it: threading.Lock) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def two(a: int, b: int) -> None: ...
def no_input() -> None: ...


class Opaque(Enum):
    ONE = object()


def of_objects(it: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "said"),
    [
        (positional, {}, "'positional'.*'name' is positional-only"),
        (starred, {}, r"'starred'.*'\*names'.*list parameter"),
        (generator, {}, "generator"),
        (unknown_type, {}, "'unknown_type'.*'Nowhere'.*'it'"),
        (undescribable, {}, "'undescribable'.*'it'.*input_schema"),
        (unserialisable, {}, "'unserialisable'.*'it'"),
        (of_objects, {}, "'of_objects'.*'it'"),
        (classmethod(two), {}, "two; write @classmethod above @tool"),
        (lambda x: x, {}, "name="),
        (two, {"name": "a b"}, "'a b'"),
        (two, {"name": ""}, "letters"),
        (two, {"name": "x" * 65}, "64"),
        (two, {"name": "two\n"}, "letters"),
        (two, {"timeout": 0}, "'two'.*above 0"),
        (two, {"timeout": float("nan")}, "above 0"),
        (two, {"timeout": "5"}, "seconds"),
        (two, {"editable": "a"}, r"\['a'\]"),
        (two, {"editable": ["c"]}, "'c'"),
        (two, {"input_schema": Label}, "one parameter"),
        (two, {"input_schema": "object"}, "a typed model"),
        (an_async_tool, {"input_schema": dict}, "'an_async_tool'.*a typed model"),
        (two, {"input_schema": {"type": "array"}}, "'object'"),
        (no_input, {"input_schema": {"$defs": {"a": {"type": "strin"}}}}, "at '.defs.a.type'"),
        (no_input, {"input_schema": {"$defs": {"a": "string"}}}, "not valid at '.defs.a'"),
        (two, {"input_schema": {"properties": {"a": {}}, "required": ["a"]}}, "'b'"),
        (
            two,
            {"input_schema": {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["a", "b"]}},
            "'c'",
        ),
        (an_async_tool, {"input_schema": RootModel[list[int]]}, "no JSON object"),
        (Label, {}, "function"),
        (3, {}, "function"),
        (print, {}, "print"),
        (max, {}, "max"),
    ],
)
def test_wrong_declaration_is_told_with_the_way_out(fn: Any, options: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        tool(fn, **options)


def test_none_among_the_tools_is_told_as_no_function() -> None:
    with pytest.raises(TypeError, match="a tool is a function, not None"):
        as_tools([None])  # type: ignore[list-item]


def test_json_schema_with_what_a_partial_fixes_is_refused() -> None:
    def mark(**given: Any) -> Any:
        return given

    schema = {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    with pytest.raises(ValueError, match=r"its schema has \['b'\], which the function does not"):
        tool(functools.partial(mark, b=1), name="mark", input_schema=schema)


def test_function_that_changes_its_arguments_leaves_the_input_alone() -> None:
    def mark(**given: Any) -> Any:
        given["labels"].append("seen")
        return given

    schema = {"type": "object", "properties": {"labels": {"type": "array"}}}
    sent: dict[str, Any] = {"labels": ["a"], "big": 10**30, "deep": {"x": 1.5}}
    made = tool(mark, input_schema=schema)
    assert called(made, sent) == {"labels": ["a", "seen"], "big": 10**30, "deep": {"x": 1.5}}
    assert sent["labels"] == ["a"]


def test_typed_model_as_input_schema_gives_the_instance() -> None:
    @tool(input_schema=Label)
    def put(label, session: Session):  # type: ignore[no-untyped-def]
        return label

    @tool(input_schema=Point)
    def go(to: Point) -> Point:
        return to

    @tool(input_schema=Options)
    def stop(options: Options) -> Options:
        return options

    assert put.input_schema["required"] == ["key"]
    assert called(put, {"key": "k"}) == Label(key="k")
    assert "'key' is missing" in refusal(put, {})
    assert called(go, {"x": 1}) == Point(1)
    assert called(stop, {"force": True}) == {"force": True}


def test_model_as_the_only_parameter_gives_the_instance() -> None:
    @tool
    def put(label: Annotated[Label, "which"], context: RequestContext) -> Any:
        return label, context

    @tool
    def several(label: Label, count: int) -> Any:
        return label, count

    @tool
    def grow(tree: Tree) -> Any:
        return tree

    assert called(put, {"key": "k"}) == (Label(key="k"), CONTEXT)
    assert set(several.input_schema["properties"]) == {"label", "count"}
    assert grow.input_schema["type"] == "object" and "$ref" not in grow.input_schema
    assert types_of(grow) == {"name": "string", "children": "array of object"}
    assert called(grow, {"name": "a", "children": [{"name": "b"}]}).children[0].name == "b"


SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for."},
        "limit": {"type": "integer", "minimum": 1},
        "context": {"type": ["string", "null"]},
    },
    "required": ["query"],
}


def test_json_schema_tool_gets_keywords_as_sent() -> None:
    @tool(input_schema=SCHEMA)
    def search(query, limit=5, context=None, session=None):  # type: ignore[no-untyped-def]
        return query, limit, context, session

    assert search.input_schema == SCHEMA
    assert types_of(search) == {
        "query": "string",
        "limit": "integer",
        "context": "string or null",
    }
    assert called(search, {"query": "a", "context": "c"}) == ("a", 5, "c", SESSION)
    assert "'limit'" in refusal(search, {"query": "a", "limit": "5"})
    assert "query" in refusal(search, {"limit": 2})
    assert "there is no parameter 'other'" in refusal(search, {"query": "a", "other": 1})
    assert "'session'" in refusal(search, {"query": "a", "session": {}})


def test_changing_the_given_schema_later_changes_nothing() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    made = tool(lambda **values: values, name="f", input_schema=schema)
    schema["properties"]["a"]["type"] = "integer"
    assert made.input_schema["type"] == "object"
    assert called(made, {"a": "x", "b": 1}) == {"a": "x", "b": 1}


def test_json_schema_with_a_remote_reference_is_refused() -> None:
    schema = {"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    with pytest.raises(ValueError, match="not followed"):
        tool(lambda a="": a, name="f", input_schema=schema)


def test_refusal_is_short_and_leaves_long_values_out() -> None:
    @tool
    def scale(count: int, level: Level, when: date) -> int:
        return count

    made = tool(
        lambda query: query,
        name="f",
        input_schema={
            "properties": {"query": {"type": "integer"}},
            "required": ["query"],
        },
    )
    secret = "s3cret" * 5000
    for message in (
        refusal(scale, {"count": secret, "level": secret, "when": secret}),
        refusal(scale, {secret: 1}),
        refusal(scale, {f"p{n}": n for n in range(1000)}),
        refusal(made, {"query": secret}),
        refusal(made, {"query": 1, secret: 2}),
    ):
        assert len(message) <= 1000 and message.count("s3cret") < 40
    assert "s3cret" not in refusal(made, {"query": secret})
    assert "s3cret" not in refusal(scale, {"count": secret, "level": "low", "when": "2026-01-01"})


def test_text_that_is_no_unicode_is_refused() -> None:
    made = tool(lambda name: name, name="f")
    by_schema = tool(
        lambda name: name,
        name="g",
        input_schema={
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    )
    assert refusal(made, {"name": "\ud800"})
    assert refusal(by_schema, {"name": "\ud800"})


def test_validator_that_fails_in_its_own_way_is_a_refusal() -> None:
    class Odd(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def look_up(cls, value: str) -> str:
            return {"a": "b"}[value]

    @tool
    def put(odd: Odd) -> str:
        return odd.name

    assert called(put, {"name": "a"}) == "b"
    assert "refused" in refusal(put, {"name": "z"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def every_kind(
    a: int,
    b: list[bool] | None = None,
    c: Label | str = "",
    d: Literal["x", 1] = 1,
) -> int:
    return a


def any_rest(**rest: Any) -> Any:
    return rest


def as_sent(a: Any, b: Any = None, c: Any = None, d: Any = None) -> Any:
    return a


KINDS: list[Tool] = [
    tool(every_kind),
    tool(any_rest),
    tool(
        as_sent,
        input_schema={
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "array"},
                "c": {"type": "object"},
                "d": {"enum": ["x", 1]},
            },
            "required": ["a"],
        },
    ),
]


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abcde") | st.text(max_size=3), json_values, max_size=4))
def test_any_input_is_taken_or_refused_with_a_short_message(input: dict[str, Any]) -> None:
    for made in KINDS:
        try:
            called(made, input)
        except ToolInputError as error:
            assert 0 < len(str(error)) <= 1000


def test_plain_functions_become_tools_and_names_are_unique() -> None:
    def scale(name: str) -> str:
        return name

    first = tool(scale)
    tools = as_tools([first, an_async_tool])
    assert list(tools) == ["scale", "an_async_tool"] and tools["scale"] is first
    with pytest.raises(ValueError, match=r"'scale': .*scale and .*restart.*name="):
        as_tools(
            [
                first,
                tool(Cluster("e").drain, name="restart"),
                tool(Cluster("e").restart, name="scale"),
            ]
        )
    with pytest.raises(TypeError, match="function"):
        as_tools(["scale"])  # type: ignore[list-item]


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("füße", "füße"),
        (None, ""),
        ({"ü": [1, None, True]}, '{"ü":[1,null,true]}'),
        ([Label(key="a")], '[{"key":"a","value":""}]'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (b"a\xff", "a\ufffd"),
        (3.5, "3.5"),
        (True, "True"),
        (Path("/a"), "/a"),
        (Colour.RED, "red"),
        ("bad\udcff", "bad?"),
        ({"bad\udcff": [Path("/bad\udcff"), 1]}, '{"bad?":["/bad?",1]}'),
        ([Point("bad\udcff", b"a\xff")], '[{"x":"bad?","y":"a\ufffd"}]'),
        ({"when": date(2026, 1, 2), "at": Path("/a")}, '{"when":"2026-01-02","at":"/a"}'),
        (ToolResult(structured={"a": 1}), '{"a":1}'),
        (
            ToolResult(
                [
                    "plain",
                    TextContent("text"),
                    ImageContent(b"1234", "image/png"),
                    AudioContent(b"12", "audio/wav"),
                    ResourceContent("file:///a", "content"),
                    ResourceContent("file:///b", b"123"),
                ]
            ),
            (
                "plain\ntext\n[image image/png, 4 bytes]\n[audio audio/wav, 2 bytes]\n"
                "[resource file:///a]\ncontent\n[resource file:///b, 3 bytes]"
            ),
        ),
    ],
)
def test_result_becomes_text(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_result_that_is_no_json_still_becomes_text() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value in (loop, {"a": object()}, {"a": "\udcff"}, {"a": b"\xff"}):
        assert text_of(value).encode()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("the order is wrong:\n  - no size\n\n  - no date\n"), "no size - no date"),
        (LookupError("(404)\nReason: Not Found\nBody: {}"), "(404) Reason: Not Found Body: {}"),
    ],
)
def test_error_of_several_lines_is_told_whole(error: Exception, said: str) -> None:
    assert error_text(error, ()).endswith(said)


@pytest.mark.parametrize(
    "trace",
    [
        "Traceback (most recent call last):\n  File 'x.py', line 1, in f\nKeyError: 1",
        "\tat org.apache.Job.run(Job.java:12)\n\tat java.lang.Thread.run(Thread.java:1)",
    ],
    ids=["python", "java"],
)
def test_stack_trace_in_the_text_of_an_error_is_not_told(trace: str) -> None:
    assert error_text(ValueError(f"the job failed\n{trace}"), ()) == "Error: the job failed"


def test_error_of_a_task_group_says_what_its_tasks_raised() -> None:
    inner = ExceptionGroup("more", [OSError(2, "no such file"), KeyError("my-secret")])
    said = error_text(
        ExceptionGroup("unhandled errors", [ValueError("a\nb"), inner]), ["my-secret"]
    )
    assert said == (
        "Error: unhandled errors (2 sub-exceptions): a b; "
        "FileNotFoundError: [Errno 2] no such file; KeyError: '[secret]'"
    )
    many = ExceptionGroup("many", [ValueError(f"{n} " + "x" * 400) for n in range(1000)])
    assert len(error_text(many, ())) < 520


def test_items_of_an_iterable_are_validated_before_the_tool_runs() -> None:
    @tool(requires_approval=True)
    def close(
        numbers: Iterable[int], more: Iterable[bool] | None = None, rest: Iterable[str] = ()
    ) -> str:
        """Close tickets."""
        return f"{list(numbers)} {list(numbers)}"

    assert close.input_schema["properties"]["numbers"] == {
        "items": {"type": "integer"},
        "type": "array",
    }
    for wrong in ({"numbers": ["x"]}, {"numbers": [1], "more": [1]}, {"numbers": [], "rest": [1]}):
        with pytest.raises(ToolInputError):
            close.validate(wrong)
    arguments = close.validate({"numbers": [1, 2], "more": [True], "rest": ["a"]})
    assert arguments == {"numbers": [1, 2], "more": [True], "rest": ["a"]}
    assert close.call(arguments, Session(), None) == "[1, 2] [1, 2]"


def test_declaring_a_tool_imports_neither_server_nor_validator() -> None:
    script = (
        "import sys; from sayso.tools import tool; tool(lambda a: a, name='f').validate({'a': 1});"
        "late = {'fastapi', 'uvicorn', 'jsonschema_rs', 'anthropic'};"
        "assert not late & set(sys.modules), late & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_error_that_quotes_a_long_output_is_not_taken_apart_line_by_line() -> None:
    # Twenty million lines took a gigabyte and stopped everything for a second.
    said = "first\n" + "x\n" * 500_000
    tracemalloc.start()
    try:
        text = error_text(ValueError(said), ())
        try:
            raise RuntimeError("no") from ValueError(said)
        except RuntimeError as error:
            trace = hidden_trace(error, ())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert text.startswith("Error: first x x") and len(text) < 510
    assert trace.startswith("ValueError: first\nx\n") and len(trace) < 100_000
    assert most < 8 * len(said)
