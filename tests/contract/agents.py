"""Agents and tools for the contract's tests: a scripted model, and tools that count their runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from sayso import Agent, Call, tool
from sayso.testing.script import Scripted


class Counted:
    """A gated tool `delete` and an open tool `look`; `runs` has the inputs that ran."""

    def __init__(self, **options: Any) -> None:
        self.runs: list[dict[str, Any]] = []
        self.looks: list[str] = []
        self.lock = threading.Lock()

        @tool(requires_approval=True, **options)
        def delete(name: str, force: bool = False, grace: int = 0) -> str:
            """Delete a thing.

            Args:
                name: what to delete
                force: even if it is in use
                grace: seconds to wait
            """
            with self.lock:
                self.runs.append({"name": name, "force": force, "grace": grace})
            if name == "broken":
                raise ValueError("it cannot be deleted")
            return f"deleted {name}"

        @tool
        def look(name: str) -> str:
            """Look at a thing."""
            self.looks.append(name)
            return f"{name} is there"

        self.tools = [delete, look]

    @property
    def names(self) -> list[str]:
        return [run["name"] for run in self.runs]


def whole(name: str, **rest: Any) -> dict[str, Any]:
    """The input that `delete` gets, in its recorded form."""
    return {"name": name, "force": False, "grace": 0, **rest}


def scripted(script: Any, tools: Sequence[Any] = (), **fields: Any) -> tuple[Agent, Scripted]:
    """An agent on a scripted model, and the model, whose `asks` record its input."""
    model = Scripted(script)
    return Agent(model=model, tools=list(tools), **fields), model


def delete(name: str = "a", id_: str = "p1", **rest: Any) -> Call:
    return Call(id_, "delete", {"name": name, **rest})


def look(name: str = "a", id_: str = "l1") -> Call:
    return Call(id_, "look", {"name": name})


def suggest(*commands: Any, id_: str = "c1") -> Call:
    listed = [c if isinstance(c, dict) else {"command": c} for c in commands]
    return Call(id_, "suggest_commands", {"commands": listed})
