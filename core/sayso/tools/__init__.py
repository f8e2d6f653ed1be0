"""Tools: functions that the model may call.

    @tool(requires_approval=True, timeout=60)
    def delete_pod(name: str, session: Session) -> str:
        \"\"\"Delete a pod.\"\"\"

interface.md, "Agent configuration"; design, section 8.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypedDict, Unpack, cast, overload

from typing_extensions import ParamSpec, TypeVar

from sayso.config.received import received
from sayso.context import Session
from sayso.errors import ToolInputError
from sayso.models import ToolDefinition
from sayso.tools.descriptions import check_preview, describe, preview_of
from sayso.tools.docstrings import read_docstring
from sayso.tools.identity import digest_of, source_of, without_loopback_port
from sayso.tools.inputs import Whole, holds_secret_type, without_secrets, write_only
from sayso.tools.schemas import Arguments, ModelInputs, SchemaInputs, inputs_of
from sayso.tools.signatures import layers, plain_function, read_signature
from sayso.workers.code import is_coroutine_function

__all__ = [
    "Arguments",
    "Tool",
    "ToolInputError",
    "as_tools",
    "tool",
]

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(Generic[P, R]):
    """A function that the model may call, with its schema; calling it calls the function.

    - `timeout`: in seconds; None means without one.
    - `editable`: the parameters whose values an approver may change; True means all of them.
    - `unattended`: the service may start an approved call by itself, even if the function takes a
      session or RequestContext, of which it then gets only the recorded fields.
    - `read_only`, `destructive` and `title`: hints for MCP clients; None gives no hint.
    - `preview`: makes of the tool's own arguments a text for the approver, such as a diff, when the
      call is proposed. Approvals do not bind it.
    - `version`: an approval is valid for the tool of this version. Without one it is valid for the
      tool with this source, schema and these hints.
    - `origin`: the origin of a tool that others run; otherwise the function's own place is used.
    """

    offered = True
    """Whether models and clients are offered it; a plugin itself proposes a tool that is not
    offered."""

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        requires_approval: bool = False,
        name: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | type[Any] | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        editable: bool | Sequence[str] = False,
        unattended: bool = False,
        read_only: bool | None = None,
        destructive: bool | None = None,
        title: str | None = None,
        preview: Callable[..., str] | None = None,
        version: str | None = None,
        origin: str | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            key: value for key, value in locals().items() if key not in ("self", "fn")
        }
        self.fn: Callable[P, R] = _function(fn)
        self.name = _name(self.fn, name)
        _check_options(self.name, self._options)
        self.requires_approval = requires_approval
        self.timeout = _seconds(self.name, timeout)
        self.idempotent = idempotent
        self.unattended = unattended
        self.read_only, self.destructive, self.title = read_only, destructive, title
        self.version = version
        self.preview = preview
        self.origin = source_of(self.fn) if origin is None else without_loopback_port(origin)
        docs = read_docstring(self.fn)
        self.description = docs.prose if description is None else description
        named = input_schema.get("properties", ()) if isinstance(input_schema, Mapping) else ()
        signature = read_signature(self.fn, self.name, named)
        check_preview(self.name, preview, [a.name for a in signature.arguments])
        self.unbound = signature.unbound
        self._injected = signature.injected
        self._inputs = inputs_of(self.name, signature, docs, input_schema)
        self._shown_schema = without_secrets(self.bound_schema)
        # A client that reads a stated JSON schema, such as an MCP server, fills in its defaults
        # itself.
        self.defaults = {**_stated_defaults(self.bound_schema), **signature.defaults}
        self.fixed = signature.fixed
        self.editable = _editable(self.name, editable, self.input_schema)
        functools.update_wrapper(self, self.fn, updated=())

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the input, of type object, without the defaults of secrets."""
        return self._shown_schema

    @functools.cached_property
    def bound_schema(self) -> dict[str, Any]:
        """The JSON schema of the input as the digest binds it."""
        return self._inputs.schema

    @functools.cached_property
    def input_description(self) -> dict[str, dict[str, str]]:
        """`{parameter: {type, description}}`, as `ToolCall.input_description` carries it."""
        return describe(self.input_schema)

    @functools.cached_property
    def definition(self) -> ToolDefinition:
        """The tool as the model sees it."""
        return ToolDefinition(self.name, self.description, self.input_schema)

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function; others must run in a thread."""
        fn: Any = self.fn
        while isinstance(fn, (functools.partial, Tool)):
            fn = fn.fn if isinstance(fn, Tool) else fn.func
        return is_coroutine_function(fn)

    @property
    def takes_context(self) -> bool:
        """Whether the function takes a RequestContext."""
        return "context" in self._injected.values()

    @property
    def reads_context(self) -> bool:
        """Whether the function reads the RequestContext; a tool run by others only sends updates
        with it."""
        return self.takes_context and self._options["origin"] is None

    @property
    def needs_caller(self) -> bool:
        """Whether the function gets something from its caller without which it must not run."""
        reads = "session" in self._injected.values() or self.reads_context
        return reads and not self.unattended

    @functools.cached_property
    def digest(self) -> str:
        """The digest of the tool that approvals bind. The first read may take ten milliseconds."""
        return digest_of(self)

    @functools.cached_property
    def write_only(self) -> frozenset[str]:
        """The parameters that the schema marks as secret."""
        return write_only(self.input_schema)

    @functools.cached_property
    def secret_defaults(self) -> frozenset[str]:
        """The parameters whose defaults are secret."""
        secret = {name for name, value in self.defaults.items() if holds_secret_type(value)}
        return self.write_only & self.defaults.keys() | secret

    @property
    def inner_secrets(self) -> Sequence[tuple[str, Any]]:
        """The defaults that contain secrets, including those of fields of models within parameters,
        each with its field's name."""
        return self._inputs.secret_defaults

    def validate(self, input: Mapping[str, Any]) -> Arguments:
        """The arguments for `call`; raises ToolInputError with a message for the model."""
        return self._inputs.read(input)

    def whole(self, input: Mapping[str, Any]) -> Whole:
        """The input with everything that was not sent; raises ToolInputError."""
        return self._inputs.whole(input)

    def previewed(self, input: Mapping[str, Any]) -> str | None:
        """The text of `preview` for a recorded input; it calls users' code."""
        return None if self.preview is None else preview_of(self.preview, self.validate(input))

    def parameter(self, key: str) -> str:
        """The parameter that `key` of an input means, by its name in the schema."""
        return self._inputs.parameter(key)

    def as_called(self, input: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that the function would get, as JSON values; empty if `input` is invalid.

        Defaults are filled in, a number that was sent as text is a number, and a field is there
        under each of its names.
        """
        try:
            values = self.validate(input)
        except ToolInputError:
            return {}
        if isinstance(self._inputs, ModelInputs):
            (instance,) = values.values()
            found = received(instance, self._inputs.other_names)
            return found if isinstance(found, dict) else {}
        values = {**self.defaults, **values}
        return {n: received(value, self._inputs.other_names) for n, value in values.items()}

    def takes(self, name: str) -> bool:
        """Whether a call may have the argument `name`, under any of its names."""
        schema = self.input_schema
        if isinstance(self._inputs, SchemaInputs) and self._inputs.is_open:
            # By definition, a schema that does not mention further arguments allows them.
            schema = {"additionalProperties": True, **schema}
        more = {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"}
        return name in {*schema["properties"], *self.defaults, *self._inputs.names} or any(
            schema.get(key) for key in more
        )

    def call(self, arguments: Arguments, session: Session, context: object) -> Any:
        """The function's result, an awaitable if it is async; `arguments` are from `validate`."""
        fn: Callable[..., Any] = self.fn
        if not self._injected:
            return fn(**arguments)
        given: dict[str, object] = {"session": session, "context": context}
        injected = {name: given[kind] for name, kind in self._injected.items()}
        return fn(**arguments, **injected)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """The tool bound to `instance`, for functions declared as tools in a class body."""
        if instance is None or not self.unbound:
            return self
        fn = cast("Callable[..., R]", cast(Any, self.fn).__get__(instance, owner))
        return Tool(fn, **self._options)

    def __repr__(self) -> str:
        gate = ", requires_approval=True" if self.requires_approval else ""
        return f"Tool({self.name!r}{gate})"


class ToolOptions(TypedDict, total=False):
    """The options of `Tool`."""

    requires_approval: bool
    name: str | None
    description: str | None
    input_schema: Mapping[str, Any] | type[Any] | None
    timeout: float | None
    idempotent: bool
    editable: bool | Sequence[str]
    unattended: bool
    read_only: bool | None
    destructive: bool | None
    title: str | None
    preview: Callable[..., str] | None
    version: str | None
    origin: str | None


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(
    fn: None = None, /, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function, as `@tool`, `@tool(...)` or `tool(function, ...)`.

    The name defaults to the function's, the description to its docstring, the input schema to its
    signature. A partial, bound method or wrapper of a tool keeps that tool's options except for
    those given here, so it stays gated. Raises TypeError or ValueError, naming the tool, for an
    object that cannot be one.
    """
    if fn is None:
        return functools.partial(tool, **options)
    return _made(fn, options)


def _made(fn: Callable[..., Any], options: dict[str, Any]) -> Tool:
    below = next((layer for layer in layers(fn) if isinstance(layer, Tool)), None)
    return Tool(fn, **(options if below is None else {**below._options, **options}))


def as_tools(items: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """The tools by name, in order; plain functions become tools that need no approval.

    Raises ValueError for two of one name, and TypeError for an object that is no tool.
    """
    tools: dict[str, Tool] = {}
    for item in items:
        made = item if isinstance(item, Tool) else _made(item, {})
        if made.unbound:
            raise TypeError(
                f"tool {made.name!r} is a method without its object; "
                f"give the one of an instance: 'instance.{made.name}'"
            )
        if made.name in tools:
            raise ValueError(
                f"two tools are named {made.name!r}: {_origin(tools[made.name].fn)} and "
                f"{_origin(made.fn)}; give one another name: @tool(name=...)"
            )
        tools[made.name] = made
    return tools


def _stated_defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema["properties"].items()
    return {k: p["default"] for k, p in properties if isinstance(p, Mapping) and "default" in p}


def _function(fn: Any) -> Any:
    fn = fn.fn if isinstance(fn, Tool) else fn
    if isinstance(fn, staticmethod):
        fn = fn.__func__
    if not callable(fn) or isinstance(fn, type):
        is_class_method = isinstance(fn, classmethod)
        way_out = "write @classmethod above @tool" if is_class_method else "give a function"
        raise TypeError(f"a tool is a function, not {_origin(fn)}; {way_out}")
    below = plain_function(fn)
    if inspect.isgeneratorfunction(below) or inspect.isasyncgenfunction(below):
        raise TypeError(
            f"tool {_origin(fn)} is a generator; return one result, and report progress with "
            "context.update(text)"
        )
    return fn


def _name(fn: Any, stated: str | None) -> str:
    while stated is None and isinstance(fn, functools.partial):
        fn = fn.func
    name = stated if stated is not None else getattr(fn, "__name__", type(fn).__name__)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"a tool cannot be named {name!r}; give it a name of 1 to 64 letters, digits, "
            "'_' and '-': tool(name=...)"
        )
    return name


def _seconds(name: str, timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"tool {name!r}: timeout must be seconds or None, not {timeout!r}")
    if not 0 < timeout < math.inf:
        raise ValueError(f"tool {name!r}: timeout must be above 0 seconds, not {timeout!r}")
    return float(timeout)


_FLAG, _HINT, _TEXT = "true or false", "true, false or None", "a text or None"
_CHECKED = {
    "requires_approval": _FLAG,
    "idempotent": _FLAG,
    "unattended": _FLAG,
    "read_only": _HINT,
    "destructive": _HINT,
    "description": _TEXT,
    "title": _TEXT,
    "version": _TEXT,
    "origin": _TEXT,
}


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    for option, expected in _CHECKED.items():
        value = options[option]
        right = isinstance(value, str if expected is _TEXT else bool)
        if not right and (value is not None or expected is _FLAG):
            raise TypeError(f"tool {name!r}: {option} must be {expected}, not {value!r}")


def _editable(
    name: str, stated: bool | Sequence[str], schema: Mapping[str, Any]
) -> bool | tuple[str, ...]:
    if isinstance(stated, bool):
        return stated
    if isinstance(stated, str):
        raise TypeError(f"tool {name!r}: editable takes a list of names; write [{stated!r}]")
    if not isinstance(stated, Iterable):
        raise TypeError(f"tool {name!r}: editable takes a list of names, not {stated!r}")
    unknown = sorted(set(stated) - set(schema["properties"]))
    if unknown:
        raise ValueError(f"tool {name!r}: editable names {unknown}, which are no parameters")
    return tuple(stated)


def _origin(fn: object) -> str:
    below: Any = plain_function(fn) if callable(fn) and not isinstance(fn, type) else fn
    module, name = getattr(below, "__module__", None), getattr(below, "__qualname__", None)
    return f"{module}.{name}" if module and name else repr(fn)[:100]
