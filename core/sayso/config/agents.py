"""The id of the agent that a proposal belongs to: replicas and restarts share it, other agents do
not (design, section 6, "The deed": "Agent")."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")


@dataclass(frozen=True, slots=True)
class Birthplace:
    """The place where an agent was made: the running module, and the code that made it."""

    module: Mapping[str, Any]
    maker: str

    def name_of(self, agent: object) -> str:
        """The module and attribute of the agent, else the function that made it."""
        named = [name for name, value in self.module.items() if value is agent]
        return f"{place_of(self.module)}:{named[0]}" if named else self.maker


def birthplace(agent: object) -> Birthplace:
    """The birthplace of an agent that is being made."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is agent:
        frame = frame.f_back
    assert frame is not None
    maker = f"{place_of(frame.f_globals)}:{frame.f_code.co_qualname}"
    module = frame
    while module.f_code.co_name != "<module>" and module.f_back is not None:
        module = module.f_back
    return Birthplace(module.f_globals, maker)


def name_of_callable(function: Callable[..., Any]) -> str:
    """The module and qualified name of a function, or of the class of an object."""
    kind: Any = function if hasattr(function, "__qualname__") else type(function)
    module = sys.modules.get(getattr(kind, "__module__", None) or "")
    names = vars(module) if module is not None else {}
    return f"{place_of(names)}:{kind.__qualname__}"


def place_of(names: Mapping[str, Any]) -> str:
    """The name of a package's module, otherwise the whole path of its file: many folders have an
    `agent.py`."""
    spec, name = names.get("__spec__"), str(names.get("__name__", ""))
    name = spec.name if name == "__main__" and spec is not None else name
    file = names.get("__file__")
    if not file:
        return name
    is_packaged = "." in name or _INSTALLED.search(str(file)) is not None
    return name if is_packaged and name != "__main__" else os.path.realpath(file)


def folder_of(agent: str) -> str:
    """The name of the folder for an agent's state."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", agent.rpartition("/")[2]).strip("-")[:40]
    return f"{plain or 'agent'}-{hashlib.sha256(agent.encode()).hexdigest()[:8]}"
