"""The official SDK's client against a service, in both versions of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.types import AgentCard, SendMessageRequest, TaskState
from a2a_services import PATIENCE, Cluster, Serve, message
from google.protobuf.json_format import MessageToDict, ParseDict


@pytest.fixture(
    params=[
        ("1.0", "JSONRPC"),
        ("1.0", "HTTP+JSON"),
        ("0.3", "JSONRPC"),
        ("0.3", "HTTP+JSON"),
    ],
    ids="-".join,
)
def interface(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A version of the protocol and a binding."""
    found: tuple[str, str] = request.param
    return found


async def client_of(
    url: str, interface: tuple[str, str], http: httpx.AsyncClient, *, streaming: bool
) -> Any:
    content = (await http.get(f"{url}/.well-known/agent-card.json")).json()
    content["supportedInterfaces"] = [
        i
        for i in content["supportedInterfaces"]
        if (i["protocolVersion"], i["protocolBinding"]) == interface
    ]
    card = ParseDict(content, AgentCard(), ignore_unknown_fields=True)
    config = ClientConfig(
        streaming=streaming, httpx_client=http, supported_protocol_bindings=[interface[1]]
    )
    return ClientFactory(config).create(card)


def request(*parts: Any, **fields: Any) -> Any:
    return ParseDict({"message": message(*parts, **fields)}, SendMessageRequest())


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_client_talks_decides_and_looks(
    serve: Serve, cluster: Cluster, interface: tuple[str, str], streaming: bool
) -> None:
    service = serve(cluster.agent, adapter="both")

    async def use() -> None:
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            client = await client_of(service.url, interface, http, streaming=streaming)
            task = await last_task(client, request("delete web"))
            assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            (call,) = [
                MessageToDict(p.data) for p in task.status.message.parts if p.HasField("data")
            ]
            assert call["input"] == {"name": "web"}
            refused = await last_task(client, request("yes", taskId=task.id))
            assert refused.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            assert cluster.deleted == []
            approval = {"id": call["id"], "execute": True}
            done = await last_task(client, request(approval, taskId=task.id))
            assert done.status.state == TaskState.TASK_STATE_COMPLETED
            said = [part.text for artifact in done.artifacts for part in artifact.parts]
            assert "".join(said) == "The tool says: deleted web"
            assert cluster.deleted == ["web"]

    asyncio.run(use())


async def last_task(client: Any, sent: Any) -> Any:
    """The task after a message, requested once the answer is complete."""
    from a2a.types import GetTaskRequest

    task_id = ""
    async for event in client.send_message(sent):
        for name in ("task", "status_update", "artifact_update"):
            if event.HasField(name):
                found = getattr(event, name)
                task_id = found.id if name == "task" else found.task_id
    return await client.get_task(GetTaskRequest(id=task_id))
