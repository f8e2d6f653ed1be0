"""Images and documents of users: read from the messages, and refused where they cannot be taken."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import urlsplit

from sayso.errors import InvalidRequest
from sayso.models import Attachment, Model
from sayso.wire.messages import Message

MOST = 20
"""Attachments of a conversation."""
MOST_BYTES = 5 * 2**20
"""Bytes of one."""
IMAGES = ("image/gif", "image/jpeg", "image/png", "image/webp")
DOCUMENTS = ("application/pdf",)


def attached(message: Message) -> list[dict[str, Any]]:
    """The attachments that a message carries, as sent; `data.attachments`, or none."""
    extra = message.data.model_extra if message.data is not None else None
    found = (extra or {}).get("attachments")
    return list(found) if isinstance(found, list) else []


def checked(messages: Sequence[Message], model: Model, hosts: Collection[str]) -> None:
    """Raise InvalidRequest for attachments that are malformed, too many or too large, not allowed,
    or that the model does not take."""
    taken: Collection[str] = getattr(model, "takes_attachments", ())
    count = 0
    for index, message in enumerate(messages):
        for number, sent in enumerate(attached(message)):
            count += 1
            if why := _wrong(sent, taken, hosts) or _many(count):
                loc = ("body", "messages", index, "data", "attachments", number)
                why = why.replace("MODEL", f"{model.provider}:{model.name}")
                raise InvalidRequest([_item(loc, why)])


def attachment(sent: dict[str, Any]) -> Attachment:
    """The block of an attachment that was `checked`."""
    return Attachment(
        str(sent["mime"]), str(sent.get("data") or ""), str(sent.get("url") or ""), _name(sent)
    )


def _item(loc: tuple[str | int, ...], why: str) -> dict[str, Any]:
    return {"loc": list(loc), "msg": why, "type": "attachment_refused"}


def _many(count: int) -> str:
    return f"a conversation takes at most {MOST} attachments" if count > MOST else ""


def _wrong(sent: Any, taken: Collection[str], hosts: Collection[str]) -> str:
    """The reason why an attachment is refused; empty if it is accepted."""
    if not isinstance(sent, dict) or bool(sent.get("data")) is bool(sent.get("url")):
        return "an attachment is an object with 'mime', and either 'data' (base64) or 'url'"
    mime = sent.get("mime")
    if mime not in (*IMAGES, *DOCUMENTS):
        return f"attachments may be {', '.join((*IMAGES, *DOCUMENTS))}"
    if mime not in taken:
        return f"the model MODEL takes no attachments of type {mime}"
    return _wrong_url(sent["url"], hosts) if sent.get("url") else _wrong_data(sent["data"])


def _wrong_url(url: Any, hosts: Collection[str]) -> str:
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    if parts.scheme == "https" and parts.hostname in hosts and "@" not in parts.netloc:
        return ""
    return "the attachment's address is not https at one of limits.attachment_hosts"


def _wrong_data(data: Any) -> str:
    if not isinstance(data, str) or len(data) > MOST_BYTES * 4 // 3 + 4:
        return f"an attachment may have at most {MOST_BYTES} bytes"
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "the attachment's 'data' is no base64"
    return ""


def _name(sent: dict[str, Any]) -> str:
    name = sent.get("name")
    return name[:200] if isinstance(name, str) else ""
