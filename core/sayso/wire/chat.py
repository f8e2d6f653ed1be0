"""The bodies of a chat: requests read and checked, replies and streams of events written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from sayso.errors import InvalidRequest, MessagesMissing
from sayso.wire.events import Done, Event, StopReason, TextDelta, fold
from sayso.wire.histories import (
    LEAST,
    Continued,
    Histories,
    History,
    end_of,
    opening,
    rest,
)
from sayso.wire.json_bytes import (
    BodyReader,
    check,
    check_size,
    dump_json,
    json_values,
    may_hold_endless,
    refuse_doubled,
    strict,
    unmarked,
)
from sayso.wire.messages import (
    AgentMessage,
    Approval,
    ChatRequest,
    Command,
    Message,
    PlatformContext,
    ToolCall,
    beyond_text,
)

_request = BodyReader(ChatRequest)
_continued = BodyReader(Continued)
_MISSING = ["body", "messages"]
_TEXT_ALONE = frozenset({"role", "content", "timestamp"})
"""The message fields that contain only text; the models check them in full."""


def parse_request(
    body: bytes | str,
    *,
    messages: int = 10_000,
    nesting: int = 64,
    values: int = 500_000,
) -> ChatRequest:
    """Read a ChatRequest of at most `messages` messages, `nesting` levels of JSON and `values`.

    Raises MessagesMissing when the body is an object without `messages`, and InvalidRequest with
    one item for each wrong field otherwise; neither repeats a value of the body.
    """
    return continued_request(body, None, messages=messages, nesting=nesting, values=values)


def continued_request(
    body: bytes | str,
    histories: Histories | None,
    *,
    messages: int,
    nesting: int,
    values: int,
) -> ChatRequest:
    """The same, with the messages that are in `histories` from there; nobody may change them."""
    body = unmarked(body)
    check_size(body, values)
    if histories is None or len(body) < LEAST:
        return _whole(body, messages, nesting)
    if isinstance(body, str):
        body = body.encode()
    history, keep = histories.find(body)
    if history is not None and (request := _behind(body, history, nesting, histories)):
        check_messages(request, messages)
        return request
    request = _whole(body, messages, nesting)
    known = request.messages[:-1]
    if keep and known and (begin := opening(body)) and (end := end_of(body, begin, len(known))):
        history = History(body[:end], known, decides=_decides(known))
        histories.keep(history)
        request.__dict__["_history"] = history
    return request


def _whole(body: bytes | str, messages: int, nesting: int) -> ChatRequest:
    request = _read(_request, body, nesting)
    check_messages(request, messages)
    if _decides(request.messages):
        refuse_doubled(body)
    return request


def _behind(
    body: bytes, history: History, nesting: int, histories: Histories
) -> ChatRequest | None:
    """The request that continues the history; None if it has to be read as a whole, as has one that
    is refused."""
    text = rest(body, history)
    if text is None:
        return None
    try:
        request = _read(_continued, text, nesting)
        more = request.messages
        decides = _decides(more)
        if decides or history.decides:
            # The names of a history that decides were looked at before.
            refuse_doubled(text if history.decides else body)
    except InvalidRequest:
        return None
    if "messages" in (request.__pydantic_extra__ or ()):
        return None
    messages = [*history.messages, *more]
    if len(more) > 1 and (end := end_of(text, text.index(b"[") + 1, len(more) - 1)):
        raw = body[: len(body) - len(text) + end]
        decides = history.decides or (decides and _decides(more[:-1]))
        known = History(raw, messages[:-1], decides=decides, before=history.shown)
        histories.keep(known, history)
        history = known
    request.__dict__["messages"] = messages
    request.__dict__["_history"] = history
    return request


def _read(reader: BodyReader[Any], body: bytes | str, nesting: int) -> ChatRequest:
    try:
        request: ChatRequest = reader.read(body)
    except InvalidRequest as refused:
        _refuse_non_finite(body)
        if any(item["loc"] == _MISSING and item["type"] == "missing" for item in refused.items):
            raise MessagesMissing from None
        raise
    try:
        for level, value in _free_values(request):
            check(value, nesting, level)
    except InvalidRequest:
        _refuse_non_finite(body)
        raise
    return request


def _decides(messages: Sequence[Message]) -> bool:
    items: list[ToolCall | Approval | Command] = []
    for message in beyond_text(messages):
        if (data := message.data) is not None:
            items += [*data.stated, *data.cmds]
    return any(item.execute or item.rejection_reason for item in items)


def _free_values(request: ChatRequest) -> list[tuple[int, object]]:
    """The values whose shape the models leave open, or which may contain such values, with their
    depth.

    Only these can contain numbers or be deep, so a long history of texts is not examined twice.
    """
    found: list[tuple[int, object]] = [(1, v) for v in (request.__pydantic_extra__ or {}).values()]
    for message in request.messages:
        # The usual message of a long history; the set has all fields that were sent, unknown ones
        # included.
        if message.__pydantic_fields_set__ <= _TEXT_ALONE:
            continue
        if (more := message.__pydantic_extra__) and any(more.values()):
            found += [(3, value) for value in more.values()]
        # Reading a model's attributes takes three times as long.
        fields = message.__dict__
        if (data := fields["data"]) is not None:
            found += [(4, value) for value in data.__dict__.values() if value]
            if more := data.__pydantic_extra__:
                found += [(4, value) for value in more.values()]
        if (platform := fields["platform_context"]) is not None:
            found.append((3, platform))
        for party in (fields["user"], fields["agent"]):
            if party is not None and party.__pydantic_extra__:
                found.append((3, party))
    return found


def _refuse_non_finite(body: bytes | str) -> None:
    # validate_json accepts NaN and Infinity, which are not JSON; this second check is rarely
    # needed.
    raw = body.encode() if isinstance(body, str) else body
    if b"NaN" in raw or b"Infinity" in raw:
        strict(raw)


def know_secrets(platform: PlatformContext, most: int, size: int) -> None:
    """Find the secrets of the platform context; refuse more than `most`, or more than `size` bytes.

    This may take a second, so do not call it on an event loop.
    """
    found: set[str] = set()
    length = 0
    for value in platform.secret_values():
        if value in found:
            continue
        found.add(value)
        length += len(value.encode("utf-8", "surrogatepass"))
        if len(found) > most:
            _refuse_secrets(f"more than {most} secret values (limits.secrets)")
        if length > size:
            _refuse_secrets(f"more than {size} bytes of secret values (limits.secrets_size)")
    platform.secrets()


def _refuse_secrets(what: str) -> NoReturn:
    message = f"the platform context holds {what}"
    raise InvalidRequest.at(["body", "messages"], "too_many_secrets", message)


def check_messages(request: ChatRequest, most: int = 10_000) -> None:
    """Refuse a request without messages, with too many, or whose last one is not a user's."""
    loc = ["body", "messages"]
    messages = request.messages
    if not messages:
        raise InvalidRequest.at(loc, "too_short", "at least one message is needed")
    if len(messages) > most:
        raise InvalidRequest.at(loc, "too_long", f"there are more than {most} messages")
    last = len(messages) - 1
    if messages[last].role != "user":
        raise InvalidRequest.at(
            [*loc, last, "role"], "last_message_not_user", "the last message must be a user's"
        )


_TEXT = b'{"type":"text_delta","text":'
_ALWAYS = {"stop_reason", "meta_data", "error", "text", "content"}


def encode(event: Event) -> bytes:
    """One event as a JSON object, UTF-8, without a line end."""
    if type(event) is TextDelta:
        # Most events are text: this takes a third of a microsecond instead of three.
        return _TEXT + dump_json(event.text) + b"}"
    if type(event) is Done and _is_bare(event):
        return _bare_done(event.stop_reason)
    return _encoded(event)


def _encoded(event: Event) -> bytes:
    fields = {name: getattr(event, name) for name in event.__slots__}
    sent = {k: v for k, v in fields.items() if v is not None or k in _ALWAYS}
    return dump_json({"type": event.type, **sent})


def _is_bare(done: Done) -> bool:
    return not (
        done.meta_data
        or done.session is not None
        or done.data is not None
        or done.timestamp is not None
        or done.user is not None
        or done.agent is not None
    )


@lru_cache
def _bare_done(stop_reason: StopReason) -> bytes:
    # Most turns end with one of two or three such events, so their encoding is cached.
    return _encoded(Done(stop_reason))


def sendable(event: Event) -> Event:
    """`event` itself, or a copy reduced to JSON values if it has others, as `dump_json` does."""
    if type(event) is TextDelta and _is_text(event.text):
        # A stream may have thousands at a time, on the loop that reads all requests.
        return event
    fields = {name: getattr(event, name) for name in event.__slots__}
    try:
        raw = to_json(fields)
    except PydanticSerializationError:
        raw = b"NaN"
    if not (b"NaN" in raw or b"Infinity" in raw or may_hold_endless(raw)):
        return event
    return replace(event, **{name: _like(value) for name, value in fields.items()})


def _is_text(value: object) -> bool:
    """Whether JSON can hold it: a `str` without half of a surrogate pair."""
    try:
        return type(value) is str and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False


def _like(value: Any) -> Any:
    match value:
        case list():
            return [_like(item) for item in value]
        case BaseModel():
            return type(value).model_validate(json_values(value))
    return json_values(value)


def encode_lines(events: Sequence[Event | str]) -> bytes:
    """The events as NDJSON, each as `encode` writes it; a `str` stands for the TextDelta with
    it."""
    return unbroken(_encoded_lines(events))


# JSON does not escape these, but Python's `str.splitlines` ends lines at them; clients on httpx use
# it to read lines and server-sent events.
_LINE_ENDS = (("\x85", rb"\u0085"), ("\u2028", rb"\u2028"), ("\u2029", rb"\u2029"))


def unbroken(lines: bytes) -> bytes:
    """The same lines of JSON, UTF-8, without characters inside a line that a client could take for
    its end: U+0085, U+2028 and U+2029 are escaped."""
    if not lines.isascii():
        for character, escape in _LINE_ENDS:
            lines = lines.replace(character.encode(), escape)
    return lines


def _encoded_lines(events: Sequence[Event | str]) -> bytes:
    lines: list[bytes] = []
    start = 0
    for n, event in enumerate(events):
        if type(event) is not str:
            lines += (text_lines(events[start:n]), encode(event), b"\n")  # type: ignore[arg-type]
            start = n + 1
    rest = text_lines(events[start:] if start else events)  # type: ignore[arg-type]
    return b"".join([*lines, rest]) if lines else rest


# A character that JSON escapes and that texts hardly ever contain.
_MARK = "\x1e"
_ESCAPED_MARK = to_json(_MARK)[1:-1]
_BETWEEN = b'"}\n' + _TEXT + b'"'


def text_lines(pieces: Sequence[str]) -> bytes:
    """The lines of text deltas, each as `encode` writes it."""
    if not pieces:
        return b""
    # One call for all of them: a twentieth of a microsecond for each instead of a third. The mark
    # can be found again, unless the texts contain it, or a backslash: that could make its escape
    # look like a part of the text.
    joined = _MARK.join(pieces)
    alone = len(pieces) == 1
    if alone or ("\\" not in joined and joined.count(_MARK) == len(pieces) - 1):
        try:
            text = to_json(joined)
        except PydanticSerializationError:
            pass
        else:
            return _TEXT + (text if alone else text.replace(_ESCAPED_MARK, _BETWEEN)) + b"}\n"
    return b"".join([_TEXT + dump_json(piece) + b"}\n" for piece in pieces])


def _text_template() -> tuple[bytes, bytes]:
    before, _, after = dump_json(AgentMessage(content="@")).partition(b'"@"')
    return before, after


_TEXT_BEFORE, _TEXT_AFTER = _text_template()


def reply_json(events: Sequence[Event], *, stop_reason: bool = True) -> bytes:
    """The reply made of a turn's events, as JSON: `fold`, serialised."""
    last = events[-1] if events else None
    if type(last) is Done and _is_bare(last) and last.stop_reason == "end_turn":
        # Most replies are only text: this avoids making and serialising two models.
        texts = [event.text for event in events if type(event) is TextDelta]
        if len(texts) == len(events) - 1:
            return _TEXT_BEFORE + dump_json("".join(texts)) + _TEXT_AFTER
    return dump_json(fold(events, stop_reason=stop_reason))
