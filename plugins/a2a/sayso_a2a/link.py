"""One remote agent over HTTP, by the official protocol or the contract's."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from sayso_a2a.answers import (
    Answer,
    Json,
    json_of,
    message_answer,
    simple_answer,
    task_answer,
)

logger = logging.getLogger("sayso.a2a")
Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]
_FIRST_LOOK = 0.2
_LAST_LOOK = 5.0
"""Seconds between two looks at a task that is at work, at first and at last."""
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")
SIMPLE = "simple"
"""Stands for the official card if the agent speaks only the contract's protocol."""


class Sent(NamedTuple):
    """A message or a decision to send, on a task or in an earlier conversation."""

    message: str
    task: str | None = None
    context: str = ""
    decision: Json | None = None


class Link:
    """One remote agent over HTTP, by the protocol that it speaks."""

    def __init__(
        self, url: str, headers: Headers | None, timeout: float, auth: tuple[str, str] | None = None
    ) -> None:
        if isinstance(headers, Mapping):
            _sendable(headers)
        self._url = url
        self._headers = headers
        self._auth = auth
        self._timeout = timeout
        self._card: Any = None

    async def send(self, sent: Sent) -> Answer:
        """The agent's answer to a message, or to a decision on a call of a task. If the task is
        still at work, its answer at the end, or when the timeout is over."""
        async with self._reached() as (client, card):
            try:
                if card is SIMPLE:
                    answer = await _send_simple(client, self._url, sent)
                else:
                    answer = await _send_official(client, card, sent)
                return await self._ended(client, card, answer)
            except Exception as error:
                if _lost(error):
                    raise ConnectionError(
                        f"the agent at {self._url!r} got the message, or a part of it, and gave "
                        "no answer: what it asks for may have taken effect there"
                    ) from error
                raise

    async def check_waiting(self, task: str, decision: Json) -> None:
        """Raise ValueError unless exactly this call is pending in `task`."""
        async with self._reached() as (client, card):
            answer = await self._look(client, card, task)
        for call in answer.waiting:
            if call.get("id") == decision["id"]:
                if call.get("name") == decision["name"] and call.get("input") == decision["input"]:
                    return
                raise ValueError("the remote agent proposed this call with another name or input")
        raise ValueError(f"no such call waits for a decision in the task {task!r}")

    async def _ended(self, client: Any, card: Any, answer: Answer) -> Answer:
        """The answer once its task has ended or waits for somebody."""
        until = time.monotonic() + self._timeout
        pause = _FIRST_LOOK
        while answer.runs and answer.task and time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK)
            try:
                answer = await self._look(client, card, answer.task)
            except Exception as error:
                # The answer so far is worth more than the reason why there is no later one.
                logger.info("a task of the agent at %r cannot be looked at: %s", self._url, error)
                break
        return answer

    async def _look(self, client: Any, card: Any, task: str) -> Answer:
        if card is SIMPLE:
            return await _look_simple(client, self._url, task)
        return await _look_official(client, card, task)

    @asynccontextmanager
    async def _reached(self) -> AsyncIterator[tuple[Any, Any]]:
        """A client, and the agent's card, which is read once, and again after a failure."""
        import httpx

        try:
            async with self._client() as client:
                card = self._card = self._card or await self._read_card(client)
                yield client, card
        except Exception as error:
            # After a restart the agent may speak another protocol.
            self._card = None
            if isinstance(error, httpx.TransportError):
                why = str(error) or type(error).__name__
                raise ConnectionError(
                    f"the connection to the agent at {self._url!r} failed: {why}"
                ) from error
            raise

    def _client(self) -> Any:
        from sayso_a2a.reading import Reader

        given = self._headers() if callable(self._headers) else self._headers or {}
        return Reader(
            self._timeout, headers=_sendable(given), auth=self._auth, follow_redirects=False
        )

    async def _read_card(self, client: Any) -> Any:
        answer = await client.get(f"{self._url}/.well-known/agent-card.json")
        if answer.status_code == 404:
            answer = await client.get(f"{self._url}/.well-known/agent.json")
        answer.raise_for_status()
        return _card_of(json_of(answer), self._url)


def _lost(error: BaseException | None) -> bool:
    """Whether an established connection was lost; the SDK's errors have that as their cause."""
    import httpx

    while error is not None and not isinstance(error, httpx.TransportError):
        error = error.__cause__
    unsent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    return error is not None and not isinstance(error, unsent)


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers. Raises ValueError, without the value, for one that no request can carry.

    The HTTP library's own error would contain the value.
    """
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise ValueError(
                f"the value of the header {name!r} has a line end, a space around it or a "
                "character that no request can carry"
            )
    return dict(headers)


def _card_of(content: Any, url: str) -> Any:
    """The official card, with only the interfaces at the agent's own address; SIMPLE if it is not
    one.

    A card could name any address, and the headers for this agent would be sent there.
    """
    if not isinstance(content, dict):
        raise ValueError(f"the card at {url!r} is no JSON object")
    if not content.get("supportedInterfaces") and "protocolVersion" not in content:
        return SIMPLE
    from a2a.client.card_resolver import parse_agent_card
    from google.protobuf.json_format import ParseError

    try:
        card = parse_agent_card(content)
    except ParseError as error:
        raise ValueError(f"the card at {url!r} is wrong: {error}") from error
    own = [i for i in card.supported_interfaces if _origin(i.url) == _origin(url)]
    if not own:
        raise ValueError(
            f"the card at {url!r} names other addresses only; give remote_agent the agent's own"
        )
    card.ClearField("supported_interfaces")
    card.supported_interfaces.extend(own)
    return card


def _origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; this machine has one name, however a card spells it."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    host = parts.hostname or ""
    return parts.scheme, "localhost" if host in _THIS_MACHINE else host, port


async def _send_simple(client: Any, url: str, sent: Sent) -> Answer:
    body: Json = {"message": sent.message}
    if id := sent.task or sent.context:
        body["id"] = id
    if sent.decision is not None:
        body["data"] = {"tool_calls": [sent.decision]}
    return simple_answer(await client.post(f"{url}/a2a/tasks/send", json=body))


async def _look_simple(client: Any, url: str, task: str) -> Answer:
    return simple_answer(await client.get(f"{url}/a2a/tasks/{quote(task, safe='')}"))


async def _send_official(client: Any, card: Any, sent: Sent) -> Answer:
    from a2a.types import SendMessageRequest
    from google.protobuf.json_format import ParseDict

    parts: list[Json] = [{"text": sent.message}] if sent.message else []
    if sent.decision is not None:
        parts.append({"data": sent.decision})
    message: Json = {"messageId": secrets.token_hex(16), "role": "ROLE_USER", "parts": parts}
    if sent.task is not None:
        message["taskId"] = sent.task
    elif sent.context:
        message["contextId"] = sent.context
    request = ParseDict({"message": message}, SendMessageRequest())
    answer: Answer | None = None
    async with _sdk_client(client, card) as remote:
        async for event in remote.send_message(request):
            if event.HasField("task"):
                answer = task_answer(event.task)
            elif event.HasField("message"):
                answer = message_answer(event.message)
    if answer is None:
        raise ValueError("the remote agent did not answer")
    return answer


async def _look_official(client: Any, card: Any, task: str) -> Answer:
    from a2a.types import GetTaskRequest

    async with _sdk_client(client, card) as remote:
        return task_answer(await remote.get_task(GetTaskRequest(id=task)))


def _sdk_client(client: Any, card: Any) -> Any:
    from a2a.client import ClientConfig, ClientFactory

    config = ClientConfig(
        streaming=False, httpx_client=client, supported_protocol_bindings=["JSONRPC", "HTTP+JSON"]
    )
    return ClientFactory(config).create(card)
