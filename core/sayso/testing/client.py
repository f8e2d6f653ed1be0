"""A client of a service under test, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.host import ServiceHost

Json = dict[str, Any]
_TIMEOUT = 30.0


def user(content: str = "", **fields: Any) -> Json:
    """A user message; further fields (`data`, `platform_context`, `user`) are keywords."""
    return {"role": "user", "content": content, **fields}


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply over HTTP; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def events(self) -> list[Json]:
        """The events of an NDJSON stream."""
        return [json.loads(line) for line in self.body.splitlines() if line]


class Service:
    """A service that listens on `url`; made by `served`.

    `routes` names everything that it serves: "POST /api/chat", "WEBSOCKET /api/chat-ws"; `host` is
    the object that protocol plugins get. `chat`, `stream`, `ask` and `conversation` talk to the V2
    endpoints of the plugin `v2`; `request` and `post` reach any path.
    """

    def __init__(self, host: ServiceHost, port: int, routes: Sequence[str] = ()) -> None:
        self.host = host
        self.port = port
        self.routes = sorted(routes)
        self.url = f"http://127.0.0.1:{port}"

    def __repr__(self) -> str:
        return f"Service({self.url!r})"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to one request, whatever its status; a stream is read to its end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        try:
            connection.request(method, path, body, dict(headers or {}))
            got = connection.getresponse()
            named = {name.lower(): value for name, value in got.getheaders()}
            return Answer(got.status, named, got.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a GET."""
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a POST of `body` as JSON; bytes are sent unchanged."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request(
            "POST", path, raw, {"Content-Type": "application/json", **(headers or {})}
        )

    def ask(
        self,
        *messages: Json | str,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Answer:
        """The answer to a ChatRequest; a text is a user message, `fields` are top-level fields."""
        said = [user(m) if isinstance(m, str) else m for m in messages]
        path = "/api/chat-stream" if stream else "/api/chat"
        return self.post(path, {"messages": said, **fields}, headers)

    def chat(self, *messages: Json | str, **fields: Any) -> Json:
        """The reply (an AgentMessage as a dict). Raises AssertionError unless it is a 200."""
        reply: Json = _good(self.ask(*messages, **fields)).json()
        return reply

    def stream(self, *messages: Json | str, **fields: Any) -> list[Json]:
        """The events of the streamed reply. Raises AssertionError unless it is a 200."""
        return _good(self.ask(*messages, stream=True, **fields)).events

    def conversation(
        self,
        *history: Json,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Conversation:
        """A conversation that continues from `history`.

        `token` is sent as a bearer token; `headers` and the top-level `fields` go with each of its
        requests, too.
        """
        named = dict(headers or {})
        if token is not None:
            named["Authorization"] = f"Bearer {token}"
        return Conversation(self, history, fields, named)


class Conversation:
    """A caller that sends back the replies, and decides on proposals."""

    def __init__(
        self,
        service: Service,
        history: Sequence[Json],
        fields: Mapping[str, Any],
        headers: Mapping[str, str],
    ) -> None:
        self._service = service
        self._fields = dict(fields)
        self._headers = dict(headers)
        self.messages: list[Json] = list(history)

    @property
    def pending(self) -> list[Json]:
        """The pending tool calls of the last reply."""
        return self._last("tool_calls")

    @property
    def pending_commands(self) -> list[Json]:
        """The pending commands of the last reply."""
        return self._last("cmds")

    @property
    def executed(self) -> list[Json]:
        """The tool calls that the last reply reports as executed, with their outputs."""
        return self._data("executed_tool_calls")

    @property
    def executed_commands(self) -> list[Json]:
        """The commands that the last reply reports as executed, with their outputs."""
        return self._data("executed_cmds")

    def say(self, content: str = "", **fields: Any) -> Json:
        """The reply to a user message; `fields` are fields of the message.

        A message that is refused, or fails, does not become a part of the conversation.
        """
        message = user(content, **fields)
        reply = self._service.chat(*self.messages, message, headers=self._headers, **self._fields)
        said = {"role": "assistant", "content": reply["content"], "data": reply["data"]}
        self.messages += [message, said]
        return reply

    def approve(self, *ids: str, input: Json | None = None) -> Json:
        """The reply to an approval of everything pending, or only of these `ids`.

        `input` edits the one tool call that is approved, as an approver would: it is what the call
        shall run with, and its tool has to be `editable`.
        """
        if input is None:
            return self._decide({"execute": True}, ids)
        if len(chosen := [call for call in self.pending if not ids or call["id"] in ids]) != 1:
            raise AssertionError(
                f"an edited input is for one tool call, and {len(chosen)} are meant; name its id"
            )
        return self._decide({"execute": True, "input": input}, [chosen[0]["id"]])

    def reject(self, reason: str = "no", *ids: str) -> Json:
        """The reply to a rejection of everything pending, or only of these `ids`."""
        return self._decide({"rejection_reason": reason}, ids)

    def _decide(self, decision: Json, ids: Sequence[str]) -> Json:
        data = {
            name: [{**one, **decision} for one in waiting if not ids or one.get("id") in ids]
            for name, waiting in (("tool_calls", self.pending), ("cmds", self.pending_commands))
        }
        if not any(data.values()):
            raise AssertionError("nothing of that waits for a decision")
        if (session := self.messages[-1]["data"].get("session")) is not None:
            data["session"] = session
        return self.say(data=data)

    def _last(self, name: str) -> list[Json]:
        return [one for one in self._data(name) if not one.get("execute")]

    def _data(self, name: str) -> list[Json]:
        data = (self.messages[-1].get("data") or {}) if self.messages else {}
        return list(data.get(name) or ())


def _good(answer: Answer) -> Answer:
    if answer.status != 200:
        raise AssertionError(f"the service answered {answer.status}: {answer.text}")
    return answer
