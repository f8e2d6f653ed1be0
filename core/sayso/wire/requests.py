"""Reading the body of a chat request, and the rules for its messages."""

from __future__ import annotations

from typing import NoReturn

from sayso.errors import InvalidRequest, MessagesMissing
from sayso.wire.bodies import BodyReader, check, check_size, refuse_doubled, strict, unmarked
from sayso.wire.messages import (
    Approval,
    ChatRequest,
    Command,
    PlatformContext,
    ToolCall,
    beyond_text,
)

_request = BodyReader(ChatRequest)
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
    body = unmarked(body)
    check_size(body, values)
    try:
        request = _request.read(body)
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
    check_messages(request, messages)
    if _decides(request):
        refuse_doubled(body)
    return request


def _decides(request: ChatRequest) -> bool:
    items: list[ToolCall | Approval | Command] = []
    for message in beyond_text(request.messages):
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
