"""The identity of a tool, so that an approval of one never runs another (design, section 6, "The
deed").

It binds the name, the tool's origin, the schema with its defaults, and the annotations. It does not
bind the function's body, nor texts for people: descriptions and titles.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sayso.tools.inputs import OF_NAMES, UNSTEADY, VALUES, Taking, steady
from sayso.tools.signatures import plain_function
from sayso.trees import canonical

_INSTALLED = ("site-packages", "dist-packages")
_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "sayso.toml", ".git", ".hg")
_LOOPBACK = re.compile(
    r"//(?:localhost|[\w.-]+\.localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?(?=[/?#]|$)", re.I
)
_READ_BY_PEOPLE = frozenset({"title", "description", "$comment", "examples"})


class Identified(Taking, Protocol):
    """The attributes of a tool that its identity needs."""

    origin: str
    version: str | None
    idempotent: bool
    read_only: bool | None
    destructive: bool | None

    @property
    def bound_schema(self) -> dict[str, Any]:
        """The schema of its input, with the defaults of secrets."""
        ...

    @property
    def inner_secrets(self) -> Sequence[tuple[str, Any]]:
        """The secrets that are defaults within its parameters, with the names of their fields."""
        ...


def source_of(fn: Callable[..., Any]) -> str:
    """The place of a function: its file, relative to its project, and its qualified name.

    It is the same in another checkout, and whichever module the process started with.
    """
    below: Any = plain_function(fn)
    name = getattr(below, "__qualname__", type(below).__qualname__)
    code = getattr(below, "__code__", None)
    place = _place(code.co_filename) if code is not None else ""
    module = getattr(below, "__module__", None) or ""
    if not place and module != "__main__":
        place = module
    return f"{place}:{name}" if place else name


@functools.lru_cache(maxsize=1024)
def _place(file: str) -> str:
    path = Path(file)
    if not path.is_absolute():
        return ""  # made by `exec` or typed at a prompt
    for depth in range(len(path.parts) - 1, 0, -1):
        if path.parts[depth - 1] in _INSTALLED:
            return "/".join(path.parts[depth:])
    for folder in path.parents:
        if any((folder / name).exists() for name in _PROJECT):
            return path.relative_to(folder).as_posix()
    top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return path.relative_to(top).as_posix()


def without_loopback_port(origin: str) -> str:
    """An origin without the port of an address of this machine, since that differs after each
    start."""
    return _LOOPBACK.sub("//localhost", origin)


def digest_of(tool: Identified) -> str:
    """The digest that identifies the approved tool; if the author states a `version`, it replaces
    everything but the name."""
    if tool.version is not None:
        return _hashed(["version", tool.name, tool.version])
    hints = [tool.read_only, tool.destructive, tool.idempotent]
    defaults = {name: text for name, text in _defaults(tool) if text is not None}
    found = [tool.name, tool.origin, _bare(tool.bound_schema), defaults, hints]
    inner = sorted(_inner(tool))
    return _hashed([*found, inner] if inner else found)


def unsteady(tool: Identified) -> list[str]:
    """The parameters whose defaults differ from process to process, which no digest can bind."""
    if tool.version is not None:
        return []
    return [name for name, text in _defaults(tool) if text is None]


def _hashed(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def _defaults(tool: Identified) -> Iterator[tuple[str, str | None]]:
    """Each default in the digest's form; None for one that differs in another process."""
    for name, value in sorted(tool.defaults.items()):
        if isinstance(value, FieldInfo):
            if value.default is PydanticUndefined or value.default_factory is not None:
                continue  # The value of a factory is recorded with the input of each call
            value = value.default
        found = steady(value)
        yield name, None if found is UNSTEADY else _kept(tool, name, canonical(found))


def _inner(tool: Identified) -> Iterator[list[str]]:
    """The secrets within parameters, which are not in any schema."""
    for name, value in tool.inner_secrets:
        if (found := steady(value)) is not UNSTEADY:
            yield [name, _keyed(tool, name, canonical(found))]


def _kept(tool: Identified, name: str, text: bytes) -> str:
    if name not in tool.secret_defaults:
        return text.decode("utf-8", "surrogatepass")
    return _keyed(tool, name, text)


def _keyed(tool: Identified, name: str, text: bytes) -> str:
    # Keyed, and slow to guess from: the ledger keeps the digest made of it.
    salt = f"sayso:{tool.name}:{name}".encode()
    return hashlib.scrypt(text, salt=salt, n=2**12, r=8, p=1).hex()


def _bare(schema: Any, *, names: bool = False) -> Any:
    """A JSON schema without texts for people; with `names` the keys are no keywords."""
    if isinstance(schema, Mapping):
        return {
            key: value
            if not names and key in VALUES
            else _bare(value, names=not names and key in OF_NAMES)
            for key, value in schema.items()
            if names or key not in _READ_BY_PEOPLE
        }
    if isinstance(schema, list | tuple):
        return [_bare(item) for item in schema]
    return schema
