"""Writes docs/configuration.md and docs/api.md: `python docs/generate.py`.

The former comes from the settings models; reference.py writes the latter.

With `--check` it writes nothing and fails if the file differs from the models.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from sayso.cli.config import plugin_settings
from sayso.config import Config
from sayso.config.settings import Section, meanings, seconds, size
from sayso.plugins.discovery import BUILT_IN

# The origin of a rule is only for readers of the source.
_SOURCE = re.compile(r" \(interface\.md[^)]*\)")
FILE = Path(__file__).with_name("configuration.md")

HEAD = """\
# Configuration

```toml sayso.toml
agent = "ops_agent.py:agent"
plugins = ["v2", "router"]

[server]
port = 9000

[plugin.router]
on_error = "silent"
```

A value comes from the last of these places that has it:

1. the defaults below;
2. the file: `--config FILE`, else the file that `SAYSO_CONFIG` names, else `sayso.toml` in the
   working folder, else `[tool.sayso]` in `pyproject.toml`;
3. the environment: `SAYSO_SERVER__PORT=9000`, with two underscores for each dot;
4. flags (`--port 9000`) and keywords of `serve()`.

`sayso config` shows each value and where it came from. `sayso config schema` writes the JSON
schema, for an editor. An unknown key stops the start, and the error suggests the nearest right
one.

**Environment.** A list is separated by commas, `SAYSO_PLUGINS=v1,v2`. A list of tables is JSON.
Keys of a table follow two more underscores, and become small letters:
`SAYSO_AUTH__TOKENS__ANN=...` sets `ann`. An empty variable counts as absent. A variable that
resembles a setting, but is none, stops the start; for any other that begins with `SAYSO_` the
start prints a warning.

**Values.** Durations are `"24h"`, `"10m"`, `"30s"`, `"300ms"`, or a number of seconds, at most
100 years. Sizes are `"10MiB"`, or a number of bytes. Paths in the file are relative to the
file. A key without a default may be absent.

**Log.** The log goes to standard error, unless the agent's module sets up logging. A record is
one line, with control characters written out (`\\n`); a trace follows in lines that begin with
`  | `. No record shows the user and password of an address, or keys in its query, whichever
library writes it.

**Permissions.** Other users must not be able to write the state folder, the file of the ledger,
or `auth.tokens_file`. Otherwise the start stops, and the error has the `chmod` that helps.

`python docs/generate.py` writes this page from the source.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## The top of the file\n\n" + _table(Config, _top_keys())]
    for name, field in Config.model_fields.items():
        if _is_section(field.annotation):
            parts += _sections(name, field.annotation)
    rules = Config.model_fields["approvals"].annotation
    rule = get_args(rules.model_fields["rules"].annotation)[0]  # type: ignore[union-attr]
    parts.append(_section("[[approvals.rules]]", rule))
    known = plugin_settings()
    for name in BUILT_IN:
        if name in known and known[name].model_fields:
            parts += _sections(f"plugin.{name}", known[name])
    return "\n".join(parts)


def _top_keys() -> list[str]:
    fields = Config.model_fields
    return [name for name in fields if not _is_section(fields[name].annotation)]


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _sections(name: str, model: Any) -> Iterator[str]:
    """The section, then those within it; `[auth.principals.NAME]` is one for each name."""
    inside = {key: field.annotation for key, field in model.model_fields.items()}
    nested = {key: model for key, model in inside.items() if _is_section(model)}
    named = {key: get_args(kind)[1] for key, kind in inside.items() if get_origin(kind) is dict}
    named = {key: model for key, model in named.items() if _is_section(model)}
    own = [key for key in inside if key not in {*nested, *named}]
    yield f"## `[{name}]`\n\n{_table(model, own)}"
    for key, each in named.items():
        yield _section(f"[{name}.{key}.NAME]", each)
    for key, each in nested.items():
        yield from _sections(f"{name}.{key}", each)


def _section(title: str, model: Any) -> str:
    return f"## `{title}`\n\n{_table(model, list(model.model_fields))}"


def _table(model: type[BaseModel], names: Sequence[str]) -> str:
    texts = meanings(model)
    rows = [("key", "value", "default", "meaning"), ("---",) * 4]
    for name in names:
        field = model.model_fields[name]
        rows.append((f"`{name}`", kind(field), default(field), _SOURCE.sub("", texts[name])))
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def kind(field: FieldInfo) -> str:
    """The allowed values, in words."""
    return ", ".join([_words(field.annotation, field.metadata), *_bounds(field)])


def _words(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    readers = {getattr(one, "func", None) for one in metadata}
    if seconds in readers or size in readers:
        return "duration" if seconds in readers else "size"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_words(one) for one in arguments if one is not NoneType)
    if origin is Annotated:
        bounds = list(_bounds_of(annotation.__metadata__))
        return ", ".join([_words(arguments[0], annotation.__metadata__), *bounds])
    if origin is list:
        return f"list of {_words(arguments[0])}s"
    if origin is dict or annotation is dict:
        return "table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    names = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "path"}
    return names.get(annotation, "secret text" if annotation is SecretStr else "value")


def _bounds(field: FieldInfo) -> Iterator[str]:
    return _bounds_of(field.metadata)


def _bounds_of(metadata: Sequence[Any]) -> Iterator[str]:
    inner = [getattr(one, "metadata", ()) for one in metadata]
    for one in [*metadata, *(each for found in inner for each in found)]:
        for name, words in (("ge", "at least"), ("gt", "above"), ("le", "at most")):
            if (bound := getattr(one, name, None)) is not None:
                yield f"{words} {bound:g}"


def default(field: FieldInfo) -> str:
    """The default in the form of the file."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    readers = {getattr(one, "func", None) for one in field.metadata}
    match value:
        case None:
            return ""
        case float() if seconds in readers:
            return f'`"{_duration(value)}"`'
        case int() if size in readers:
            return f'`"{_size(value)}"`'
        case BaseModel() | {}:
            return ""
    return f"`{json.dumps(value, default=str)}`"


def _duration(value: float) -> str:
    for unit, factor in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if value >= factor and value % factor == 0 and (unit != "d" or value > factor):
            return f"{value / factor:g}{unit}"
    return f"{value:g}s"


def _size(value: int) -> str:
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


def main() -> None:
    """Write the page, or check it."""
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text("utf-8") != page():
            sys.exit(f"{FILE.name} is not what the models say; run: python docs/generate.py")
        runpy.run_path(str(FILE.with_name("reference.py")), run_name="__main__")
        return
    FILE.write_text(page(), "utf-8")
    runpy.run_path(str(FILE.with_name("reference.py")), run_name="__main__")


if __name__ == "__main__":
    main()
