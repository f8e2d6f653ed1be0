"""A request as the code of its turn knows it: the caller, the session of the conversation, and the
context for user code."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from sayso.trees import holds_endless, rebuilt
from sayso.wire.events import IntermittentUpdate
from sayso.wire.json_bytes import problem
from sayso.wire.masking import mask_sent
from sayso.wire.messages import Kind, PlatformContext

T = TypeVar("T")

RESERVED = "_sayso"
"""The key for the conversation's own id; never shown to user code."""
_ABOVE = 5
"""Levels of a request above a value of its session: body, messages, message, data, session."""


def plain(value: Any) -> Any:
    """`value` as JSON values: models and dataclasses become objects, the rest stays as given."""
    return rebuilt(value, _plain_leaf)


def _plain_leaf(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return to_jsonable_python(asdict(value))
    return value


class Session(MutableMapping[str, Any]):
    """State shared by the tools of one conversation; the caller sends it back with the next turn.

    Values are JSON values; typed models and dataclasses are stored as plain objects and read back
    with `as_type` (interface.md, "Session operations"). `nesting` is how many levels of JSON a
    request of the caller may have.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, *, nesting: int = 64) -> None:
        self._levels = nesting - _ABOVE
        given = dict(state) if state else {}
        self._hidden: Any = given.pop(RESERVED, None) if given else None
        self._state: dict[str, Any] = given
        self.stated = state is not None
        """Whether it began with a state, even an empty one."""

    @overload
    def get(self, key: str, default: Any = None) -> Any: ...
    @overload
    def get(self, key: str, default: T | None = None, *, as_type: type[T]) -> T | None: ...
    def get(self, key: str, default: Any = None, as_type: type[Any] | None = None) -> Any:
        """The value under `key`, else `default`; with `as_type` validated as that type.

        Raises pydantic's ValidationError if a stored value is invalid for `as_type`.
        """
        if key not in self._state:
            return default
        value = self._state[key]
        if as_type is None:
            return value
        # Validate JSON, since a strict type accepts times and dataclasses only from JSON. Both
        # names and aliases: `set` writes names, a caller may have written aliases.
        return TypeAdapter(as_type).validate_json(to_json(value), by_alias=True, by_name=True)

    def set(self, key: str, value: Any) -> None:
        """Store `value`; raises ValueError for the reserved key and for a value that is not JSON.

        A key that is no text raises TypeError: as JSON it would come back as a different key.
        """
        if not isinstance(key, str):
            raise TypeError(f"a session key must be text, not {type(key).__name__}; try str()")
        if key == RESERVED:
            raise ValueError(f"the session key {RESERVED!r} is reserved")
        try:
            stored = to_jsonable_python(plain(value))
        except UnicodeEncodeError:
            raise ValueError(
                f"the session value {key!r} has a key with half a surrogate pair, which is no text"
            ) from None
        except ValueError as error:
            raise ValueError(
                f"the session value {key!r} cannot become JSON ({error}); store texts, numbers, "
                "lists, dicts, models or dataclasses"
            ) from None
        if holds_endless(stored):
            raise ValueError(
                f"the session value {key!r} holds an integer of more than 4,300 digits, which no "
                "caller could send back; try str()"
            )
        if problem(self._levels, stored) == "too_deep":
            raise ValueError(
                f"the session value {key!r} is nested deeper than {self._levels} levels, which no "
                "caller could send back; try json.dumps()"
            )
        self._state[key] = stored

    def delete(self, key: str) -> None:
        """Remove `key`; a missing key is no error."""
        self._state.pop(key, None)

    def update(self, *args: Any, **values: Any) -> None:
        """Store several values at once, from a mapping, pairs or keywords."""
        for key, value in dict(*args, **values).items():
            self.set(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under `key`; if there is none, `default` is stored."""
        if key not in self._state:
            self.set(key, default)
        return self._state[key]

    def clear(self) -> None:
        """Remove every key."""
        self._state.clear()

    def __getitem__(self, key: str) -> Any:
        return self._state[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        del self._state[key]

    def __iter__(self) -> Iterator[str]:
        # A copy: other tools of the turn may add keys meanwhile.
        return iter(list(self._state))

    def __len__(self) -> int:
        return len(self._state)

    def __repr__(self) -> str:
        return f"Session({sorted(self._state)})"

    @property
    def conversation(self) -> str | None:
        """The conversation's id; None before the first command proposal."""
        return self._hidden if isinstance(self._hidden, str) and self._hidden else None

    @conversation.setter
    def conversation(self, value: str) -> None:
        self._hidden = value

    def shown(self) -> dict[str, Any] | None:
        """The state as user code sees it: `dump` without the reserved key."""
        return dict(self._state) if self._state or self.stated else None

    def dump(self) -> dict[str, Any] | None:
        """The state for the wire; None if it was never set."""
        if self._hidden is not None:
            return {**self._state, RESERVED: self._hidden}
        return self.shown()


class Journal(Protocol):
    """Notes of what a turn has done, for the repeat of its request after the turn broke off."""

    def find(self, name: str) -> str | None:
        """The text that an earlier attempt noted under this name."""
        ...

    async def note(self, name: str, text: str) -> None:
        """Note something; it is kept when this returns."""
        ...

    @property
    def lease(self) -> float:
        """The seconds after a note within which no other attempt takes the request over."""
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
        if text:
            # `system_context` may also return None or a number.
            self._additions.append(str(text))

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
