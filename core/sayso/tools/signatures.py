"""A function's signature: its own parameters, and those that Sayso injects.

A parameter is injected because of its annotation (`Session`, `RequestContext`) or, if it has none
that says otherwise, because of its name `session` or `context` (design, section 8).
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

from sayso.context import Session

Injected = Literal["session", "context"]
EMPTY: Any = inspect.Parameter.empty
# RequestContext is known by its name only: its module imports this one.
_STAND_INS = {
    "Session": Session,
    "RequestContext": type("RequestContext", (), {"__module__": "sayso"}),
}
_NOTHING: Mapping[str, Any] = {}
_SAYS_NOTHING = (EMPTY, Any, object)
_MAPPINGS = (dict, Mapping, MutableMapping)


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter that the model fills; `default` is EMPTY when there is none."""

    name: str
    annotation: Any
    default: Any


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a tool's function.

    `fixed` are the arguments already given by partials. `rest` is the annotation of `**kwargs`,
    None without them. `unbound` says that the function is a method that lacks its `self` or `cls`.
    """

    arguments: tuple[Argument, ...]
    injected: Mapping[str, Injected]
    fixed: Mapping[str, Any]
    rest: Any = None
    unbound: bool = False

    @property
    def closed(self) -> frozenset[str]:
        """The names that the model must not use."""
        return frozenset({*self.fixed, *self.injected})

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of parameters that were not sent."""
        own = {a.name: a.default for a in self.arguments if a.default is not EMPTY}
        return {**own, **self.fixed}


def check_call(option: str, function: object, *arguments: str) -> None:
    """Raise TypeError, naming `option`, for an object that cannot be called with `arguments`."""
    taken = f"({', '.join(arguments)})"
    if not callable(function):
        raise TypeError(f"{option}: {function!r} is no function of {taken}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some built-in functions have no signature
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(f"{option}: {function!r} cannot be called with {taken}: {error}") from None


def plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function below partials, bound methods, wrappers and callable objects."""
    *_, lowest = layers(fn)
    return lowest


def layers(fn: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """`fn`, the function that it is a partial, method or wrapper of, and so on down to the plain
    one."""
    while True:
        yield fn
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif inspect.ismethod(fn) or isinstance(fn, staticmethod):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif not inspect.isroutine(fn) and inspect.isfunction(type(fn).__call__):
            fn = type(fn).__call__
        else:
            return


def read_signature(fn: Callable[..., Any], label: str, named: Collection[str]) -> Signature:
    """The signature of `fn`; parameters in `named` are the model's, whatever they are called.

    Raises TypeError, naming the tool as `label`, for parameters that cannot be passed by name and
    for annotations that cannot be read.
    """
    below = plain_function(fn)
    scope = _Scope(below, label)
    parameters = _parameters(fn, label)
    unbound = _lacks_self(fn, parameters)
    fixed = _fixed(fn)
    arguments: list[Argument] = []
    injected: dict[str, Injected] = {}
    rest: Any = None
    for parameter in parameters[1 if unbound else 0 :]:
        _refuse_positional(parameter, label)
        if parameter.name in fixed:
            continue
        kind, annotation = scope.read(parameter, parameter.name in named)
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = Any if annotation is EMPTY else annotation
        elif kind:
            injected[parameter.name] = kind
        else:
            arguments.append(Argument(parameter.name, annotation, parameter.default))
    return Signature(tuple(arguments), injected, fixed, rest, unbound)


def _parameters(fn: Callable[..., Any], label: str) -> list[inspect.Parameter]:
    try:
        if sys.version_info >= (3, 14):
            import annotationlib

            shape = inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
        else:
            shape = inspect.signature(fn)
    except (TypeError, ValueError):
        raise TypeError(
            f"tool {label!r}: its signature cannot be read; wrap it in a function of your own"
        ) from None
    return list(shape.parameters.values())


def _fixed(fn: Callable[..., Any]) -> dict[str, Any]:
    fixed: dict[str, Any] = {}
    for layer in layers(fn):
        if isinstance(layer, functools.partial):
            # The outer partial wins.
            by_place = zip(inspect.signature(layer.func).parameters, layer.args, strict=False)
            fixed = {**dict(by_place), **layer.keywords, **fixed}
    return fixed


def _lacks_self(fn: Callable[..., Any], parameters: list[inspect.Parameter]) -> bool:
    holder = fn.__qualname__.rpartition(".")[0] if inspect.isfunction(fn) else ""
    first = parameters[0] if parameters else None
    return (
        holder != ""
        and not holder.endswith("<locals>")
        and first is not None
        and first.name in ("self", "cls")
        and first.annotation is EMPTY
    )


def _refuse_positional(parameter: inspect.Parameter, label: str) -> None:
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(
            f"tool {label!r}: parameter {parameter.name!r} is positional-only, but a model passes "
            "arguments by name; remove the '/' or wrap the function"
        )
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise TypeError(
            f"tool {label!r}: a model passes arguments by name and cannot fill "
            f"'*{parameter.name}'; take a list parameter instead"
        )


class _Scope:
    """The names that the annotations of a function can use, local ones too."""

    def __init__(self, fn: Callable[..., Any], label: str) -> None:
        self._label = label
        self._globals: dict[str, Any] = getattr(fn, "__globals__", {})
        self._locals = _enclosing(fn, self._globals)

    def read(self, parameter: inspect.Parameter, named: bool) -> tuple[Injected | None, Any]:
        """The kind of injection for `parameter`, if any, and its annotation."""
        name, stated = parameter.name, parameter.annotation
        by_name = cast(Injected, name) if name in ("session", "context") and not named else None
        try:
            annotation = EMPTY if stated is EMPTY else self._resolve(stated)
        except NameError as error:
            if by_name:
                return by_name, stated
            annotation = self._stood_in(name, stated, error)
        except Exception as error:
            raise self._unreadable(name, stated, error) from error
        kind = _by_type(annotation)
        if kind and named:
            raise ValueError(
                f"tool {self._label!r}: {name!r} is injected and cannot stand in the input schema"
            )
        return kind or (by_name if _open_to(by_name, annotation) else None), annotation

    def _resolve(self, stated: Any, more: Mapping[str, Any] = _NOTHING) -> Any:
        holder = types.SimpleNamespace(__annotations__={"it": stated})
        names = {**more, **self._locals}
        return typing.get_type_hints(holder, self._globals, names, include_extras=True)["it"]

    def _stood_in(self, name: str, stated: Any, error: NameError) -> Any:
        """The annotation if the missing name is one of Sayso's, imported for type checkers only."""
        module = types.SimpleNamespace(**_STAND_INS)
        with suppress(Exception):
            found = self._resolve(stated, {str(error.name): module, **_STAND_INS})
            if _by_type(found):
                return found
        raise self._unreadable(name, stated, error) from None

    def _unreadable(self, name: str, stated: Any, error: Exception) -> TypeError:
        return TypeError(
            f"tool {self._label!r}: the annotation {_text(stated)!r} of parameter {name!r} cannot "
            f"be read ({error}); define or import its types above the tool, at module level"
        )


def _enclosing(fn: Callable[..., Any], module: Mapping[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    if inspect.isfunction(fn):
        names = dict(_closure(fn))
    path = getattr(fn, "__qualname__", "")
    frame = sys._getframe(1) if path else None
    while frame is not None:
        # If co_qualname of a running function is a prefix, it encloses `fn`.
        if frame.f_globals is module and path.startswith(frame.f_code.co_qualname + "."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _closure(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue


def _text(stated: Any) -> str:
    return str(getattr(stated, "__forward_arg__", stated))


def _by_type(annotation: Any) -> Injected | None:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _by_type(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        members = [a for a in typing.get_args(annotation) if a is not type(None)]
        return _by_type(members[0]) if len(members) == 1 else None
    if not isinstance(annotation, type):
        # The annotation is a `type` statement; an unresolved name is reported when it is described.
        with suppress(NameError, AttributeError):
            return _by_type(annotation.__value__)
        return None
    if issubclass(annotation, Session):
        return "session"
    names = {(c.__name__, c.__module__.partition(".")[0]) for c in annotation.__mro__}
    return "context" if ("RequestContext", "sayso") in names else None


def _open_to(kind: Injected | None, annotation: Any) -> bool:
    if any(annotation is nothing for nothing in _SAYS_NOTHING):
        return True
    mapping = (typing.get_origin(annotation) or annotation) in _MAPPINGS
    return kind == "session" and mapping
