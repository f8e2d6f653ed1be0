"""The sections of the configuration: each key with its type, its default and its meaning.

Defaults of `[server]` and of the model-config keys are the contract's (interface.md, "Limits" and
"Agent configuration"); the others are design, sections 5, 6 and 8.
"""

# Without `from __future__ import annotations`: pydantic would compile its strings at each start.

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from sayso.config.exact import VariableText, exact

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LONGEST = 36_500 * 86_400.0
"""No system timer takes three centuries, and no date comes after the year 9999."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw])")
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_HOST = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", re.ASCII)
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[!-~]+")


def seconds(value: object) -> float:
    """`value` in seconds: a number, or text such as "30s", "10m", "24h", "7d" or "1h30m"."""
    if isinstance(value, str):
        text = value.strip().lower()
        parts = _DURATION.findall(text)
        if parts and not _DURATION.sub("", text).strip():
            value = sum(float(number) * _UNITS[unit] for number, unit in parts)
        else:
            value = _number(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError("expected a duration: seconds, or text such as '30s', '10m', '24h'")
    if value > _LONGEST:
        raise ValueError("expected a duration of at most 100 years, '36500d'")
    # The key itself refuses a negative value.
    return float(max(value, -_LONGEST))


def size(value: object) -> int:
    """`value` in bytes: a whole number, or text such as "256KiB" or "10MiB"."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip().lower())
        if match and match[2] in _SIZES:
            number = float(match[1]) * _SIZES[match[2]]
            value = int(number) if math.isfinite(number) else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a size: bytes, or text such as '256KiB', '10MiB'")
    return value


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """The meaning of each key of `model`: the text below it in the source, on one line.

    Read on demand, since pydantic's own way costs each start 15 ms.
    """
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            with suppress(OSError, TypeError):  # made by code, or shipped without its source
                body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
                found |= _texts(body.body if isinstance(body, ast.ClassDef) else [])
    return {name: found.get(name, "") for name in model.model_fields}


def _texts(statements: Sequence[ast.stmt]) -> dict[str, str]:
    texts = {}
    for key, text in pairwise(statements):
        match key, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ):
                texts[name] = " ".join(meaning.split())
    return texts


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _host(text: str) -> str:
    name = text.lower()
    if name.count(":") > 1 and not name.startswith("["):
        name = f"[{name}]"
    match = _HOST.fullmatch(name)
    if match is None:
        raise ValueError(
            "expected names such as 'example.com' or 'example.com:8000', each in full, "
            "without 'http://' and a path"
        )
    return match[1].removesuffix(".") + (match[2] or "")


def _origin(text: str) -> str:
    of_web = text.lower().startswith(("http://", "https://"))
    origin = text.lower() if of_web else text
    rest = origin.partition("://")[2]
    if not _ORIGIN.fullmatch(origin) or any(mark in rest for mark in "/?#*@"):
        raise ValueError(
            "expected origins such as 'https://example.com', without a path, each in full, or '*'"
        )
    # Browsers leave out the default port.
    return origin.removesuffix(":443" if origin.startswith("https") else ":80") if of_web else text


_TEXT_OR_NUMBER = {"anyOf": [{"type": "number"}, {"type": "string"}]}
_TEXT_OR_INTEGER = {"anyOf": [{"type": "integer"}, {"type": "string"}]}

Duration = Annotated[float, BeforeValidator(seconds), WithJsonSchema(_TEXT_OR_NUMBER)]
"""A duration; in the configuration "24h", "30s" or seconds, in code seconds."""

Size = Annotated[int, BeforeValidator(size), WithJsonSchema(_TEXT_OR_INTEGER)]
"""A size; in the configuration "10MiB" or bytes, in code bytes."""

Positive = Annotated[Duration, Field(gt=0)]
_Bytes = Annotated[Size, Field(gt=0)]
_Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """The base of all settings: unknown keys are refused, and errors never show a value."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _as_it_stands(cls, value: object, info: ValidationInfo) -> object:
        return exact(value, cls.model_fields[str(info.field_name)])


class ModelConfig(Section):
    """The model-config keys (interface.md, "Agent configuration")."""

    temperature: float = Field(default=0.1, ge=0.0, le=1.0)
    """How random the replies are, from 0.0 to 1.0."""
    max_tokens: Annotated[int, Field(ge=1)] | Literal["max"] | None = None
    """Most output tokens of one model call; absent, or "max": the model's own maximum."""
    cache_system_prompt: bool = False
    """Whether the provider is asked to cache tools, static system prompt and history, if they are
    large enough."""
    thinking_level: Literal["low", "high"] | None = None
    """How much the model thinks before it answers; ignored by models that cannot."""
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    """Nucleus sampling. If it is set, the default temperature is not sent."""
    top_k: int | None = Field(default=None, ge=1)
    """Sampling from the k likeliest tokens, on models that can."""

    def given(self) -> dict[str, Any]:
        """The model-config keys that were set, without defaults and without null values."""
        names = self.model_fields_set & set(ModelConfig.model_fields)
        return {name: value for name in sorted(names) if (value := getattr(self, name)) is not None}


class ModelOptions(Section):
    """`[model.options]`: the connection to the model's provider, and further parts of its
    requests."""

    key: str | None = None
    """The source of the provider's key: "env:NAME", "file:PATH", "command:LINE" or
    "function:MODULE:NAME". It is read at the start, and again when the provider refuses the key.
    Absent: the provider's own variable."""
    key_header: str | None = None
    """The header that carries the key, such as "x-api-key"; absent: the provider's own way."""
    headers: dict[str, SecretStr] = {}
    """Further headers of each request."""
    query: dict[str, str] = {}
    """Further query parameters of the address of each request."""
    extra_body: dict[str, Any] = {}
    """Further fields of the body of each request."""
    omit: list[str] = []
    """Fields to leave out of the body of each request, such as "temperature"; a dot leads into
    nested fields."""
    effort: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How much the model thinks, on models that have such levels; wins over `thinking_level`."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a model call that failed temporarily before its first piece is tried again."""
    first_byte_timeout: Positive | None = None
    """The longest silence of the model before the first piece of an answer; absent: ten times
    `model.timeout`."""
    connect_timeout: Positive = 10.0
    """The longest time for opening a connection to the provider."""


class ModelSettings(ModelConfig):
    """`[model]`: which model answers, and its model-config keys."""

    name: str | None = None
    """The model, "provider:id" or "offline"; by default the agent's own, else "offline"."""
    base_url: str | None = None
    """Address of an OpenAI-compatible endpoint, or of a proxy of the provider."""
    timeout: Positive = 60.0
    """The longest silence of the model between two pieces of an answer."""
    fallback: list[str] = []
    """Models to ask, in this order, if the model before fails before its first piece."""
    context_window: _Count | None = None
    """The number of tokens that the model can read; absent: the number that Sayso knows for the
    model, or learns."""
    prices: bool = False
    """Whether replies state the price of a turn, from the offline table of `genai-prices` (extra
    `prices`)."""
    options: ModelOptions = ModelOptions()
    """How its provider is reached."""

    def connection(self, *, own: bool) -> dict[str, Any]:
        """The settings of the connection that a model's factory gets. The provider's key, address
        and similar settings are included only if `own` says that the provider is that of `name`."""
        given = self.options.model_dump(exclude_none=True, exclude={"headers"})
        given["headers"] = {k: v.get_secret_value() for k, v in self.options.headers.items()}
        given["base_url"] = self.base_url or None
        general = ("effort", "retries", "first_byte_timeout", "connect_timeout")
        kept = {k: v for k, v in given.items() if v and (own or k in general)}
        return {"timeout": self.timeout, "retries": self.options.retries, **kept}


class ServerSettings(Section):
    """`[server]`: the contract's start-up options (interface.md, "Limits") and a few more."""

    port: int = Field(default=8000, ge=0, le=65535)
    """TCP port of the service; 0 takes a free one."""
    host: str = "0.0.0.0"
    """Address to listen on."""
    reload: bool = False
    """Whether the service starts again when a source file changes; for development, not with
    `workers` above 1."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe log record that is written."""
    log_format: Literal["text", "json"] = "text"
    """How a log record is written: as a line of text, or as one JSON object a line."""
    workers: int = Field(default=1, ge=1)
    """Number of worker processes; in production (2 x CPU cores) + 1."""
    timeout_keep_alive: int = Field(default=5, ge=0)
    """Seconds for which an idle connection stays open; set at least the idle timeout of the load
    balancer."""
    ws_ping_interval: float | None = Field(default=20.0, ge=0)
    """Seconds between WebSocket pings; 0: no pings."""
    ws_ping_timeout: float | None = Field(default=20.0, ge=0)
    """Seconds to wait for a pong before the connection is closed; 0: for ever."""
    a2a: bool | None = None
    """Whether the agent-to-agent endpoints are on; absent: only if the plugin is named or has a
    table."""
    mcp: bool | None = None
    """Whether the MCP server is on; absent: only if the plugin is named or has a table."""
    state_dir: Path | None = None
    """Folder for the service's state; absent: a folder for each agent in the user's state folder,
    such as ~/.local/state/sayso."""
    cors_origins: list[str] = []
    """Origins of web pages that may call the service."""
    hosts: list[str] = []
    """Further `Host` names that a service on a loopback address answers. On another address
    without `[auth]`: the names under which web pages may decide, and open the console."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """Whether the turn of a client that has gone is cancelled or continues. A tool that has begun
    always finishes."""
    lame_duck: Annotated[Duration, Field(ge=0)] = 0.0
    """How long after SIGTERM the service still takes turns while `/ready` answers 503. Then it
    closes its port, and answers everyone who had connected. 0: it refuses new turns with 503 at
    once."""
    drain_timeout: Annotated[Duration, Field(ge=0)] = 30.0
    """How long running turns may go on after SIGTERM; then they are cancelled."""
    docs: bool = False
    """Whether `/openapi.json` and `/docs` are served. `/docs` is a page that shows the former, and
    asks for a token if needed."""
    ready: bool = False
    """Whether `/ready` is served."""
    debug: bool = False
    """Whether callers see the text of exceptions, and the log whole stack traces. `log_level` is
    then `"debug"`, unless it is set."""
    worker_loops: int | None = Field(default=None, ge=1)
    """Most event loops for async user code; absent: as many as needed."""
    threads: _Count = 256
    """Most threads for plain (not async) user code."""
    start_timeout: Positive = 30.0
    """How long each plugin may take to start, and to end."""

    @field_validator("ws_ping_interval", "ws_ping_timeout", mode="before")
    @classmethod
    def _zero_is_null(cls, value: object) -> object:
        if isinstance(value, VariableText):
            return None if value.strip().lower() in ("0", "0.0", "null", "none") else value
        return None if value == 0 and not isinstance(value, bool) else value

    @field_validator("hosts")
    @classmethod
    def _as_requests_name_them(cls, hosts: list[str]) -> list[str]:
        return [_host(host) for host in hosts]

    @field_validator("cors_origins")
    @classmethod
    def _as_browsers_write_them(cls, origins: list[str]) -> list[str]:
        return [_origin(origin) for origin in origins]

    @model_validator(mode="after")
    def _debug_logs_everything(self) -> "ServerSettings":
        if self.debug and "log_level" not in self.model_fields_set:
            self.__dict__["log_level"] = "debug"
        return self

    @model_validator(mode="after")
    def _reload_is_single(self) -> "ServerSettings":
        if self.reload and self.workers > 1:
            raise ValueError(
                "'reload' and 'workers' above 1 exclude each other; "
                "set reload = false, or workers = 1"
            )
        return self


class LimitSettings(Section):
    """`[limits]`: limits for callers, tools and turns (design, section 5)."""

    body: _Bytes = 10 * 2**20
    """Largest request body; a larger one gets 413."""
    frame: _Bytes = 10 * 2**20
    """Largest WebSocket frame."""
    messages: _Count = 10_000
    """Most messages of a request; more get 422."""
    values: _Count = 500_000
    """Most values in the JSON of a request; more get 422. While a long body is read the process
    answers nobody else; several long bodies at once are read one by one, with pauses."""
    nesting: int = Field(default=64, ge=1, le=200)  # the parser's own bound
    """Deepest nesting in the JSON of a request; deeper gets 422."""
    secrets: _Count = 1000
    """Most secret values in the platform context of a request: the token, each text among the AWS
    credentials, the kubeconfig, and each credential inside it; more get 422."""
    secrets_size: _Bytes = 2**20
    """Largest size of all these values together."""
    attachment_hosts: list[str] = []
    """Hosts from which models may fetch images and documents of users, over https."""
    tool_output: _Bytes = 2**20
    """Largest output of a tool; the rest is cut off, with a note to the model."""
    command_output: _Bytes = 256 * 2**10
    """Largest output of a command; the rest is cut off, with a note to the model. `LocalShell`
    keeps at most its `max_output` of it."""
    reply: _Bytes = 64 * 2**20
    """Largest reply of a model as its provider sends it, and longest text of a turn; a longer one
    ends the turn with 502."""
    blocks: _Count = 1000
    """Most texts and tool calls in one reply of a model; more end the turn with 502."""
    turn_time: Positive = 600.0
    """The longest time of a turn; then it ends with 504."""
    turns: _Count = 256
    """Most turns that run at once; the next one waits up to 10 seconds, then gets 503."""
    waiters: _Count = 1000
    """Most requests that wait for a decision or follow events of approvals; further ones get
    503."""
    model_calls: _Count = 25
    """Most model calls of a turn; then the turn ends with a text that says so."""
    tool_calls: _Count = 100
    """Most tool calls of a turn; the model gets an error for each further one."""
