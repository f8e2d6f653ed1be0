"""The undocumented names that Sayso relies on: parts of uvicorn and httptools, and private names.

uvicorn documents its configuration and running, not its protocol classes; the listener derives from
these. Each such name is listed with the file that needs it. A release of uvicorn without one fails
here, by the name, and so does code that begins to rely on another one.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import httptools
import pytest
import uvicorn
from a2a.server.agent_execution.active_task import ActiveTask
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import DatabasePushNotificationConfigStore, DatabaseTaskStore
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from sayso.listener.exchange import Exchange

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*ROOT.glob("core/sayso/**/*.py"), *ROOT.glob("plugins/*/sayso_*/**/*.py")])

BASES: dict[str, type] = {
    "HttpToolsProtocol": HttpToolsProtocol,
    "RequestResponseCycle": RequestResponseCycle,
    "WebSocketsSansIOProtocol": WebSocketsSansIOProtocol,
    "FlowControl": FlowControl,
    "Server": uvicorn.Server,
    "Config": uvicorn.Config,
}
"""The classes that Sayso derives from, by the last word of their name in the code."""
HOLDERS: dict[str, type] = {
    "_connection": HttpToolsProtocol,
    "connection": HttpToolsProtocol,
    "cycle": RequestResponseCycle,
    "flow": FlowControl,
    "parser": httptools.HttpRequestParser,
    "server_state": ServerState,
}
"""The variables and attributes that have an object of one of these, by name."""
RELIED_ON: dict[str, dict[str, str]] = {
    "core/sayso/listener/exchange.py": {
        "FlowControl": "write_paused",
        "HttpToolsProtocol": "client flow on_response_complete server_state transport",
        "ServerState": "default_headers",
    },
    "core/sayso/listener/frames.py": {
        "WebSocketsSansIOProtocol": (
            "app close_sent close_timer conn curr_msg_data_type disconnected frames handle_cont "
            "handle_parser_exception handle_ping handshake_complete initial_response "
            "keepalive_timeout logger loop "
            "pong_timer queue read_paused receive run_asgi scope send send_500_response "
            "send_keepalive_ping send_receive_event_to_app shutdown transport writable"
        ),
    },
    "core/sayso/listener/connections.py": {
        "FlowControl": "resume_reading",
        "HttpToolsProtocol": "loop timeout_keep_alive timeout_keep_alive_handler",
    },
    "core/sayso/listener/listener.py": {
        "Config": "lifespan_class load",
        "Server": (
            "capture_signals config lifespan server_state should_exit shutdown started startup"
        ),
        "ServerState": "connections",
    },
    "core/sayso/listener/protocol.py": {
        "FlowControl": "read_paused resume_reading write_paused",
        "HttpRequestParser": (
            "feed_data get_http_version get_method set_dangerous_leniencies should_keep_alive "
            "should_upgrade"
        ),
        "HttpToolsProtocol": (
            "_should_upgrade _start_asgi_task _unset_keepalive_if_required app config cycle "
            "expect_100_continue flow handle_websocket_upgrade headers logger loop on_body "
            "on_headers_complete on_message_begin on_message_complete on_response_complete parser "
            "pipeline root_path send_400_response server_state shutdown transport url"
        ),
        "RequestResponseCycle": "keep_alive more_body response_complete response_started",
        "ServerState": "total_requests",
    },
    "core/sayso/listener/unchunked.py": {
        "RequestResponseCycle": "chunked_encoding expected_content_length send",
    },
    "core/sayso/threaded.py": {"Server": "run should_exit startup"},
    "plugins/mcp/sayso_mcp/running.py": {"Server": "capture_signals"},
    "plugins/metrics/sayso_metrics/port.py": {"Server": "capture_signals"},
}
"""For each file, the names of each class that it overrides or uses."""

PRIVATE: dict[str, dict[type, str]] = {
    "core/sayso/listener/protocol.py": {
        HttpToolsProtocol: "_should_upgrade _start_asgi_task _unset_keepalive_if_required"
    },
    "plugins/a2a/sayso_a2a/official/handler.py": {
        DefaultRequestHandler: (
            "_active_task_registry _agent_card _push_config_store _push_sender _setup_active_task"
        ),
        ActiveTask: "_producer_task",
    },
    "plugins/a2a/sayso_a2a/official/database.py": {
        DatabaseTaskStore: "_from_orm _to_orm",
        DatabasePushNotificationConfigStore: "_from_orm _to_orm",
    },
}
"""For each file, the names with an underscore that belong to classes of others."""
PYTHON = {"_asdict", "_exit", "_getframe", "_replace", "_Decompress", "_TypedDictMeta"}
"""Python's own: documented ones, one of an annotation, and one that is only used on 3.11."""


def members(base: type) -> set[str]:
    """The names of a class, and of the attributes that its methods set, without those that asyncio
    documents."""
    found = {name for name in dir(base) if not name.startswith("__")}
    for each in base.__mro__:
        if each.__module__.startswith(("uvicorn.", "a2a.")):
            tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
            found |= set(filter(None, map(_set_on_self, ast.walk(tree))))
    return found - set(dir(asyncio.Protocol))


def _set_on_self(node: ast.AST) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            return name
    return None


def last_word(node: ast.AST) -> str:
    """`flow` of `self.flow`, `super` of `super()`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id=name)):
            return name
    return ""


def used(path: Path) -> dict[str, set[str]]:
    """The members of uvicorn's and httptools' classes that a file overrides or uses, by class."""
    found: dict[str, set[str]] = {}
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in BASES.keys() & {last_word(each) for each in node.bases}:
                known = members(BASES[base])
                found.setdefault(base, set()).update(known & set(_names_of(node)))
        if isinstance(node, ast.Attribute) and last_word(node.value) in HOLDERS:
            holder = HOLDERS[last_word(node.value)]
            if node.attr in members(holder):
                found.setdefault(holder.__name__, set()).add(node.attr)
    return {base: names for base, names in found.items() if names}


def _names_of(definition: ast.ClassDef) -> Iterator[str]:
    """The methods that a class defines, its attributes, and everything that it uses of itself."""
    for node in definition.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
    for each in ast.walk(definition):
        if isinstance(each, ast.Attribute) and last_word(each.value) in ("self", "super"):
            yield each.attr


def private(path: Path) -> set[str]:
    """The names with an underscore that a file uses of objects and that Sayso does not define."""
    tree = ast.parse(path.read_text("utf-8"))
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {n for n in asked if n.startswith("_") and not n.endswith("__")} - own() - PYTHON


@cache
def own() -> set[str]:
    """The names that Sayso's own functions, classes, fields and slots have."""
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    found.add(name)
    # A method that overrides somebody else's is not Sayso's own.
    others = {names for listed in PRIVATE.values() for names in listed.values()}
    return found - set(" ".join(others).split())


def test_each_name_that_a_file_relies_on_is_there_and_listed() -> None:
    said = []
    for path in SOURCES:
        file = str(path.relative_to(ROOT))
        listed = {base: set(names.split()) for base, names in RELIED_ON.get(file, {}).items()}
        found = used(path) if "uvicorn" in path.read_text("utf-8") or listed else {}
        for base in sorted(listed.keys() | found.keys()):
            gone = listed.get(base, set()) - found.get(base, set())
            new = found.get(base, set()) - listed.get(base, set())
            said += [f"{file} needs {base}.{name}, which is not there" for name in sorted(gone)]
            said += [f"{file} uses {base}.{name}: list it" for name in sorted(new)]
    assert not said, "\n".join(said)
    assert RELIED_ON.keys() <= {str(path.relative_to(ROOT)) for path in SOURCES}


def test_private_names_of_others_are_there_and_listed() -> None:
    for path in SOURCES:
        file = str(path.relative_to(ROOT))
        listed = PRIVATE.get(file, {})
        assert private(path) == set(" ".join(listed.values()).split()), file
        for owner, names in listed.items():
            assert set(names.split()) <= members(owner), f"{file} needs them of {owner.__name__}"


def test_exchange_has_what_uvicorn_asks_of_a_cycle() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(HttpToolsProtocol)))
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and last_word(node.value) in ("cycle", "existing_cycle")
    }
    assert {"keep_alive", "response_complete"} <= asked
    # uvicorn starts the task of a cycle of its own, and gives bodies only to that one.
    assert {name for name in asked if not hasattr(Exchange, name)} <= {"body", "run_asgi"}


@pytest.mark.parametrize("name", ["uvicorn", "httptools"])
def test_what_has_no_promise_has_an_upper_bound(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (bound,) = [r for r in map(Requirement, project["dependencies"]) if r.name == name]
    assert sorted(each.operator for each in bound.specifier) == ["<", ">="]
