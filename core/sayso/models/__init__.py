"""The Model protocol: a language model is one async generator over plain values.

An adapter turns an `Ask` into text deltas, thoughts and tool starts, and ends with exactly one
`Reply`. The tool loop, approvals and retries of a turn are the engine's; an adapter retries only
before its first delta. `ModelError` is the only exception that leaves it.

Treat the values as read-only. They are not frozen, since that would
make each of them cost three times as much.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, runtime_checkable

from sayso.errors import ConfigError, ModelError
from sayso.installing import install_line
from sayso.models.names import EXTRAS, split, suggestion
from sayso.wire.events import TextDelta

__all__ = [
    "Ask",
    "Attachment",
    "Block",
    "Call",
    "Model",
    "ModelError",
    "ModelEvent",
    "NoModel",
    "Reply",
    "Result",
    "Text",
    "TextDelta",
    "Thought",
    "ToolDefinition",
    "ToolStart",
    "Turn",
    "Usage",
    "checked_model",
    "dump_turns",
    "load_model",
    "load_turns",
    "never_blocks",
]


@dataclass(slots=True, unsafe_hash=True)
class Text:
    """Plain text; never blank. A `note` is text of the service within a user's turn."""

    text: str
    note: bool = field(default=False, compare=False)


@dataclass(slots=True, unsafe_hash=True)
class Call:
    """A tool call of the model.

    `error` says why `input` could not be read (broken JSON); such a call is never run.
    """

    id: str
    name: str
    input: Mapping[str, Any]
    error: str | None = None


@dataclass(slots=True, unsafe_hash=True)
class Attachment:
    """An image or a document in a user's turn, or of a result; `data` is base64, or `url` says
    where it is. `mime` is one of those in the model's `takes_attachments`."""

    mime: str
    data: str = field(default="", repr=False)
    url: str = ""
    name: str = ""

    @property
    def address(self) -> str:
        """Its URL; a `data:` URL if the file came with the message."""
        return self.url or f"data:{self.mime};base64,{self.data}"


@dataclass(slots=True, unsafe_hash=True)
class Result:
    """The outcome of the call `call_id`, never blank."""

    call_id: str
    output: str
    is_error: bool = False
    attachments: Sequence[Attachment] = field(default=(), compare=False)
    """Images of this result, while its turn runs; their text is part of `output`."""


Block = Text | Call | Result | Attachment


@dataclass(slots=True, unsafe_hash=True)
class Turn:
    """One message to or from the model.

    Results come first in a user turn, texts after. `raw` has further data of the provider, as JSON
    values that only its own adapter reads:

    - Under the adapter's name, `{"anthropic": [...]}`: blocks that are sent in place of `blocks`
      while everything before them is unchanged.
    - Under the names of adapter and model, `{"openai:gemini-3-pro": [...]}`: data that is sent
      beside `blocks` wherever the turn is, in the order of its calls and whatever their ids.
    """

    role: Literal["user", "assistant"]
    blocks: Sequence[Block]
    raw: Mapping[str, Any] | None = None


def unused_id(id_: str, used: dict[str, int], longest: int | None = None) -> str:
    """The id of a call, or if it is in `used`, the id with the next free number behind it, of at
    most `longest` characters. The id that is returned is added to `used`.

    Some providers count from zero in each reply, and requests may be made at the same time.
    """
    fresh = id_
    while fresh in used:
        used[id_] += 1
        number = f"_{used[id_]}"
        fresh = (id_ if longest is None else id_[: longest - len(number)]) + number
    used[fresh] = 1
    return fresh


def bound_to_model(raw: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The part of a turn's `raw` that is sent back at any place of the turn; None if there is
    none."""
    return {key: value for key, value in (raw or {}).items() if ":" in key} or None


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as the model sees it; `input_schema` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(slots=True, unsafe_hash=True)
class Ask:
    """One call of the model.

    `turns` alternate between user and assistant, begin with user and end with user. `system` is
    the static prompt (cacheable), `context` the part computed for this request; either may be
    empty. `config` holds model-config keys (interface.md, "Model config keys"); only keys that
    the user set are in it, so an adapter can tell a default from a choice. If `schema` is set, the
    reply's text must be one JSON document of that schema. `model` and `key` replace the adapter's
    own if a hook chose others for this request. No log and no error may show `secrets`.
    """

    turns: Sequence[Turn]
    system: str = ""
    context: str = ""
    tools: Sequence[ToolDefinition] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    model: str = ""
    key: str = field(default="", repr=False)
    secrets: Sequence[str] = field(default=(), compare=False, repr=False)


@dataclass(slots=True, unsafe_hash=True)
class Thought:
    """A piece of the model's thinking, or prose between tool calls; shown as a status line."""

    text: str


@dataclass(slots=True, unsafe_hash=True)
class ToolStart:
    """The model began to write a call of the tool `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call; cached ones are not part of `input_tokens`, those of reasoning are
    part of `output_tokens`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal", "pause"]


@dataclass(slots=True, unsafe_hash=True)
class Reply:
    """The end of a model call.

    `stop` is `tool_use` only when `turn` has calls to run. With `max_tokens` or `refusal` the
    calls of `turn` are broken or unwanted and must not be run. `pause` asks to send the turn back
    as it is.
    """

    turn: Turn
    stop: Stop
    usage: Usage = Usage()


ModelEvent = TextDelta | Thought | ToolStart | Reply


@runtime_checkable
class Model(Protocol):
    """A language model; make one instance for each service. It is used from several event loops.

    Objects that are bound to an event loop (HTTP clients) are made with `sayso.per_loop`. Optional
    attributes: `never_blocks = True` says that `stream` never blocks the event loop, which makes
    each call cheaper; `context_window` is the number of tokens that the model can read;
    `takes_attachments` has the media types of the images and documents that it takes.
    """

    provider: str
    name: str

    def stream(self, ask: Ask) -> AsyncIterator[ModelEvent]:
        """Deltas as they arrive, then exactly one Reply, last. Raises only ModelError."""
        ...


def dump_turns(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """`turns` as JSON values, for the ledger."""
    return [
        {"role": turn.role, "blocks": [_dump(b) for b in turn.blocks], "raw": turn.raw}
        for turn in turns
    ]


def load_turns(values: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The inverse of `dump_turns`."""
    return [
        Turn(value["role"], tuple(_load(b) for b in value["blocks"]), value["raw"])
        for value in values
    ]


def _dump(block: Block) -> dict[str, Any]:
    match block:
        case Text():
            return {"text": block.text}
        case Call():
            return {
                "call": block.id,
                "name": block.name,
                "input": dict(block.input),
                "error": block.error,
            }
        case Result():
            return {"result": block.call_id, "output": block.output, "is_error": block.is_error}
        case Attachment():
            return {"mime": block.mime, "data": block.data, "url": block.url, "name": block.name}


def _load(value: Mapping[str, Any]) -> Block:
    if "text" in value:
        return Text(value["text"])
    if "call" in value:
        return Call(value["call"], value["name"], value["input"], value["error"])
    if "mime" in value:
        return Attachment(value["mime"], value["data"], value["url"], value["name"])
    return Result(value["result"], value["output"], value["is_error"])


class NoModel:
    """The model of a plain callable: only a name for display, never asked."""

    provider = "none"
    name = ""
    never_blocks = True

    async def stream(self, ask: Ask) -> AsyncGenerator[ModelEvent, None]:
        """Raise ModelError."""
        raise ModelError("bad_request", "a plain callable has no model")
        yield  # The unreachable yield makes this an async generator, which `stream` must be.


def never_blocks(model: Model) -> bool:
    """Whether the model declares, by `never_blocks = True`, that its `stream` waits by `await`
    alone.

    Such a model is called on the engine's own loop; any other one where user code runs.
    """
    return getattr(model, "never_blocks", False) is True


def load_model(spec: str, settings: Mapping[str, Any]) -> Model:
    """The model that `spec` names: `anthropic:ID`, `anthropic`, `openai:ID`, `offline`, or an id
    alone that says whose it is, such as `claude-…`, `gpt-…` and `gemini-…`.

    Providers are factories `(name, settings) -> Model` in the entry-point group `sayso.models`.
    `settings` may carry `base_url`, `api_key`, and what `[model.options]` has. Raises ConfigError
    for an unknown provider, one that is not installed, or missing credentials.
    """
    from sayso.config.factories import installed, made

    provider, name = split(spec)
    found = installed("sayso.models")
    if provider in found:
        needed = ("provider", "name", "stream")
        return cast("Model", made(found[provider], "model", needed, name, settings))
    if provider in EXTRAS:
        way = install_line(f"sayso[{EXTRAS[provider]}]")
        raise ConfigError(f"model {spec!r} is not installed; try: {way}")
    providers = sorted({*EXTRAS, *found})
    raise ConfigError(
        f"there is no model provider {provider!r}{suggestion(spec, providers)}; "
        f"write 'provider:id' with one of: {', '.join(providers)}"
    )


def checked_model(given: object) -> Model:
    """`given`, the agent's model; raises ConfigError for an object that is no Model."""
    if isinstance(given, type):
        name = given.__name__
        raise ConfigError(
            f"the agent's model is no Model: the class {name}; give an instance: {name}()"
        )
    kind = type(given).__name__
    if not callable(getattr(given, "stream", None)):
        raise ConfigError(f"the agent's model is no Model: {kind}")
    for name in ("provider", "name"):
        if not isinstance(getattr(given, name, None), str):
            raise ConfigError(f"the agent's model is no Model: give {kind} a text as {name!r}")
    return cast("Model", given)
