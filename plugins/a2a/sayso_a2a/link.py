"""One remote agent over HTTP, by the official protocol or the contract's."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from sayso import ToolResult
from sayso_a2a.artifacts import text_of_parts, whole

Json = dict[str, Any]
Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]
SIMPLE = "simple"
"""Stands for the official card if the agent speaks only the contract's protocol."""


@dataclass(slots=True)
class Answer:
    """The other agent's answer: its task, the task's state, and the calls pending there."""

    task: str
    state: str
    text: str = ""
    waiting: list[Json] = field(default_factory=list)
    artifacts: list[Json] = field(default_factory=list)

    def result(self, decide: str) -> ToolResult:
        """The answer as a tool result for the model."""
        lines = [self.text] if self.text else []
        for artifact in self.artifacts:
            lines.append(_artifact_text(artifact))
        for call in self.waiting:
            named = {key: call.get(key) for key in ("id", "name", "input")}
            shown = to_json(named, inf_nan_mode="null").decode()
            lines.append(
                f"A call waits for a decision: {shown}. To have a person decide it, call "
                f"{decide} with task {self.task!r} and the call's id, name and input unchanged."
            )
        if self.state == "input-required":
            lines.append(f"The task {self.task!r} waits for input.")
        elif self.state != "completed" or not lines:
            lines.append(f"The task {self.task!r} is {self.state}.")
        structured = {"task": self.task, "state": self.state, "waiting": self.waiting}
        is_error = self.state in ("failed", "rejected", "canceled")
        return ToolResult(["\n".join(lines)], structured=structured, is_error=is_error)


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

    async def send(self, message: str, task: str | None, decision: Json | None = None) -> Answer:
        """The agent's answer to a message, or to a decision on a call of `task`."""
        async with self._reached() as (client, card):
            try:
                if card is SIMPLE:
                    return await _send_simple(client, self._url, message, task, decision)
                return await _send_official(client, card, message, task, decision)
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
            if card is SIMPLE:
                answer = await _look_simple(client, self._url, task)
            else:
                answer = await _look_official(client, card, task)
        for call in answer.waiting:
            if call.get("id") == decision["id"]:
                if call.get("name") == decision["name"] and call.get("input") == decision["input"]:
                    return
                raise ValueError("the remote agent proposed this call with another name or input")
        raise ValueError(f"no such call waits for a decision in the task {task!r}")

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
        return _card_of(_json(answer), self._url)


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
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", port


async def _send_simple(
    client: Any, url: str, message: str, task: str | None, decision: Json | None
) -> Answer:
    body: Json = {"message": message}
    if task is not None:
        body["id"] = task
    if decision is not None:
        body["data"] = {"tool_calls": [decision]}
    return _simple_answer(await client.post(f"{url}/a2a/tasks/send", json=body))


async def _look_simple(client: Any, url: str, task: str) -> Answer:
    return _simple_answer(await client.get(f"{url}/a2a/tasks/{quote(task, safe='')}"))


class _Artifact(TypedDict, total=False):
    name: str | None
    artifactId: str | None
    parts: list[Json] | None


class _Calls(BaseModel):
    tool_calls: list[Json] | None = None


class _Failure(BaseModel):
    message: str | None = None


class _Task(BaseModel):
    """A task in the contract's protocol; null means absent."""

    status: str
    task_id: str | None = None
    text: str | None = None
    error: _Failure | None = None
    metadata: _Calls | None = None
    artifacts: list[_Artifact] | None = None


def _simple_answer(response: Any) -> Answer:
    content = _json(response)
    if response.status_code != 200:
        raise ValueError(f"the remote agent answered {response.status_code}{_detail(content)}")
    try:
        task = _Task.model_validate(content)
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, wrong["loc"])) or "the body"
        raise ValueError(f"the remote agent's answer is no task: {where} is wrong") from None
    text = task.text or (task.error and task.error.message) or ""
    waiting = (task.metadata and task.metadata.tool_calls) or []
    artifacts = [dict(artifact) for artifact in task.artifacts or ()]
    return Answer(task.task_id or "", task.status, text, waiting, artifacts)


def _json(response: Any) -> Any:
    """The JSON value of a body; None if the body is not JSON."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


def _detail(content: Any) -> str:
    detail = content.get("detail") if isinstance(content, dict) else None
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        detail = detail[0].get("msg")
    return "" if detail is None else f": {detail}"[:300]


async def _send_official(
    client: Any, card: Any, message: str, task: str | None, decision: Json | None
) -> Answer:
    from a2a.types import SendMessageRequest
    from google.protobuf.json_format import ParseDict

    parts: list[Json] = [{"text": message}] if message else []
    if decision is not None:
        parts.append({"data": decision})
    sent: Json = {"messageId": secrets.token_hex(16), "role": "ROLE_USER", "parts": parts}
    if task is not None:
        sent["taskId"] = task
    request = ParseDict({"message": sent}, SendMessageRequest())
    answer: Answer | None = None
    async with _sdk_client(client, card) as remote:
        async for event in remote.send_message(request):
            if event.HasField("task"):
                answer = _task_answer(event.task)
            elif event.HasField("message"):
                answer = _message_answer(event.message)
    if answer is None:
        raise ValueError("the remote agent did not answer")
    return answer


async def _look_official(client: Any, card: Any, task: str) -> Answer:
    from a2a.types import GetTaskRequest

    async with _sdk_client(client, card) as remote:
        return _task_answer(await remote.get_task(GetTaskRequest(id=task)))


def _sdk_client(client: Any, card: Any) -> Any:
    from a2a.client import ClientConfig, ClientFactory

    config = ClientConfig(
        streaming=False, httpx_client=client, supported_protocol_bindings=["JSONRPC", "HTTP+JSON"]
    )
    return ClientFactory(config).create(card)


def _task_answer(task: Any) -> Answer:
    from a2a.types import TaskState
    from google.protobuf.json_format import MessageToDict

    shown = whole(MessageToDict(task))
    state = TaskState.Name(task.status.state).removeprefix("TASK_STATE_")
    text, waiting = _said(shown.get("status", {}).get("message", {}).get("parts", []))
    artifacts = list(shown.get("artifacts", ()))
    return Answer(task.id, state.lower().replace("_", "-"), text, waiting, artifacts)


def _message_answer(message: Any) -> Answer:
    from google.protobuf.json_format import MessageToDict

    text, _ = _said(whole(MessageToDict(message)).get("parts", []))
    return Answer(message.task_id, "completed", text)


def _said(parts: Sequence[Json]) -> tuple[str, list[Json]]:
    """The text of the parts, and the pending calls among them."""
    texts = [str(part["text"]) for part in parts if part.get("text")]
    waiting = [
        part["data"]
        for part in parts
        if isinstance(part.get("data"), dict)
        and part["data"].get("execute") is False
        and "id" in part["data"]
    ]
    return "\n".join(texts), waiting


def _artifact_text(artifact: Json) -> str:
    name = artifact.get("name") or artifact.get("artifactId", "artifact")
    return f"[{name}]\n{text_of_parts(artifact.get('parts') or ())}"
