"""Agents and other objects by name: "package.module:object" or "path/to/file.py:object"."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from sayso.config.files import no_file
from sayso.errors import ConfigError, nearest

DEFAULT_ATTRIBUTE = "agent"
_AGENT = "sayso.agent.Agent"
loading: ContextVar[bool] = ContextVar("sayso_loading", default=False)
"""Whether `load_agent` is currently importing a module."""


def load_agent(target: str, directory: Path, what: str = "agent") -> Any:
    """The object that `target` names; the attribute is `agent` unless `:object` says otherwise.

    Paths are relative to `directory`, and modules are searched for there first. Raises ConfigError
    if the module, the file or the object is missing, or if importing it raises; `what` is the name
    for the object in messages.
    """
    place, attribute = _split(target, what)
    subject = f"the {what} {target!r} cannot be loaded"
    before = loading.set(True)
    try:
        if place.endswith(".py"):
            # Not Path.resolve, which raises an error of its own for a circle of links.
            module = _import_file(subject, Path(os.path.realpath(directory / place)))
        else:
            module = _import_module(subject, place, directory.resolve())
    finally:
        loading.reset(before)
    return _attribute(subject, module, place, attribute)


def _split(target: str, what: str) -> tuple[str, str]:
    # Not rpartition, which would split a Windows path without an object at its drive letter.
    place, colon, attribute = target.rpartition(":")
    if not colon or "/" in attribute or "\\" in attribute:
        place, attribute = target, DEFAULT_ATTRIBUTE
    relative = place.startswith(".") and not place.endswith(".py")
    if not place or not attribute or relative:
        raise ConfigError(
            f"{target!r} names no {what}; write 'module:object' or 'path/to/file.py:object'"
        )
    return place, attribute


def _import_module(subject: str, name: str, directory: Path) -> ModuleType:
    _search_first(directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(subject, error, directory) from error
        is_path = "/" in name
        if not is_path and (directory / name).with_suffix(".py").is_file():
            raise _failed(subject, error, directory) from error
        way_out = "write 'module:object' or 'path/to/file.py:object'"
        if is_path and (directory / f"{name}.py").is_file():
            way_out = f"did you mean the file '{name}.py'?"
        raise ConfigError(
            f"{subject}: there is no module {(name if is_path else error.name)!r} "
            f"in {str(directory)!r} nor among the installed packages; {way_out}"
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _failed(subject, error, directory) from error


def _import_file(subject: str, path: Path) -> ModuleType:
    if (kind := no_file(path)) is not None:
        raise ConfigError(f"{subject}: {str(path)!r} is {kind}, no file")
    if not path.is_file():
        raise ConfigError(f"{subject}: there is no file {str(path)!r}")
    if (running := _already_loaded(path)) is not None:
        return running
    root, name = _module_name(path)
    _search_first(root)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{subject}: {str(path)!r} is no module")
    try:
        if "." in name:
            importlib.import_module(name.rpartition(".")[0])
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.modules.pop(name, None)
        raise _failed(subject, error, root) from error
    return module


def _already_loaded(path: Path) -> ModuleType | None:
    """The module of `path` if it was imported.

    The running script itself does not count: it may still be in the middle of its own import.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and isinstance(file, str) and file.endswith(path.name):
            if Path(file).resolve() == path:
                return module
    return None


def _module_name(path: Path) -> tuple[Path, str]:
    """The folder to import from and the dotted name, so that relative imports work."""
    names = [] if path.stem == "__init__" else [path.stem]
    root = path.parent
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        names.insert(0, root.name)
        root = root.parent
    name = ".".join(names)
    if name in sys.modules or name in sys.stdlib_module_names:
        # Another module has this name; a file such as email.py must not take its place.
        name = f"_agent_{name.replace('.', '_')}"
    return root, name


def _search_first(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _attribute(subject: str, module: ModuleType, place: str, attribute: str) -> Any:
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigError(
                f"{subject}: {module.__name__!r} has no {attribute!r}; "
                + _way_out(name, found, place)
            )
        found = getattr(found, name)
    return found


def _way_out(name: str, inside: Any, place: str) -> str:
    """The objects that `name` may have meant; not `Agent`, which was only imported to make one."""
    own = {n: value for n, value in vars(inside).items() if not n.startswith("_")}
    close = nearest(name, [n for n in own if n != "Agent"])
    if close:
        return f"did you mean {close!r}?"
    made = sorted(n for n in own if _AGENT in map(_dotted, type(own[n]).__mro__))
    if isinstance(inside, ModuleType) and made:
        return "write " + " or ".join(repr(f"{place}:{n}") for n in made)
    return "write one that it has after a colon"


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__name__}"


def _failed(subject: str, error: BaseException, directory: Path) -> ConfigError:
    # The text of a SyntaxError already ends with a place, but without its folder.
    text = error.msg if isinstance(error, SyntaxError) and error.filename else error
    what = f"{type(error).__name__}: {text}"
    return ConfigError(f"{subject}: importing it raised {what}{_where(error, directory)}")


def _where(error: BaseException, directory: Path) -> str:
    """The last line of the user's own code, below `directory`, that led to `error`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(directory) and "site-packages" not in frame.filename:
            return f" ({frame.filename}, line {frame.lineno})"
    return ""
