"""Webhooks by Standard Webhooks 1.0, as its own body or as a CloudEvent, and Teams' cards."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import httpx2

from sayso import ConfigError, Screening, secret_text
from sayso_notify.notices import Gone, Notice, data, iso
from sayso_notify.settings import HookSettings, TeamsSettings, WebhookSettings
from sayso_notify.words import lines, title

_TIMEOUT = 10.0
_READ = 4 * 1024
_REPLY = 2.0
"""Seconds for the reply behind its status."""
_GONE = 410


class Refused(Exception):
    """The receiver did not take a notice; `retry_after` is what it asked for, in seconds."""

    def __init__(self, status: int, retry_after: float | None) -> None:
        super().__init__(f"the receiver answered {status}")
        self.retry_after = retry_after


class Poster:
    """Posts to one address, which is screened for each post; no redirect is followed."""

    def __init__(self, settings: HookSettings) -> None:
        self._screening = Screening(settings.hosts)
        self._url = _checked(secret_text(settings.url, "url"), self._screening)
        # Not a client: it would log each address, which is as good as a key.
        self._transport = httpx2.AsyncHTTPTransport(trust_env=False)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Post the body. Raises Gone, Refused, or the error of the connection."""
        given = {"User-Agent": "Sayso", **headers}
        patience = httpx2.Timeout(_TIMEOUT).as_dict()
        request = httpx2.Request(
            "POST", self._url, content=body, headers=given, extensions={"timeout": patience}
        )
        await self._screening.pin(request)
        response = await self._transport.handle_async_request(request)
        await _finished(response)
        if response.status_code == _GONE:
            raise Gone("the receiver answered 410: it wants no more notices")
        if not response.is_success:
            raise Refused(response.status_code, _seconds(response.headers.get("retry-after")))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


async def _finished(response: httpx2.Response) -> None:
    """Read a short reply, so that its connection serves again. The status alone counts: a long,
    slow or broken one is left unread."""
    try:
        with suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout(_REPLY):
                size = 0
                async for piece in response.aiter_raw():
                    size += len(piece)
                    if size > _READ:
                        break
    finally:
        await response.aclose()


class Webhook:
    """A channel that posts signed JSON."""

    def __init__(self, settings: WebhookSettings) -> None:
        self.events, self.tools = settings.events, settings.tools
        self.reminders, self.after = settings.reminders, settings.after
        self._settings = settings
        given = [settings.secret, *([settings.old_secret] if settings.old_secret else [])]
        self._keys = [signing_key(secret_text(one, "secret")) for one in given]
        self._poster = Poster(settings)

    async def send(self, notice: Notice) -> str | None:
        """Post the notice."""
        shown = data(notice, self._settings.inputs)
        if self._settings.format == "cloudevents":
            kind, body = "application/cloudevents+json", cloud_event(notice, shown)
        else:
            body = {"type": notice.type, "timestamp": iso(notice.at), "data": shown}
            kind = "application/json"
        raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "backslashreplace"
        )
        headers = signed(notice.id, raw, self._keys, int(time.time()))
        await self._poster.post(raw, {"Content-Type": kind, **headers})
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._poster.aclose()


class Teams:
    """A channel that posts an Adaptive Card with a link to a workflow of Microsoft Teams."""

    def __init__(self, settings: TeamsSettings) -> None:
        self.events, self.tools = settings.events, settings.tools
        self.reminders, self.after = settings.reminders, settings.after
        self._settings = settings
        self._poster = Poster(settings)

    async def send(self, notice: Notice) -> str | None:
        """Post the card."""
        shown = data(notice, self._settings.inputs)
        raw = json.dumps(teams_card(notice, shown)).encode()
        await self._poster.post(raw, {"Content-Type": "application/json"})
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._poster.aclose()


def signing_key(text: str) -> bytes:
    """The key in a secret of Standard Webhooks; raises ConfigError."""
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise ConfigError(
            "the secret of a webhook is 'whsec_' and 24 to 64 bytes in base64; "
            'make one: echo "whsec_$(openssl rand -base64 32)"'
        )
    return key


def signed(id_: str, body: bytes, keys: Sequence[bytes], now: int) -> dict[str, str]:
    """The headers of Standard Webhooks: a signature by each key, separated by spaces."""
    text = f"{id_}.{now}.".encode() + body
    made = [base64.b64encode(hmac.digest(key, text, sha256)).decode() for key in keys]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(now),
        "webhook-signature": " ".join(f"v1,{one}" for one in made),
    }


def cloud_event(notice: Notice, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The notice as a CloudEvent 1.0 in structured mode."""
    return {
        "specversion": "1.0",
        "id": notice.id,
        "source": f"/sayso/{quote(notice.row.agent, safe='')}",
        "type": notice.type,
        "subject": notice.row.id,
        "time": iso(notice.at),
        "datacontenttype": "application/json",
        "data": shown,
    }


def teams_card(notice: Notice, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The message with the card; its texts are no Markdown."""
    facts = [f"{name}: {value}" for name, value in lines(notice, shown)]
    body = [_text(title(notice), weight="Bolder"), *(_text(fact) for fact in facts)]
    opens = [{"type": "Action.OpenUrl", "title": "Open the page", "url": notice.link}]
    content = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "body": body,
        "actions": opens if notice.link else [],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    attached = {"contentType": kind, "contentUrl": None, "content": content}
    return {"type": "message", "attachments": [attached]}


def _text(text: str, **style: str) -> dict[str, Any]:
    # A TextBlock would read Markdown; a TextRun does not.
    run = {"type": "TextRun", "text": text, **style}
    return {"type": "RichTextBlock", "inlines": [run]}


def _checked(url: str, screening: Screening) -> str:
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL:
        parts = httpx2.URL("")
    is_open = parts.scheme == "http" and screening.trusts(parts.host)
    if not parts.host or not (parts.scheme == "https" or is_open):
        raise ConfigError("'url' is an address with https, or one of a host in 'hosts'")
    if parts.userinfo:
        raise ConfigError(
            "'url' has a user name or a password, which are not sent: the receiver checks the "
            "signature, or a part of the path"
        )
    return url


def _seconds(text: str | None) -> float | None:
    """The seconds of a `Retry-After`: a number, or a date."""
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        return float(text[:6])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
