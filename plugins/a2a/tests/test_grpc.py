"""The official protocol over gRPC, as the SDK's own client speaks it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageRequest,
    TaskState,
)
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from a2a_services import (
    PATIENCE,
    Cluster,
    Serve,
    Service,
    bearer,
    configured,
    message,
    running,
)
from google.protobuf.json_format import MessageToDict, ParseDict

from sayso import PluginError, create_app

PATH = "/.well-known/agent-card.json"


def address(service: Service) -> str:
    """The address for gRPC in the card."""
    interfaces = service.http.get(PATH).json()["supportedInterfaces"]
    (found,) = [i["url"] for i in interfaces if i["protocolBinding"] == "GRPC"]
    return str(found)


def request(*parts: Any, **fields: Any) -> Any:
    return ParseDict({"message": message(*parts, **fields)}, SendMessageRequest())


def calling(service: Service, use: Callable[[Any], Awaitable[None]]) -> None:
    """Run `use` with a stub of the service."""

    async def run() -> None:
        async with grpc.aio.insecure_channel(address(service)) as channel:
            await use(A2AServiceStub(channel))

    asyncio.run(run())


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_client_of_the_sdk_talks_and_decides_over_grpc(
    serve: Serve, cluster: Cluster, streaming: bool
) -> None:
    service = serve(cluster.agent, adapter="a2a", grpc_port=0)
    content = service.http.get(PATH, headers={"A2A-Version": "1.0"}).json()
    config = ClientConfig(
        streaming=streaming,
        supported_protocol_bindings=["GRPC"],
        grpc_channel_factory=grpc.aio.insecure_channel,
    )

    async def use() -> None:
        client = ClientFactory(config).create(ParseDict(content, AgentCard()))

        async def task_after(sent: Any) -> Any:
            id = ""
            async for event in client.send_message(sent):
                for name in ("task", "status_update"):
                    if event.HasField(name):
                        found = getattr(event, name)
                        id = found.id if name == "task" else found.task_id
            return await client.get_task(GetTaskRequest(id=id))

        task = await task_after(request("delete web"))
        assert task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        (call,) = [MessageToDict(p.data) for p in task.status.message.parts if p.HasField("data")]
        decision = request({"id": call["id"], "execute": True}, taskId=task.id)
        done = await task_after(decision)
        assert done.status.state == TaskState.TASK_STATE_COMPLETED
        assert "".join(p.text for a in done.artifacts for p in a.parts) == (
            "The tool says: deleted web"
        )
        await client.close()

    asyncio.run(use())
    assert cluster.deleted == ["web"]


def test_callers_over_grpc_are_authenticated_and_see_what_is_theirs(
    tmp_path: Path, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sayso.auth")
    config = configured(tmp_path, guarded=True, adapter="a2a", grpc_port=0)
    with running(cluster.agent, config) as service:

        async def use(stub: Any) -> None:
            for metadata in ((), (("authorization", "Bearer wrong"),)):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.SendMessage(request("hello"), metadata=metadata)
                assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    async for _ in stub.SendStreamingMessage(request("x"), metadata=metadata):
                        pass
                assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
            ann, bob = (tuple(bearer(name).items()) for name in ("ann", "bob"))
            sent = await stub.SendMessage(request("hello"), metadata=ann)
            wanted = GetTaskRequest(id=sent.task.id)
            assert (await stub.GetTask(wanted, metadata=ann)).id == sent.task.id
            for call in (
                stub.GetTask(wanted, metadata=bob),
                stub.CancelTask(CancelTaskRequest(id=sent.task.id), metadata=bob),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call
                assert refused.value.code() == grpc.StatusCode.NOT_FOUND

        calling(service, use)
    assert len(cluster.model.asks) == 1
    logged = [vars(one) for one in caplog.records if one.name == "sayso.auth"]
    assert [(one["protocol"], one["reason"]) for one in logged] == [
        ("a2a", "missing"),
        ("a2a", "wrong"),
    ]


def test_odd_calls_over_grpc_are_refused_with_a_reason(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent, adapter="a2a", grpc_port=0)
    odd = request({"n": 1.0})
    odd.message.parts[0].data.struct_value.fields["n"].number_value = float("nan")

    async def use(stub: Any) -> None:
        for sent in (odd, request({"n": [0] * 20_000})):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.SendMessage(sent, timeout=PATIENCE)
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        for version in ("0.3", "2.0"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.SendMessage(request("x"), metadata=(("a2a-version", version),))
            assert "speaks A2A 1.0" in str(refused.value.details())
        big = request("x" * (5 * 2**20))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendMessage(big)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

    calling(service, use)
    assert cluster.model.asks == []


def test_card_names_the_address_for_grpc_that_is_configured(
    tmp_path: Path, cluster: Cluster
) -> None:
    config = configured(tmp_path, adapter="a2a", grpc_port=0, grpc_url="agents.example:443")
    with running(cluster.agent, config) as service:
        assert address(service) == "agents.example:443"


def test_port_for_grpc_that_is_taken_stops_the_start(
    serve: Serve, tmp_path: Path, cluster: Cluster
) -> None:
    taken = int(address(serve(cluster.agent, adapter="a2a", grpc_port=0)).rpartition(":")[2])
    config = configured(tmp_path / "other", adapter="a2a", grpc_port=taken)

    async def start() -> None:
        async with create_app(Cluster().agent, config=config).router.lifespan_context(None):
            pass

    with pytest.raises(PluginError, match=f"port {taken} .*grpc_port"):
        asyncio.run(start())
