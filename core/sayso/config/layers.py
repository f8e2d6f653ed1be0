"""The layers of a configuration: values from several places, each with its origin.

Paths are tuples of keys (`("server", "port")`); in messages they are dotted, and in
`Config.origins` as `dotted` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import AliasChoices, BaseModel, RootModel, ValidationError
from pydantic.fields import FieldInfo

from sayso.config.exact import VariableText, kinds_of
from sayso.config.received import names_of
from sayso.errors import ConfigError, nearest

PREFIX = "SAYSO_"
NAMED_FILE = "SAYSO_CONFIG"
"""The path of the configuration file."""
TOKEN = "SAYSO_TOKEN"
"""The bearer token of `sayso chat`; not a setting, though it resembles one."""
PLUGIN_KEYS = {
    "mcp_port": "plugin.mcp.port",
    "mcp_transport": "plugin.mcp.transport",
    "a2a_adapter": "plugin.a2a.adapter",
}
"""The contract's start-up options that are settings of plugins, and the keys that they set."""
_OF_PLUGINS = {
    **PLUGIN_KEYS,
    "a2a_agent_card": "plugin.a2a.agent_card",
    "channel_router": "plugin.router.router",
}
"""The same, and the options that may also be objects."""
Keys = tuple[str, ...]

# Variables that Kubernetes sets in each pod beside a Service whose name begins with "sayso".
_KUBERNETES = re.compile(
    r"SAYSO_(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d+|PORT=\w+://.*|PORT_\d+_\w+=.*)"
)


class Origin(NamedTuple):
    """The origin of a value; `text` is for people: "sayso.toml", "flag --port"."""

    kind: Literal["file", "environment", "flag", "keyword", "default"]
    text: str


class Layers:
    """Values merged key by key, the later ones winning; tables merge, lists are replaced."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}

    def add_table(self, table: Mapping[str, Any], origin: Origin, path: Keys = ()) -> None:
        """Set each leaf of `table`, a table of a TOML file."""
        for key, value in table.items():
            if isinstance(value, Mapping):
                self._parent((*path, key, ""))
                self.add_table(value, origin, (*path, key))
            else:
                self.set((*path, key), value, origin)

    def set(self, path: Keys, value: Any, origin: Origin) -> None:
        """Set the value at `path`, and forget the origins of the replaced values."""
        parent = self._parent(path)
        own = dotted(path)
        for key in [k for k in self.origins if k.startswith(f"{own}.")]:
            del self.origins[key]
        parent[path[-1]] = value
        self.origins[own] = origin

    def origin(self, path: Keys) -> Origin | None:
        """The origin of the value at `path`; see `origin_in`."""
        return origin_in(self.origins, path)

    def _parent(self, path: Keys) -> dict[str, Any]:
        table = self.values
        for depth, key in enumerate(path[:-1]):
            if path[0] == "plugin" and depth == 1:
                key = next((k for k in table if canonical(k) == canonical(key)), key)
            below = table.setdefault(key, {})
            if not isinstance(below, dict):
                # A value in the place of a section stays, so that the validation refuses it.
                if depth == 0 or (path[0] == "plugin" and depth == 1):
                    return {}
                below = table[key] = {}
            table = below
        return table


def origin_in(origins: Mapping[str, Origin], path: Sequence[str]) -> Origin | None:
    """The origin of the value at `path`, or of the list or table that it is part of.

    For a table it is the origin of its first value.
    """
    parts = [dotted(path[:length]) for length in range(len(path), 0, -1)]
    for key in parts:
        if key in origins:
            return origins[key]
    inside = (key for key in origins if parts and key.startswith(f"{parts[0]}."))
    return origins.get(next(inside, ""))


def canonical(name: str) -> str:
    """The form in which plugin names are compared: environment variables have no `-`."""
    return name.lower().replace("-", "_")


def dotted(path: Sequence[str]) -> str:
    """The key of `path` in `Config.origins`, however a plugin's name is spelt in it."""
    if path[0] != "plugin":
        return ".".join(path)
    return ".".join(["plugin", *map(canonical, path[1:2]), *path[2:]])


def read_environment(
    environ: Mapping[str, str], model: type[BaseModel]
) -> Iterator[tuple[Keys, Any, Origin]]:
    """Each configuration variable: its path, its value, its origin. Empty ones are not set.

    `SAYSO_SERVER__PORT` is `server.port`, `SAYSO_PLUGINS` is `plugins`; lists are comma
    separated or JSON, tables are JSON. Raises ConfigError for a name that looks meant for us.
    """
    for name, path in _variables(environ):
        if _is_key(path, model):
            origin = Origin("environment", f"environment {name}")
            yield path, parsed(annotation_at(model, path), VariableText(environ[name])), origin
        elif meant := _meant(path[0], model, 0.85, 0.75):
            raise ConfigError(_no_setting(name, meant))


def unread_variables(environ: Mapping[str, str], model: type[BaseModel]) -> dict[str, str]:
    """The variables with our prefix that are no settings, each with an explanation.

    They are no error: other programs may use the prefix.
    """
    found = ((name, path) for name, path in _variables(environ) if not _is_key(path, model))
    return {name: _no_setting(name, _meant(path[0], model, 0.6, 0.6)) for name, path in found}


def _no_setting(name: str, meant: str | None) -> str:
    return f"environment {name} is no setting" + (f"; did you mean {meant}?" if meant else "")


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, Keys]]:
    """The variables with our prefix, except for those known not to be settings."""
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX) or not environ[name] or name in (NAMED_FILE, TOKEN):
            continue
        path = tuple(name.upper().removeprefix(PREFIX).lower().split("__"))
        if len(path) > 1 or not _KUBERNETES.fullmatch(f"{name}={environ[name]}"):
            yield name, path


def _is_key(path: Keys, model: type[BaseModel]) -> bool:
    return len(path) > 1 or path[0] in model.model_fields


def _meant(key: str, model: type[BaseModel], like: float, like_short: float) -> str | None:
    """The variable that SAYSO_KEY was probably meant to be; None if none is similar enough."""
    names = {path[-1]: path for path in paths(model)} | {"_".join(p): p for p in paths(model)}
    names |= {option: tuple(key.split(".")) for option, key in _OF_PLUGINS.items()}
    names["config"] = ("config",)
    close = nearest(key, names, like) or nearest(key, [*model.model_fields, "config"], like_short)
    return PREFIX + "__".join(names[close]).upper() if close in names else None


def paths(model: type[BaseModel], prefix: Keys = ()) -> Iterator[Keys]:
    """The path of each key of `model` that has a value, rather than a section."""
    for name, field in fields(model).items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from paths(section, (*prefix, name))
        else:
            yield (*prefix, name)


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of `model` by their keys in a table, which for some are aliases."""
    return {key_of(model, name): field for name, field in model.model_fields.items()}


def key_of(model: type[BaseModel], name: str) -> str:
    """The key of the field `name` of `model` in a table."""
    match model.model_fields[name].validation_alias:
        case (str() as key) | AliasChoices(choices=[str() as key, *_]):
            return key
    return name


def annotation_at(model: type[BaseModel], path: Keys) -> Any:
    """The type at `path` of `model`; None if the model does not define it."""
    # With populate_by_name, a field with an alias is also known by its name.
    field = fields(model).get(path[0]) or model.model_fields.get(path[0])
    annotation = field.annotation if field else None
    if len(path) == 1:
        return annotation
    if get_origin(annotation) is dict:
        # In a table of tables, or of lists, users choose the keys.
        annotation, path = get_args(annotation)[1], path[1:]
        if len(path) == 1:
            return annotation
    section = _section(annotation)
    return annotation_at(section, path[1:]) if section else None


def parsed_table(model: type[BaseModel], table: Mapping[str, Any]) -> dict[str, Any]:
    """`table` with values from the environment `parsed` as the fields of `model` require."""
    read = {}
    for key, value in table.items():
        annotation = annotation_at(model, (key,))
        section = _section(annotation)
        if isinstance(value, VariableText):
            value = parsed(annotation, value)
        elif section and isinstance(value, Mapping):
            value = parsed_table(section, value)
        read[key] = value
    return read


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model of every table at a key of this type; None if one may have another."""
    match list(kinds_of(annotation)):
        case [type() as kind] if issubclass(kind, BaseModel):
            return kind
    return None


def parsed(annotation: Any, text: str) -> Any:
    """`text` as a list or table if `annotation` requires one; otherwise unchanged, for pydantic."""
    kinds = kinds_of(annotation) - {Any}
    if str in kinds or not kinds & {list, dict, tuple, set, frozenset}:
        return text
    if text.lstrip().startswith(("[", "{")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text if kinds <= {dict} else [part.strip() for part in text.split(",") if part.strip()]


def check_keys(made: BaseModel, table: Mapping[str, Any]) -> None:
    """Raise ValidationError for keys of `table` that the models inside `made` ignored.

    Models that do not say whether they allow further keys refuse them, as sections do.
    """
    try:
        type(made).model_validate(table, extra="forbid")
    except ValidationError as error:
        extra = (item["loc"] for item in error.errors() if item["type"] == "extra_forbidden")
        passed_over = dict.fromkeys(filter(None, (_passed_over(made, loc) for loc in extra)))
        if passed_over:
            raise ValidationError.from_exception_data(
                error.title,
                [{"type": "extra_forbidden", "loc": path, "input": None} for path in passed_over],
            ) from None


def _passed_over(made: Any, loc: Sequence[int | str]) -> tuple[int | str, ...] | None:
    """The path of the ignored key at `loc` in the result; None if it is known or allowed there."""
    path = []
    for part in loc[:-1]:
        made = made.root if isinstance(made, RootModel) else made
        match made:
            case BaseModel():
                known = type(made).model_fields.items()
                name = next((n for n, field in known if part in {*names_of(n, field)}), None)
                inside = getattr(made, name) if name else None
            case Mapping():
                inside = made.get(part)
            case list() | tuple() if isinstance(part, int) and part < len(made):
                inside = made[part]
            case _:
                inside = None
        # The path also has the name of a member of a union.
        if inside is not None:
            made = inside
            path.append(part)
    if not isinstance(made, BaseModel) or "extra" in made.model_config:
        return None
    return None if loc[-1] in fields(type(made)) else (*path, loc[-1])


def explain(
    error: ValidationError,
    model: type[BaseModel],
    origin: Callable[[Keys], Origin | None],
    prefix: Keys = (),
) -> str:
    """One line for each wrong key: the key, its origin, the expected value; never the value itself.

    `prefix` is the path of `model` in the configuration.
    """
    lines: dict[str, list[str]] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        path = _without_member(model, tuple(str(part) for part in item["loc"]))
        named = [(*path, key) for key in _keys_in(item["msg"], model, path)]
        found = [origin((*prefix, *key)) for key in named or [path]]
        texts = dict.fromkeys(one.text for one in found if one)
        where = f" ({', '.join(texts)})" if texts else ""
        if item["type"] == "extra_forbidden":
            lines[f"unknown key {_name(prefix, path)!r}{where}"] = [_suggestion(model, path)]
        else:
            meant = annotation_at(model, path) if path else model
            shape = _shape(item["type"], _name(prefix, path), meant)
            message = shape or item["msg"].removeprefix("Value error, ")
            subject = f"{_name(prefix, path)}{where}: " if path or prefix else ""
            # Each member of a union says what it expects.
            lines.setdefault(subject, []).append(message[:1].lower() + message[1:])
    return "\n".join(subject + ", or ".join(texts) for subject, texts in lines.items())


def _without_member(model: type[BaseModel], path: Keys) -> Keys:
    """The path of a wrong key without the name of a member of a union of plain types, which
    pydantic appends."""
    for end in range(1, len(path)):
        kinds = list(kinds_of(annotation_at(model, path[:end])))
        if len(kinds) > 1 and not any(hasattr(kind, "model_fields") for kind in kinds):
            return path[:end]
    return path


def _keys_in(message: str, model: type[BaseModel], path: Keys) -> list[str]:
    """The keys of the section at `path` that a message about the whole section names."""
    last = annotation_at(model, path) if path else model
    if not (isinstance(last, type) and issubclass(last, BaseModel)):
        return []
    return [key for key in re.findall(r"'(\w+)'", message) if key in last.model_fields]


def _shape(kind: str, name: str, annotation: Any) -> str:
    """A TOML example for a missing value, or for an expected list or table."""
    if kind == "missing":
        return "it is missing and has no default; set it"
    if kind == "list_type":
        of_tables = any(hasattr(part, "model_fields") for part in get_args(annotation))
        return f"expected a list of tables, [[{name}]]" if of_tables else "expected a list, [...]"
    if kind not in ("model_type", "dict_type"):
        return ""
    parts = name.split(".")
    # TOML numbers no tables: a header refers to the last one of its list.
    header = ".".join(part for part in parts if not part.isdigit())
    if parts[-1].isdigit():
        return f"expected a table, [[{header}]]"
    example = '; write [model] and below it name = "offline"' if name == "model" else ""
    return f"expected a table, [{header}]{example}"


def _name(prefix: Keys, path: Keys) -> str:
    return ".".join((*prefix, *path))


_ELSEWHERE = {
    "a2a_agent_card": "write it as a table [plugin.a2a.agent_card], or pass it to serve()",
    "channel_router": "name it as 'router' under [plugin.router], or pass it to serve()",
    "additional_routers": "they are objects: pass them to serve()",
}
"""The plugin settings for start-up options of the contract that may be objects."""


def _suggestion(model: type[BaseModel], path: Keys) -> str:
    if (key := PLUGIN_KEYS.get(path[-1])) is not None:
        table, _, name = key.rpartition(".")
        return f"; write it as {name!r} under [{table}]"
    if path[-1] in _ELSEWHERE:
        return f"; {_ELSEWHERE[path[-1]]}"
    siblings = _fields(model, path[:-1])
    if close := nearest(path[-1], siblings):
        return f"; did you mean {_name(path[:-1], (close,))!r}?"
    elsewhere = [_name((), p) for p in paths(model) if p[-1] == path[-1]]
    if elsewhere:
        return f"; did you mean {elsewhere[0]!r}?"
    return f"; known here: {', '.join(siblings)}" if siblings else ""


def _fields(model: type[BaseModel], path: Keys) -> list[str]:
    """The keys of the table at `path`; none if it may be one of several."""
    for name in path:
        annotation = annotation_at(model, (name,))
        kinds = [annotation, *get_args(annotation)]
        match [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]:
            case [section]:
                model = section
            case _ if annotation is not None:
                return []
    return [] if issubclass(model, RootModel) else list(fields(model))
