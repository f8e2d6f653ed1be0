"""A request as the turn's code knows it: the caller, and the context for user code."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sayso.wire.events import IntermittentUpdate
from sayso.wire.masking import mask_sent
from sayso.wire.messages import Kind, PlatformContext
from sayso.wire.session import Session


class Journal(Protocol):
    """Notes of what a turn has done, for the repeat of its request after the turn broke off."""

    def find(self, name: str) -> str | None:
        """The text that an earlier attempt noted under this name."""
        ...

    async def note(self, name: str, text: str) -> None:
        """Note something; it is kept when this returns."""
        ...


class Caller(NamedTuple):
    """The caller of a request: the protocol, the principal, the address.

    `request_fields` are forwarded and echoed on V2 only; None elsewhere (interface.md, rule 1).
    """

    protocol: str
    principal: str | None = None
    address: str | None = None
    client: str | None = None
    request_fields: Mapping[str, Any] | None = None
    foreign_page: bool = False
    """Whether a web page sent it under a host name that is not known to be ours."""
    plain: bool = False
    """Whether its protocol leaves the newer keys of `approvals[]` out, as V1 does."""
    keep: str = ""
    """The id under which the stream is kept for a client that loses it; empty if it is not kept."""
    tools: bool = True
    """Whether the model may call tools: not for hidden requests of a client, such as for a
    title."""
    socket: bool = False
    """Whether the request came over a WebSocket, which lives longer than its turns."""
    journal: Journal | None = None
    """The journal of a request that its caller may send again."""


@dataclass(frozen=True, slots=True)
class DecidedCall:
    """A decision that a plain-callable agent carries out itself, given to it exactly once.

    `id` is Sayso's; `call_id` is the id that the callable gave the call. When it is carried out
    again, `id` is the same and `fence` greater: an idempotency key, and a token against late
    writes.
    `platform` is the platform context that the call was approved in, with the credentials of this
    request; the context of the callable has what is the same for all its decisions.
    """

    id: str
    call_id: str
    kind: Kind
    name: str
    input: dict[str, Any]
    approved: bool
    reason: str | None = None
    fence: int = 0
    platform: PlatformContext | None = None


class RequestContext:
    """The request, as tools, interceptors and callables see it.

    `platform` holds the merged platform context (interface.md, "PlatformContext"), its secrets as
    `SecretStr`; `request_fields` the top-level fields of the body, on V2 only; `principal` the
    authenticated caller; `decisions` what a callable agent has to carry out.

    A tool finds in `call_id` the id of its call, and in `fence` the number of its claim. The id of
    an approved call is Sayso's own. It is never used for another call, and stays the same if the
    call runs again: pass it on as an idempotency key. `fence` then grows with each run, so that a
    guarded resource can refuse a late one. A call that needed no approval has the id that the model
    gave it, unique in its conversation only, or a random one, and the fence 0. Outside of a tool
    `call_id` is empty.
    """

    __slots__ = (
        "_additions",
        "_key",
        "_model",
        "_send",
        "call_id",
        "decisions",
        "fence",
        "has_decision",
        "principal",
        "protocol",
        "request_fields",
        "session",
        "source",
        "stated_platform",
    )

    def __init__(
        self,
        platform: PlatformContext | None = None,
        request_fields: Mapping[str, Any] | None = None,
        source: str = "help-desk",
        session: Session | None = None,
        principal: str | None = None,
        protocol: str = "",
        decisions: Sequence[DecidedCall] = (),
        has_decision: bool = False,
        *,
        _send: Callable[[IntermittentUpdate], None] | None = None,
    ) -> None:
        self.stated_platform = platform
        """The platform context; None if nobody has stated or asked for one."""
        self.request_fields: Mapping[str, Any] = {} if request_fields is None else request_fields
        self.source = source
        self.session = Session() if session is None else session
        self.principal = principal
        self.protocol = protocol
        self.decisions = decisions
        self.has_decision = has_decision
        self.call_id = ""
        self.fence = 0
        self._additions: list[str] = []
        self._model = self._key = ""
        self._send = _send

    @property
    def platform(self) -> PlatformContext:
        """The platform context; an empty one if the request states none."""
        # Made on demand: few requests have one, and few agents ask.
        if self.stated_platform is None:
            self.stated_platform = PlatformContext()
        return self.stated_platform

    @platform.setter
    def platform(self, value: PlatformContext) -> None:
        self.stated_platform = value

    def __repr__(self) -> str:
        shown = ("platform", "request_fields", "source", "session", "principal", "protocol")
        return f"RequestContext({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def for_call(self, call_id: str, fence: int) -> RequestContext:
        """This context for one call; calls of a turn run in parallel."""
        context = copy.copy(self)
        context.call_id, context.fence = call_id, fence
        return context

    def add_system_context(self, text: str) -> None:
        """Add `text` to the dynamic system context of this request alone."""
        self._additions.append(text)

    def use_model(self, name: str = "", key: str = "") -> None:
        """Have another model of the configured provider answer this request, or with another key.

        For request interceptors: a tenant's own model, or its own key. An empty text leaves the
        configured one.
        """
        self._model, self._key = name or self._model, key or self._key

    def update(self, text: str, content: Mapping[str, Any] | None = None) -> None:
        """Send a status line to the caller at once; safe from any thread."""
        if self._send is not None:
            # A number is progress, too; readers of the line expect text.
            self._send(IntermittentUpdate(str(text), dict(content or {})))


def hidden_line(event: IntermittentUpdate, secrets: Sequence[str]) -> IntermittentUpdate:
    """A status line of the agent's code without the request's secrets."""
    if not secrets:
        return event
    text, content = mask_sent([event.text, event.content], secrets)
    return IntermittentUpdate(text, content)
