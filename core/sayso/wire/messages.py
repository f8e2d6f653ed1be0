"""The wire models: requests and replies (interface.md, "Resources and their fields").

All models are open: unknown keys pass through. Optional fields that the contract calls absent are
left out of dumps when they are None; fields that it calls null stay.
"""

# Without `from __future__ import annotations`: pydantic would compile its strings at each start.

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    SecretStr,
    StrictBool,
)
from pydantic_core import core_schema

from sayso.wire.credentials import in_credentials, in_kubeconfig
from sayso.wire.masking import NO_SECRETS, Secrets


def _iso_8601(value: str) -> str:
    # RFC 3339 also has small letters; a leap second is 60, which Python does not know.
    text = value.upper()
    text = text[:17] + "59" + text[19:] if text[17:19] == "60" else text
    try:
        datetime.fromisoformat(text)
    except ValueError:
        # Python's own message repeats the value.
        raise ValueError("not an ISO-8601 time") from None
    return value


def _as_text(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _absent(value: object) -> bool:
    return value is None


def _empty(value: object) -> bool:
    return not value


_USUAL_TIMESTAMP = (
    r"^[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{3}|\.[0-9]{6})?"
    r"(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?$"
)


def _timestamp_schema(source: Any, handler: Any) -> core_schema.CoreSchema:
    # Nearly every timestamp has the usual form, which a pattern recognises without calling Python;
    # it matches only texts that `fromisoformat` accepts.
    return core_schema.union_schema(
        [
            core_schema.str_schema(pattern=_USUAL_TIMESTAMP),
            core_schema.no_info_after_validator_function(_iso_8601, core_schema.str_schema()),
        ],
        mode="left_to_right",
        custom_error_type="timestamp",
        custom_error_message="Input should be an ISO 8601 date and time",
    )


def _timestamp_form(source: Any, handler: Any) -> dict[str, Any]:
    return {"type": "string", "format": "date-time"}


Timestamp = Annotated[str, GetPydanticSchema(_timestamp_schema, _timestamp_form)]
Kind = Literal["tool_call", "command"]


class Wire(BaseModel):
    """The base of the wire models: open, and never shows a rejected value in its errors."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


class Party(Wire):
    """The sender: `{name, id}` of a user or an agent."""

    name: str = ""
    id: str = ""


class CommandFile(Wire):
    """A file to write before a command runs."""

    file_path: str
    file_content: str


Reason = Annotated[str, Field(min_length=1)]
"""The reason of a rejection; an empty one would be neither a rejection nor none."""


def _whole(value: Any) -> Any:
    """An int for a whole number that was sent as a double: protocol buffers have only doubles."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Revision = Annotated[int, Field(strict=True, ge=1), BeforeValidator(_whole)]
"""The number of an input of a call: 1 is the proposed one, each change makes the next."""


Seen = Annotated[str, Field(strict=True, max_length=200)]
"""The digest of what an approver was shown, as the proposal states it."""


class Command(Wire):
    """A terminal command, suggested (`execute` false) or approved."""

    command: str
    execute: StrictBool = False
    files: list[CommandFile] | None = None
    id: str | None = Field(default=None, exclude_if=_absent)
    intent: str | None = Field(default=None, exclude_if=_absent)
    rejection_reason: Reason | None = Field(default=None, exclude_if=_absent)
    reason: str | None = Field(default=None, exclude_if=_absent)
    seen: Seen | None = Field(default=None, exclude_if=_absent)


class ExecutedCommand(Wire):
    """A command that ran, with its output."""

    command: str
    output: str
    id: str | None = Field(default=None, exclude_if=_absent)


class ToolCall(Wire):
    """A tool call, pending (`execute` false), approved, or rejected by its `rejection_reason`."""

    id: str
    name: str
    input: dict[str, Any]
    execute: StrictBool = False
    tool_description: str = ""
    input_description: dict[str, Any] = Field(default_factory=dict)
    intent: str | None = Field(default=None, exclude_if=_absent)
    rejection_reason: Reason | None = Field(default=None, exclude_if=_absent)
    reason: str | None = Field(default=None, exclude_if=_absent)
    seen: Seen | None = Field(default=None, exclude_if=_absent)


class ExecutedToolCall(Wire):
    """A tool call that ran, with its output as text."""

    id: str
    name: str
    input: dict[str, Any]
    output: str


class Approval(Wire):
    """A proposal of either kind in one shape (design, section 7).

    `revision` counts its inputs. `editable` names the parameters whose values an approver may
    change; true means all. `seen` is the digest of everything that an approver is shown; a
    decision names the one that its approver saw.
    """

    id: str
    type: Kind = "tool_call"
    name: str = ""
    input: dict[str, Any] = Field(default_factory=dict)
    execute: StrictBool = False
    rejection_reason: Reason | None = None
    description: str = ""
    intent: str | None = None
    input_description: dict[str, Any] = Field(default_factory=dict, exclude_if=_empty)
    bound: dict[str, Any] = Field(default_factory=dict, exclude_if=_empty)
    reason: str | None = Field(default=None, exclude_if=_absent)
    revision: Revision | None = Field(default=None, exclude_if=_absent)
    editable: bool | list[str] = Field(default=False, exclude_if=_empty)
    seen: Seen | None = Field(default=None, exclude_if=_absent)
    votes: dict[str, Any] = Field(default_factory=dict, exclude_if=_empty)
    preview: str | None = Field(default=None, exclude_if=_absent)


class ExecutedApproval(Wire):
    """The outcome of a proposal that was decided through `approvals`."""

    id: str
    type: Kind = "tool_call"
    name: str
    input: dict[str, Any]
    output: str


class URLConfig(Wire):
    """A link that the reply offers.

    The contract defines no fields for it, so a history may have those of another server.
    """

    url: str = ""
    description: str = ""


class Data(Wire):
    """Approvals, outcomes and session of a message (interface.md, "Data")."""

    cmds: list[Command] = Field(default_factory=list)
    executed_cmds: list[ExecutedCommand] = Field(default_factory=list)
    tool_calls: list[ToolCall] = Field(default_factory=list)
    executed_tool_calls: list[ExecutedToolCall] = Field(default_factory=list)
    approvals: list[Approval] = Field(default_factory=list)
    executed_approvals: list[ExecutedApproval] = Field(default_factory=list)
    url_configs: list[URLConfig] = Field(default_factory=list)
    session: dict[str, Any] | None = Field(default=None, exclude_if=_absent)

    @property
    def stated(self) -> list[ToolCall | Approval]:
        """The calls and approvals that this message states, pending or decided."""
        return [*self.tool_calls, *self.approvals]

    @property
    def outcomes(self) -> list[ExecutedToolCall | ExecutedApproval]:
        """The outcomes that this message carries, commands excepted."""
        return [*self.executed_tool_calls, *self.executed_approvals]


class _Known:
    """The secrets of a platform context and the fields they were found in; its repr shows
    neither."""

    __slots__ = ("count", "of", "secrets", "size")

    def __init__(self, of: tuple[object, ...], values: Iterable[str]) -> None:
        found = set(values)
        self.of = of
        self.secrets = Secrets.of(found)
        self.count = len(found)
        self.size = sum(len(value.encode("utf-8", "surrogatepass")) for value in found)


class _Recent:
    """The secrets of the last few contexts: a client sends the same context with each message, and
    finding the secrets in it takes longer than a small turn."""

    MOST = 32
    LONGEST = 256 * 1024
    """Most characters of all forms of the secrets of one context that is kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], _Known] = OrderedDict()
        self._lock = Lock()

    def find(self, of: tuple[object, ...]) -> _Known | None:
        with self._lock:
            known = self._known.get(of)
            if known is not None:
                self._known.move_to_end(of)
            return known

    def keep(self, known: _Known) -> None:
        if sum(map(len, known.secrets)) > self.LONGEST:
            return
        with self._lock:
            self._known[known.of] = known
            if len(self._known) > self.MOST:
                self._known.popitem(last=False)


_RECENT = _Recent()


class PlatformContext(Wire):
    """The place and the person the agent acts for; its secrets never show in a dump, repr or
    log."""

    user_id: str | None = None
    tenant_name: str | None = None
    k8s_namespace: str | None = None
    platform_base_url: str | None = None
    platform_token: SecretStr | None = None
    kubeconfig: SecretStr | None = None
    aws_credentials: dict[str, Any] | None = Field(default=None, exclude=True, repr=False)

    def __repr_args__(self) -> Any:
        return [(k, v) for k, v in super().__repr_args__() if k in PlatformContext.model_fields]

    def secrets(self) -> Secrets:
        """Each secret value of this context in each form, longest first, for masking."""
        if not (self.platform_token or self.kubeconfig or self.aws_credentials):
            return NO_SECRETS
        known, of = self._found()
        if known is None:
            known = self.__dict__["_known"] = _Known(of, self.secret_values())
            _RECENT.keep(known)
        return known.secrets

    def are_known(self, most: int, size: int) -> bool:
        """Whether `secrets()` takes no time, and finds at most `most` values of at most `size`
        bytes."""
        known, _ = self._found()
        return known is not None and known.count <= most and known.size <= size

    def _found(self) -> tuple[_Known | None, tuple[object, ...]]:
        # An interceptor may have changed the fields since the secrets were found. Texts are
        # compared ten times faster than the objects that hide them.
        token, config = self.platform_token, self.kubeconfig
        of = (
            token and token.get_secret_value(),
            config and config.get_secret_value(),
            tuple(in_credentials(self.aws_credentials)) if self.aws_credentials else (),
        )
        known: _Known | None = self.__dict__.get("_known")
        if known is None or known.of != of:
            known = _RECENT.find(of)
            if known is not None:
                self.__dict__["_known"] = known
        return known, of

    def secret_values(self) -> Iterator[str]:
        """Each secret value as it was sent, and those inside the kubeconfig."""
        if self.platform_token:
            yield self.platform_token.get_secret_value()
        yield from in_credentials(self.aws_credentials)
        if self.kubeconfig:
            yield from in_kubeconfig(self.kubeconfig.get_secret_value())


class Message(Wire):
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    content: str
    data: Data | None = None
    platform_context: PlatformContext | None = None
    timestamp: Timestamp | None = None
    user: Party | None = None
    agent: Party | None = None


class ChatRequest(Wire):
    """The body of every chat endpoint; the last message is the current user's.

    Null for an optional field counts as absent; only `execute` must be true or false. Further
    top-level fields are kept; on V2 they are the request fields (design, section 7).
    """

    messages: list[Message]
    source: str = "help-desk"

    @property
    def request_fields(self) -> dict[str, Any]:
        """All top-level fields but `messages`, as sent."""
        # pydantic's properties of these names take as long as everything else.
        sent = {"source": self.source} if "source" in self.__pydantic_fields_set__ else {}
        return {**sent, **(self.__pydantic_extra__ or {})}


class AgentMessage(Wire):
    """The reply of the synchronous endpoints (interface.md, "AgentMessage")."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    data: Data = Field(default_factory=Data)
    meta_data: dict[str, Any] = Field(default_factory=dict)
    timestamp: Annotated[Timestamp | None, BeforeValidator(_as_text)] = None
    user: Party | None = None
    agent: Party | None = None


def beyond_text(messages: Sequence[Message]) -> list[Message]:
    """The messages with data or a platform context."""
    return [m for m in messages if m.data is not None or m.platform_context is not None]


def history_of(request: ChatRequest) -> Any:
    """The `History` with which the request begins, if it shares one with other requests."""
    return request.__dict__.get("_history")


def said_in(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Role and content of each message."""
    return [(m.role, m.content) for m in messages]


def platform_of(messages: Sequence[Message]) -> PlatformContext:
    """The platform context: the newest user message's fields over the first's.

    Clients send null for fields that they do not state, so null overrides nothing.
    """
    stated = [m.platform_context for m in messages if m.platform_context and m.role == "user"]
    if not stated:
        return PlatformContext()
    first, newest = stated[0], stated[-1]
    if first is newest:
        return newest
    merged = first.model_copy()
    for name in newest.model_fields_set:
        if (value := getattr(newest, name)) is not None:
            setattr(merged, name, value)
    return merged
