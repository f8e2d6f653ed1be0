"""The operations of A2A 1.0 over both bindings, as the protocol's test kit makes them."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx
from a2a.types import (
    AgentCard,
    ListTaskPushNotificationConfigsResponse,
    ListTasksResponse,
    SendMessageResponse,
    StreamResponse,
    Task,
    TaskPushNotificationConfig,
)
from a2a_services import PATIENCE, V1, Service, message
from google.protobuf.json_format import ParseDict

TERMINAL = {f"TASK_STATE_{s}" for s in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")}
REASONS = {
    -32001: (404, "TASK_NOT_FOUND"),
    -32002: (400, "TASK_NOT_CANCELABLE"),
    -32003: (400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    -32004: (400, "UNSUPPORTED_OPERATION"),
    -32005: (400, "CONTENT_TYPE_NOT_SUPPORTED"),
    -32009: (400, "VERSION_NOT_SUPPORTED"),
    -32007: (400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    -32008: (400, "EXTENSION_SUPPORT_REQUIRED"),
    -32602: (400, "INVALID_PARAMS"),
}
"""The HTTP status and the reason for each JSON-RPC code (A2A 1.0, section 5.4)."""

ROUTES = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": (
        "DELETE",
        "/tasks/{taskId}/pushNotificationConfigs/{id}",
    ),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}
STREAMED = ("SendStreamingMessage", "SubscribeToTask")
SHAPES: dict[str, Any] = {
    "SendMessage": SendMessageResponse,
    "SendStreamingMessage": StreamResponse,
    "GetTask": Task,
    "ListTasks": ListTasksResponse,
    "CancelTask": Task,
    "SubscribeToTask": StreamResponse,
    "CreateTaskPushNotificationConfig": TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigs": ListTaskPushNotificationConfigsResponse,
    "GetExtendedAgentCard": AgentCard,
}


def conforms(shape: Any, shown: dict[str, Any]) -> None:
    """Fail unless JSON has this shape and no other field; the schema is as strict."""
    ParseDict(shown, shape())


class Binding:
    """The operations over one binding, at the address that the card states for it."""

    def __init__(self, service: Service, name: str) -> None:
        # The kit states no version, and accepts unknown fields.
        card = service.http.get("/.well-known/agent-card.json").json()
        ParseDict(card, AgentCard(), ignore_unknown_fields=True)
        # The kit takes the first interface of each binding.
        found = [i for i in card["supportedInterfaces"] if i["protocolBinding"] == name]
        assert found[0]["protocolVersion"] == "1.0"
        self.url = found[0]["url"]
        self.rpc = name == "JSONRPC"
        self.http = httpx.Client(timeout=PATIENCE)

    def request(self, operation: str, headers: dict[str, str], **fields: Any) -> httpx.Request:
        """An operation in the form of the binding."""
        sent = {**V1, **headers}
        if operation in STREAMED:
            sent["accept"] = "text/event-stream"
        if self.rpc:
            call = {"jsonrpc": "2.0", "id": 7, "method": operation, "params": fields}
            return self.http.build_request("POST", self.url, json=call, headers=sent)
        method, path = ROUTES[operation]
        inside = {name for name in fields if f"{{{name}}}" in path}
        rest = {name: value for name, value in fields.items() if name not in inside}
        url = self.url + path.format(**fields)
        if method != "POST":
            return self.http.build_request(method, url, params=rest, headers=sent)
        sent.setdefault("content-type", "application/json")
        # Cancel and subscribe need no body.
        body = None if operation in ("CancelTask", "SubscribeToTask") else rest
        return self.http.build_request(method, url, json=body, headers=sent)

    def __call__(self, operation: str, **fields: Any) -> dict[str, Any]:
        """The result of an operation that succeeds."""
        found: dict[str, Any] = self._read(self.http.send(self.request(operation, {}, **fields)))
        if operation in SHAPES:
            conforms(SHAPES[operation], found)
        return found

    def _read(self, response: httpx.Response) -> Any:
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        return self._inner(response.json())

    def _inner(self, shown: dict[str, Any]) -> Any:
        if not self.rpc:
            return shown
        assert (shown["jsonrpc"], shown["id"]) == ("2.0", 7)
        assert set(shown) == {"jsonrpc", "id", "result"}, shown
        return shown["result"]

    def refusal(
        self, operation: str, headers: dict[str, str] | None = None, **fields: Any
    ) -> tuple[int, str]:
        """The JSON-RPC code of a refused operation, and the reason."""
        return self.refused(self.http.send(self.request(operation, headers or {}, **fields)))

    def refused(self, response: httpx.Response) -> tuple[int, str]:
        """The code and reason of a refusal, which must have the binding's form."""
        assert response.headers["content-type"] == "application/json", response.text
        error = response.json()["error"]
        assert isinstance(error["message"], str)
        assert error["message"]
        details = error["data" if self.rpc else "details"]
        (info,) = [d for d in details if d["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"]
        assert info["domain"] == "a2a-protocol.org"
        reason = info["reason"]
        if self.rpc:
            assert response.status_code == 200
            assert set(error) == {"code", "message", "data"}
            assert REASONS[error["code"]][1] == reason
            return error["code"], reason
        (code,) = [c for c, (_, r) in REASONS.items() if r == reason]
        assert error["code"] == response.status_code == REASONS[code][0]
        return code, reason

    def stream(self, operation: str, **fields: Any) -> Generator[dict[str, Any], None, None]:
        """The events of a streamed operation, as they arrive."""
        response = self.http.send(self.request(operation, {}, **fields), stream=True)
        try:
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                if line.startswith("data:"):
                    event = self._inner(json.loads(line.removeprefix("data:")))
                    conforms(SHAPES[operation], event)
                    yield event
        finally:
            response.close()

    def task(self, prefix: str) -> dict[str, Any]:
        """The task after a message whose id has this prefix."""
        found: dict[str, Any] = self("SendMessage", message=message("hi", id=f"{prefix}-k"))["task"]
        return found


def state_of(task: dict[str, Any]) -> str:
    """The state of a task or of a change of its status."""
    state: str = task["status"]["state"]
    return state
