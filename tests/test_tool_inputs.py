"""The recorded input of a call is the one that its tool gets (design, section 6, "The deed":
"Input")."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import inspect
import json
import uuid
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, NotRequired, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    TypeAdapter,
    computed_field,
    create_model,
)
from typing_extensions import TypedDict

from sayso import Session, Tool, ToolInputError, tool
from sayso.config.received import received
from sayso.tools.inputs import Recorded, recorded, same
from sayso.trees import canonical
from sayso.wire.json_bytes import is_json

Json = dict[str, Any]
NOTHING: Any = inspect.Parameter.empty


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Spot(BaseModel):
    zone: int = 3
    where: str = Field("here", validation_alias=AliasChoices("place", "where"))
    color: Color = Color.RED
    made: uuid.UUID = Field(default_factory=uuid.uuid4)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.zone


class Sealed(BaseModel):
    name: str
    token: SecretStr = SecretStr("hush")
    note: Annotated[str, PlainSerializer(lambda value: "gone")] = "kept"
    kept_in: str = Field("dark", exclude=True)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str = "a"


@dataclasses.dataclass
class Plan:
    at: Spot = dataclasses.field(default_factory=Spot)
    limit: Annotated[int, Field(ge=0)] = 1
    tags: set[str] = dataclasses.field(default_factory=lambda: {"x", "y", "z"})


class Typed(TypedDict):
    pod: str
    port: NotRequired[int]
    spot: NotRequired[Spot]


class Odd:
    """A type that nothing can be read as."""


NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6), st.sampled_from(["1_0", "7", "7.0", " 8", "x", True, 1.0, 2.5])
)
TEXTS = st.one_of(st.text(max_size=4), st.sampled_from(["red", "blue", "2026-01-02", "1.50", 5]))
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


def fields(needed: Json, **optional: Any) -> st.SearchStrategy[Json]:
    """Objects with these fields, sometimes with one more that closed types do not have."""
    return st.fixed_dictionaries(needed, optional={**optional, "dry_run": st.booleans()})


SPOTS = fields(
    {}, zone=NUMBERS, where=TEXTS, place=TEXTS, color=TEXTS, made=st.just(str(uuid.UUID(int=5)))
)
OPENS = fields({}, name=TEXTS, more=ANY)
SEALED = fields({"name": TEXTS}, token=TEXTS, note=TEXTS, kept_in=TEXTS)
PLANS = fields({}, at=SPOTS, limit=NUMBERS, tags=st.lists(TEXTS, max_size=3))
TYPED = fields({"pod": TEXTS}, port=NUMBERS, spot=SPOTS)
Shouted = Annotated[str, AfterValidator(str.upper)]
Longer = Annotated[str, AfterValidator(lambda value: value + "!")]
Tidied = Annotated[dict[str, int], BeforeValidator(lambda v: {k.lower(): x for k, x in v.items()})]

KINDS: list[tuple[Any, list[Any], st.SearchStrategy[Any]]] = [
    (int, [3, "no number", Odd()], NUMBERS),
    (int | None, [None, 4], st.one_of(st.none(), NUMBERS)),
    (float, [0.5, float("inf"), float("nan")], NUMBERS),
    (bool, [True, False], st.one_of(st.booleans(), TEXTS)),
    (str, ["dev", 5], TEXTS),
    (int | str, ["a", 1], st.one_of(NUMBERS, TEXTS)),
    (Decimal, [Decimal("1.50")], st.one_of(TEXTS, NUMBERS)),
    (date, [date(2026, 1, 2)], TEXTS),
    (bytes, [b"raw", b"\xff"], TEXTS),
    (Color, [Color.BLUE, "blue"], TEXTS),
    (SecretStr, [SecretStr("hush")], TEXTS),
    (list[int], [[1, 2], (1, 2)], st.lists(NUMBERS, max_size=3)),
    (set[str], [{"p", "q", "r"}, frozenset("pqr")], st.lists(TEXTS, max_size=3)),
    (tuple[int, ...], [(1, 2)], st.lists(NUMBERS, max_size=3)),
    (Iterable[int], [[1], range(2)], st.lists(NUMBERS, max_size=3)),
    (dict[str, int], [{"a": 1}], st.dictionaries(st.sampled_from("abc"), NUMBERS, max_size=2)),
    (dict[int, str], [{1: "a"}], st.dictionaries(st.sampled_from("123"), TEXTS, max_size=2)),
    (Shouted, ["LOUD", "quiet"], TEXTS),
    (Longer, ["a"], TEXTS),
    (Tidied, [{"a": 1}], st.dictionaries(st.sampled_from("AbC"), NUMBERS, max_size=2)),
    (Spot, [Spot(), Spot(zone=9)], SPOTS),
    (Sealed, [Sealed(name="s"), None], SEALED),
    (Open, [Open(), Open.model_validate({"more": 1})], OPENS),
    (Plan, [Plan(limit=2), None], PLANS),
    (Typed, [{"pod": "a"}], TYPED),
    (Spot | Open, [Spot(), Open()], st.one_of(SPOTS, OPENS)),
    (list[Spot], [[]], st.lists(SPOTS, max_size=2)),
    (Any, [None, Odd(), {"a": (1,)}], ANY),
]

Parameters = list[tuple[str, Any, Any]]
"""For each parameter the name, the annotation and the default."""


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameters, Json]:
    """Parameters, and an input for them that may be valid or not."""
    made, sent = [("first", bool, False)], Json()
    for index in range(draw(st.integers(1, 3))):
        annotation, defaults, values = draw(st.sampled_from(KINDS))
        default = draw(st.sampled_from([NOTHING, *defaults]))
        made.append((f"p{index}", annotation, default))
        if default is NOTHING or draw(st.booleans()):
            sent[f"p{index}"] = draw(values)
    if draw(st.integers(0, 9)) == 0:
        sent["dry_run"] = True
    return made, sent


def spy(got: list[Json], made: Parameters, *, is_async: bool = False) -> Any:
    """A function with these parameters, which records its arguments."""
    defaults = {name: default for name, _, default in made if default is not NOTHING}

    def plain(**given: Any) -> None:
        got.append({**defaults, **given})

    async def running(**given: Any) -> None:
        got.append({**defaults, **given})

    fn: Any = running if is_async else plain
    kind = inspect.Parameter.KEYWORD_ONLY
    fn.__signature__ = inspect.Signature(
        [inspect.Parameter(n, kind, annotation=a, default=d) for n, a, d in made]
    )
    return fn


def run(made: Tool[..., Any], input: Json) -> None:
    """Run the tool as the gate does."""
    result = made.call(made.validate(input), Session(), None)
    if inspect.isawaitable(result):

        async def ended() -> Any:
            return await result

        asyncio.run(ended())


def settled(made: Tool[..., Any], sent: Json) -> Recorded | None:
    """The recorded form of an input; None if it is refused, in which case the tool refuses it,
    too."""
    try:
        found = recorded(made, sent)
    except ToolInputError:
        with pytest.raises(ToolInputError):
            made.validate(sent)
        return None
    assert is_json(found.input)
    echoed = json.loads(json.dumps(found.input))
    assert canonical(recorded(made, echoed).input) == canonical(found.input), "it is stable"
    return found


def sets(value: Any) -> Any:
    """A JSON value in which the order of lists does not count, as that of sets does not."""
    if isinstance(value, list):
        return f"[{sorted(map(sets, value))}]"
    if isinstance(value, dict):
        return str([f"{key}:{sets(value[key])}" for key in sorted(value)])
    return canonical(value).decode()


def within(value: Any) -> Any:
    """All values inside a value."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    return vars(value) if dataclasses.is_dataclass(value) else repr(value)


def check(found: Recorded, sent: Json, got: Json, types: Json, dumped: Json | None = None) -> None:
    """Each argument in `got` equals the one in `found`, unless the marks say otherwise."""
    for name, value in got.items():
        mark = found.marks.get(name, {})
        if name not in found.input:
            assert mark["set_by"] == "service", (name, found)
            assert "hush" not in json.dumps(mark)
            continue
        stated, adapter = found.input[name], TypeAdapter[Any](types.get(name, Any))
        if mark == {"read_by": "tool"}:
            assert canonical(stated) == canonical(sent[name])
            continue
        texts = [received(value, {}), (dumped or {}).get(name)]
        try:
            texts.append(adapter.dump_python(value, mode="json", round_trip=True, warnings=False))
        except Exception:
            # A default of another type than the annotation.
            assert name in sent
        assert sets(stated) in [sets(text) for text in texts if is_json(text)]
    if "dry_run" in json.dumps(sent):
        held = json.dumps(got, default=within)
        assert "dry_run" in held, "nothing that was approved is dropped"


EXAMPLES = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EXAMPLES
@given(parameters(), st.booleans())
def test_a_function_gets_what_is_recorded(made: tuple[Parameters, Json], is_async: bool) -> None:
    declared, sent = made
    got: list[Json] = []
    tested = tool(spy(got, declared, is_async=is_async), name="spy")
    if found := settled(tested, sent):
        run(tested, found.input)
        check(found, sent, got[-1], {name: kind for name, kind, _ in declared})


@pytest.mark.filterwarnings("ignore::pydantic.json_schema.PydanticJsonSchemaWarning")
@EXAMPLES
@given(parameters(), st.sampled_from(["ignore", "allow", "forbid"]))
def test_a_typed_model_gets_what_is_recorded(made: tuple[Parameters, Json], extra: Any) -> None:
    declared, sent = made
    given_fields: Any = {
        name: (kind, ... if default is NOTHING else default) for name, kind, default in declared
    }
    config = ConfigDict(extra=extra, arbitrary_types_allowed=True)
    model = create_model("Made", __config__=config, **given_fields)
    got: list[Any] = []
    tested = tool(lambda given: got.append(given), name="spy", input_schema=model)
    if found := settled(tested, sent):
        run(tested, found.input)
        held = {**got[-1].__dict__, **(got[-1].__pydantic_extra__ or {})}
        try:
            dumped = got[-1].model_dump(mode="json", round_trip=True, warnings=False)
        except Exception:
            dumped = None
        check(found, sent, held, {name: kind for name, kind, _ in declared}, dumped)


@pytest.mark.parametrize(("kind", "values"), [(Plan, PLANS), (Typed, TYPED), (Spot, SPOTS)])
def test_dataclasses_and_typed_dicts_get_what_is_recorded(kind: Any, values: Any) -> None:
    @EXAMPLES
    @given(values)
    def holds(sent: Json) -> None:
        got: list[Any] = []
        tested = tool(lambda given: got.append(given), name="spy", input_schema=kind)
        if found := settled(tested, sent):
            run(tested, found.input)
            held = got[-1] if isinstance(got[-1], dict) else vars(got[-1])
            by_name = {tested.parameter(name): value for name, value in held.items()}
            own = {tested.parameter(key): value for key, value in sent.items()}
            shown = {tested.parameter(key): value for key, value in found.input.items()}
            check(
                Recorded(shown, found.marks),
                own,
                by_name,
                get_type_hints(kind, include_extras=False),
            )

    holds()


SCHEMAS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(
            st.sampled_from(["p0", "p1"]),
            st.sampled_from(
                [
                    {"type": "integer", "default": 4},
                    {"type": "string"},
                    {"type": "string", "default": "hush", "writeOnly": True},
                    {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
                    {},
                ]
            ),
            max_size=2,
        ),
    },
    optional={"additionalProperties": st.sampled_from([True, False, {"type": "integer"}])},
)


@EXAMPLES
@given(
    SCHEMAS,
    st.dictionaries(st.sampled_from(["p0", "p1", "dry_run"]), ANY, max_size=3),
    st.sampled_from([None, True, Color.RED, (1,)]),
    st.booleans(),
)
def test_a_tool_with_a_json_schema_gets_what_is_recorded(
    schema: Json, sent: Json, default: Any, rest: bool
) -> None:
    got: list[Json] = []
    if rest:

        def fn(**given: Any) -> None:
            got.append(given)
    else:

        def fn(p0: Any = default, p1: Any = default) -> None:  # type: ignore[misc]
            got.append({"p0": p0, "p1": p1})

    tested = tool(fn, name="spy", input_schema=schema)
    if found := settled(tested, sent):
        run(tested, found.input)
        check(found, sent, got[-1], {})
        assert "hush" not in json.dumps(found.marks)


@tool(requires_approval=True)
def restart(service: str, namespace: str = "dev", count: int = 1, mode: Color = Color.RED) -> str:
    """Restart a service."""
    return service


@pytest.mark.parametrize(
    ("sent", "input"),
    [
        ({"service": "db"}, {"namespace": "dev", "count": 1, "mode": "red"}),
        ({"service": "db", "count": "1_0"}, {"namespace": "dev", "count": 10, "mode": "red"}),
        ({"service": "db", "count": 2.0}, {"namespace": "dev", "count": 2, "mode": "red"}),
    ],
)
def test_defaults_and_what_the_tool_makes_of_a_value_are_recorded(sent: Json, input: Json) -> None:
    assert recorded(restart, sent) == Recorded({"service": "db", **input}, {})


def test_a_factory_is_evaluated_once() -> None:
    made: list[int] = []

    def counted() -> int:
        made.append(1)
        return len(made)

    class Order(BaseModel):
        item: str
        number: int = Field(default_factory=counted)

    got: list[Order] = []
    order = tool(lambda order: got.append(order), name="order", input_schema=Order)
    found = recorded(order, {"item": "tea"})
    count = len(made)
    assert found.input == {"item": "tea", "number": 1}
    run(order, found.input)
    assert (got[0].number, len(made)) == (1, count)


def test_secret_defaults_are_absent_marked_and_bound() -> None:
    def made(secret: str) -> Tool[..., Any]:
        def call(
            host: str,
            token: SecretStr = SecretStr(secret),  # noqa: B008
            key: Annotated[str, Field(json_schema_extra={"writeOnly": True})] = secret,
        ) -> None:
            """Call."""

        return tool(call)

    one, same_one, other = made("hush"), made("hush"), made("hist")
    found = recorded(one, {"host": "a"})
    assert found.input == {"host": "a"}
    assert found.marks == {"token": {"set_by": "service"}, "key": {"set_by": "service"}}
    assert one.digest == same_one.digest != other.digest


def test_no_schema_shows_the_default_of_a_secret() -> None:
    hidden: Any = {"json_schema_extra": {"writeOnly": True}}

    class Access(BaseModel):
        user: str = "root"
        key: str = Field("hush", **hidden)
        token: SecretStr = SecretStr("hush")

    @tool
    def call(
        default: str = "shown",
        key: Annotated[str, Field(**hidden)] = "hush",
        access: Access = Access(),  # noqa: B008
    ) -> None:
        """Call."""

    stated = {"properties": {"key": {"type": "string", "writeOnly": True, "default": "hush"}}}
    tools = [call, tool(lambda access: None, name="f", input_schema=Access)]
    for made in [*tools, tool(lambda **given: None, name="f", input_schema=stated)]:
        schema = json.dumps(made.input_schema)
        assert "writeOnly" in schema and "hush" not in schema and "***" not in schema
        assert "key" in made.secret_defaults
    assert call.input_schema["properties"]["default"]["default"] == "shown"


def test_secret_defaults_within_parameters_are_shown_nowhere_and_bound() -> None:
    def made(secret: str) -> list[Tool[..., Any]]:
        class Access(BaseModel):
            user: str = "root"
            token: SecretStr = SecretStr(secret)

        access = (dict[str, list[Access]], {})
        key = (SecretStr, SecretStr(secret))
        Place = create_model("Place", access=access, key=key)

        @tool
        def unsent(host: str, access: Access = Access()) -> None:  # noqa: B008
            """Take the default of the parameter."""

        @tool
        def within(host: str, access: Access) -> None:
            """Take the default of a field."""

        @tool
        def deep(host: str, places: list[Place]) -> None:  # type: ignore[valid-type]
            """Take the defaults of fields of fields."""

        @tool
        def whole(access: Access) -> None:
            """Take the fields of a model."""

        return [unsent, within, deep, whole]

    sent: list[dict[str, Any]] = [
        {"host": "a"},
        {"host": "a", "access": {"user": "bob"}},
        {"host": "a", "places": [{"access": {"x": [{"user": "bob"}]}}]},
        {"user": "bob"},
    ]
    marks: list[dict[str, Any]] = [
        {"access": {"set_by": "service"}},
        {"access": {"read_by": "tool"}},
        {"places": {"read_by": "tool"}},
        {"token": {"set_by": "service"}},
    ]
    for n, (one, again, other) in enumerate(
        zip(made("hush"), made("hush"), made("hist"), strict=True)
    ):
        assert recorded(one, sent[n]) == Recorded(sent[n], marks[n])
        assert "hush" not in str([one.definition, one.digest, recorded(one, sent[n])])
        assert one.digest == again.digest != other.digest, one.name


def test_what_people_read_of_a_schema_is_no_part_of_the_tool() -> None:
    def made(words: str, name: str = "title") -> Tool[..., Any]:
        about = {"title": words, "description": words, "examples": [words], "$comment": words}
        properties = {name: {"type": "object", **about, "properties": {"a": {**about}}}}

        def call(**values: Any) -> None:
            """Call."""

        return tool(call, input_schema={"type": "object", "properties": properties, **about})

    assert made("of yesterday").digest == made("of today").digest
    # A parameter of this name is an ordinary parameter.
    assert made("of today", "description").digest != made("of today").digest


def test_a_value_that_does_not_survive_stays_as_it_was_sent_and_says_so() -> None:
    @tool
    def longer(text: Longer, near: Sealed) -> None:
        """Make it longer."""

    sent = {"text": "a", "near": {"name": "n", "note": "x"}}
    found = recorded(longer, sent)
    assert found.input == sent
    assert found.marks == {"text": {"read_by": "tool"}, "near": {"read_by": "tool"}}


def test_what_the_schema_does_not_admit_is_shown_as_the_services() -> None:
    closed = {"properties": {"name": {}}, "required": ["name"], "additionalProperties": False}

    @tool(input_schema=closed)
    def wipe(name: str, force: bool = True) -> None:
        """Wipe."""

    found = recorded(wipe, {"name": "a"})
    assert found == Recorded({"name": "a"}, {"force": {"set_by": "service", "default": True}})
    shown = found.described(wipe.input_description)
    assert shown["force"] == {
        "type": "any",
        "description": "",
        "set_by": "service",
        "default": True,
    }


def test_what_a_partial_has_fixed_is_shown_as_the_services() -> None:
    fixed = tool(functools.partial(restart.fn, namespace="prod"), name="restart_prod")
    found = recorded(fixed, {"service": "db"})
    assert found.input == {"service": "db", "count": 1, "mode": "red"}
    assert found.marks == {"namespace": {"set_by": "service", "default": "prod"}}


def test_the_default_of_a_typed_model_is_recorded_where_nothing_is_sent() -> None:
    got: list[Spot] = []

    def go(spot: Spot = Spot(zone=9)) -> None:  # noqa: B008
        got.append(spot)

    found = recorded(tool(go), {})
    assert (found.input["zone"], found.input["color"], found.marks) == (9, "red", {})
    run(tool(go), found.input)
    assert str(got[0].made) == found.input["made"]


class Renaming(BaseModel):
    """A model with an alias that leads into a list, and a validator that renames keys."""

    first: str = Field(validation_alias=AliasPath("all", 0))


@pytest.mark.parametrize(
    ("kind", "sent", "wrong"),
    [
        (Spot, {"zone": 1, "dry_run": True}, "dry_run"),
        (Plan, {"at": {"dry_run": True}}, "at.dry_run"),
        (Plan, {"limit": 1, "dry_run": True}, "dry_run"),
        (Typed, {"pod": "a", "force": True}, "force"),
        (Typed, {"pod": "a", "spot": {"dry_run": True}}, "spot.dry_run"),
        (Renaming, {"all": ["x"]}, None),
        (Open, {"dry_run": True}, None),
        (Spot, {"place": "there"}, None),
    ],
)
def test_a_key_that_the_tool_would_drop_is_a_wrong_argument(
    kind: Any, sent: Json, wrong: str | None
) -> None:
    for made in (
        tool(lambda given: None, name="spy", input_schema=kind),
        tool(spy([], [("p0", kind, NOTHING)]), name="spy"),
        tool(spy([], [("p0", list[kind], NOTHING)]), name="spy"),
    ):
        nested = made.input_schema["properties"].get("p0")
        place = "" if nested is None else "p0.0." if nested.get("type") == "array" else "p0."
        values: Json = sent if not place else {"p0": [sent] if "0." in place[2:] else sent}
        if wrong is None:
            made.validate(values)
            continue
        with pytest.raises(ToolInputError, match=f"parameter '{place}{wrong}'"):
            made.validate(values)


def test_values_are_the_same_only_where_a_tool_cannot_tell_them_apart() -> None:
    assert same({"a": [1, Spot(made=uuid.UUID(int=1))]}, {"a": [1, Spot(made=uuid.UUID(int=1))]})
    assert same(SecretStr("a"), SecretStr("a"))
    assert not same(SecretStr("a"), SecretStr("b"))
    assert not same(1, True)
    assert not same([1], (1,))
    assert not same(Odd(), Odd())
    assert not same(float("nan"), float("nan"))
