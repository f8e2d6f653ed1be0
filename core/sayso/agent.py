"""The user's declaration of an agent."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from sayso.commands import LocalShell
from sayso.commands.suggestions import SUGGEST_COMMANDS
from sayso.config.agents import birthplace, name_of_callable
from sayso.config.settings import ModelConfig
from sayso.context import RequestContext
from sayso.models import Model, ToolDefinition
from sayso.tools import Tool, as_tools
from sayso.tools.signatures import check_call
from sayso.tools.sources import ToolSource
from sayso.workers.code import is_async_generator_function

logger = logging.getLogger("sayso.agent")


SystemContext = str | Callable[[RequestContext], str | Awaitable[str]]
OneOrMany = Callable[..., Any] | Sequence[Callable[..., Any]]


def _many(option: str, given: OneOrMany | None, *arguments: str) -> tuple[Callable[..., Any], ...]:
    """The functions given for `option`, each of which takes `arguments`; raises TypeError."""
    if given is None:
        return ()
    many = (given,) if callable(given) or not isinstance(given, Iterable) else tuple(given)
    for function in many:
        check_call(option, function, *arguments)
    return many


def _text(option: str, given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{option} takes a text, not {given!r}")
    return given


def _texts(option: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{option} takes a list of texts, not {given!r}")
    return tuple(_text(option, item) for item in given)


class Agent:
    """One tool-calling agent (interface.md, "Agent configuration").

    - `id`: the owner of the agent's proposals, which no other agent can run. Without it, that is
      `name`, or else the module and attribute of the agent.
    - `version`: the agent's own version, for MCP clients and the A2A card.
    - `examples`: prompts that pages offer to begin with.
    - `model`: `"provider:id"`, `"offline"` or a `Model`; None: the configured one, or `"offline"`.
    - `tools`: tools, plain functions, and sources of tools such as `mcp_server(...)`.
    - `system_prompt`: a text that never changes, so that providers can cache it.
    - `system_context`: a text, or a function that makes one for each request.
    - Interceptors and event handlers: one or a list, plain or async.
    - `commands`: runs approved commands; None: no command is ever suggested or run.
    """

    function: Callable[..., Any] | None = None
    argument_count = 2
    generates = False

    def __init__(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        description: str = "",
        examples: Sequence[str] = (),
        version: str = "",
        model: str | Model | None = None,
        tools: Sequence[Tool | ToolSource | Callable[..., Any]] = (),
        system_prompt: str = "",
        system_context: SystemContext | None = None,
        model_config: Mapping[str, Any] | None = None,
        request_interceptors: OneOrMany | None = None,
        response_interceptors: OneOrMany | None = None,
        on_event: OneOrMany | None = None,
        commands: LocalShell | None = None,
    ) -> None:
        stated = id or name
        # Looked up here: the code that makes the agent is only known now.
        self._born = birthplace(self) if stated is None else None
        self._id = stated if stated is None else _text("id" if id else "name", stated)
        self.name = "assistant" if name is None else _text("name", name)
        self.description = _text("description", description)
        self.examples = _texts("examples", examples)
        self.version = _text("version", version)
        self.model = _model(model)
        self.sources, self._own = _tools(tools)
        self.tools = self._own
        self.system_prompt = _text("system_prompt", system_prompt)
        if system_context is not None and not isinstance(system_context, str):
            check_call("system_context", system_context, "context")
        self.system_context = system_context
        self.model_config = _model_config({} if model_config is None else model_config)
        self.request_interceptors = _many(
            "request_interceptors", request_interceptors, "request", "context"
        )
        self.response_interceptors = _many(
            "response_interceptors", response_interceptors, "response", "context"
        )
        self.on_event = _many("on_event", on_event, "event")
        self.commands = None if commands is None else _shell(commands, self.tools)
        self.definitions = self._defined()
        self._owners: dict[str, object] = {tool.name: self for tool in self.definitions}
        self.tool_listeners: list[Callable[[], None]] = []
        """Called when the tools have changed, from the home loop's thread."""

    @property
    def id(self) -> str:
        """The owner of its proposals; the same for replicas and after a restart."""
        if self._id is None and self._born is not None:
            self._id = self._born.name_of(self)
        return self._id or ""

    @property
    def has_hooks(self) -> bool:
        """Whether it has interceptors or handlers of its own."""
        return bool(self.request_interceptors or self.response_interceptors or self.on_event)

    def gather_tools(self) -> None:
        """Read the sources' tools again; a tool whose name is taken is left out.

        A name belongs to the source that had it first, even if that source no longer lists it: a
        call approved as a tool of one server must not run on another.
        """
        tools = dict(self._own)
        for source in self.sources:
            for tool in source.tools():
                mine = self._owners.setdefault(tool.name, source) is source
                if not mine or tools.setdefault(tool.name, tool) is not tool:
                    logger.warning(
                        "tool %r of %r is left out: its name is taken", tool.name, source
                    )
        # In one step: running turns keep the dict that they have.
        before, self.tools = self.tools, tools
        self.definitions = self._defined()
        if tools != before:
            for listener in list(self.tool_listeners):
                listener()

    def _defined(self) -> tuple[ToolDefinition, ...]:
        """The definitions that every turn offers to the model: the tools and, if enabled,
        commands."""
        offered = [tool.definition for tool in self.tools.values() if tool.offered]
        return (*offered, SUGGEST_COMMANDS) if self.commands is not None else tuple(offered)

    def __repr__(self) -> str:
        return f"Agent(name={self.name!r}, tools={sorted(self.tools)})"


def _model(given: str | Model | None) -> str | Model | None:
    if inspect.iscoroutinefunction(getattr(given, "stream", None)):
        raise TypeError(
            f"model: 'stream' of {given!r} must be an async generator; yield the events "
            "instead of returning them"
        )
    return given


def _tools(given: object) -> tuple[tuple[ToolSource, ...], dict[str, Tool]]:
    """The sources among the tools, and the tools themselves."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"tools takes a list of tools, not {given!r}")
    items = tuple(given)
    own = as_tools(item for item in items if not isinstance(item, ToolSource))
    return tuple(item for item in items if isinstance(item, ToolSource)), own


def _shell(given: LocalShell, tools: Mapping[str, Tool]) -> LocalShell:
    if isinstance(given, type) or not callable(getattr(given, "run", None)):
        raise TypeError(f"commands takes a LocalShell, not {given!r}")
    if SUGGEST_COMMANDS.name in tools:
        raise ValueError(
            f"with commands the tool name {SUGGEST_COMMANDS.name!r} is Sayso's own; "
            "give the tool another name: @tool(name=...)"
        )
    return given


def _model_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that were set, checked; raises ValueError naming a wrong one."""
    if not isinstance(given, Mapping):
        raise TypeError(f"model_config takes a dict, not {given!r}")
    try:
        return ModelConfig.model_validate(dict(given)).given()
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        key = str(wrong["loc"][0])
        known = ", ".join(ModelConfig.model_fields)
        raise ValueError(f"model_config {key!r}: {wrong['msg']}; the keys are {known}") from None


class CallableAgent(Agent):
    """A plain callable `(messages, context[, session]) -> result`, served like any agent."""

    def __init__(self, function: Callable[..., Any]) -> None:
        doc = (getattr(function, "__doc__", None) or "").strip()
        name = getattr(function, "__name__", None) or type(function).__name__
        super().__init__(id=name_of_callable(function), name=name, description=doc.split("\n\n")[0])
        self.function = function
        # Read once an agent: reading a signature costs half of a small turn.
        self.argument_count = _argument_count(function, name)
        self.generates = is_async_generator_function(function) or inspect.isgeneratorfunction(
            function
        )


def _argument_count(function: Callable[..., Any], name: str) -> int:
    """How many of messages, context and session the callable takes; TypeError if it cannot."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 2
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if any(p.name == "session" for p in positional[:2]):
        raise TypeError(
            f"the agent {name!r} takes 'session' where it is given the context; "
            "write (messages, context, session)"
        )
    named = [n for n, p in enumerate(positional, 1) if p.name in ("context", "session")]
    count = max(1, min(3, max([len(required), *named]) or len(positional)))
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        count = 3
    try:
        signature.bind(*["messages", "context", "session"][:count])
    except TypeError as error:
        raise TypeError(
            f"the agent {name!r} cannot be called with (messages, context[, session]): {error}"
        ) from None
    return count


def as_agent(given: object) -> Agent:
    """`given` as an Agent; raises TypeError for an object that cannot serve as one."""
    if isinstance(given, Agent):
        return given
    if callable(given) and not isinstance(given, Tool):
        return CallableAgent(given)
    raise TypeError(
        f"an agent is a sayso.Agent or a callable (messages, context), not {type(given).__name__}"
    )
