"""Notifications of the official protocol: allowed addresses, their owners, and their content."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from a2a.compat.v0_3.types import Task as OldTask
from a2a.types import StreamResponse
from a2a_services import (
    Cluster,
    Rpc,
    Serve,
    Service,
    configured,
    message,
    proposals,
    running,
    wait_for,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import ParseDict

from sayso import Config, Screening
from sayso_a2a.official.notifying import notifying_client

CREATE = "CreateTaskPushNotificationConfig"


class Listener:
    """Receives posted notifications on a loopback port; with `moved` it redirects callers."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], Any]] = []
        self.moved: str | None = None
        listener = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener.got.append((headers, json.loads(body)))
                self.send_response(302 if listener.moved else 200)
                if listener.moved:
                    self.send_header("location", listener.moved)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}/told"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def states(self) -> list[str]:
        """The states in the notifications."""
        return [t["statusUpdate"]["status"]["state"] for _, t in self.got if "statusUpdate" in t]


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A receiver of notifications."""
    made = Listener()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def notified(serve: Serve, cluster: Cluster) -> Service:
    """A service that may notify this machine."""
    return serve(cluster.agent, adapter="a2a", push_notifications=True, push_hosts=["127.0.0.1"])


def _decide(rpc: Rpc, task: dict[str, Any]) -> dict[str, Any]:
    (call,) = proposals(task)
    return rpc.task({"id": call["id"], "execute": True}, taskId=task["id"])


def test_notification_carries_the_credentials_and_a_stream_event(
    notified: Service, listener: Listener
) -> None:
    rpc = Rpc(notified)
    auth = {"scheme": "Bearer", "credentials": "of-the-caller"}
    config = {"url": listener.url, "token": "secret-token", "authentication": auth}
    sent = {"taskPushNotificationConfig": config}
    task = rpc("SendMessage", message=message("delete web"), configuration=sent)["result"]["task"]
    _decide(rpc, task)
    wait_for(lambda: "TASK_STATE_COMPLETED" in listener.states())
    for headers, event in listener.got:
        assert headers["authorization"] == "Bearer of-the-caller"
        assert headers["x-a2a-notification-token"] == "secret-token"
        # Strict: an unknown field makes it fail.
        ParseDict(event, StreamResponse())
        assert len(event) == 1


def test_address_that_never_answers_holds_up_neither_its_task_nor_the_end(
    tmp_path: Path, cluster: Cluster
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        config = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}/told"}
        given = {"adapter": "a2a", "push_notifications": True, "push_hosts": ["127.0.0.1"]}
        with running(cluster.agent, configured(tmp_path, **given)) as service:
            began = time.monotonic()
            sent = {"taskPushNotificationConfig": config}
            answer = Rpc(service)("SendMessage", message=message("hello"), configuration=sent)
            # The SDK would wait ten seconds for each of at least two notifications.
            assert time.monotonic() - began < 15
            assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_endless_answer_to_a_notification_is_not_read_to_its_end(notified: Service) -> None:
    taken: list[int] = []

    def pour(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while sum(taken) < 2**27:
                    taken.append(connection.send(b"x" * 2**20))
            except OSError:
                taken.append(-1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        pouring = threading.Thread(target=pour, args=(server,))
        pouring.start()
        sent = {
            "taskPushNotificationConfig": {"url": f"http://127.0.0.1:{server.getsockname()[1]}/"}
        }
        Rpc(notified)("SendMessage", message=message("hello"), configuration=sent)
        pouring.join(60)
    assert taken[-1] == -1


@pytest.mark.parametrize("database", [False, True], ids=["file", "database"])
def test_address_given_over_0_3_gets_the_whole_task_and_others_of_it_an_event(
    tmp_path: Path, cluster: Cluster, listener: Listener, database: bool
) -> None:
    options: dict[str, Any] = {"push_notifications": True, "push_hosts": ["127.0.0.1"]}
    if database:
        pytest.importorskip("aiosqlite")
        options["database"] = f"sqlite+aiosqlite:///{tmp_path}/tasks.db"
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    config = configured(tmp_path, ledger=ledger, adapter="a2a", **options)
    new = Listener()
    with running(cluster.agent, config) as service:
        parts = [{"kind": "text", "text": "delete web"}]
        said = {"kind": "message", "role": "user", "messageId": "m1", "parts": parts}
        auth = {"schemes": ["Bearer"], "credentials": "of-the-caller"}
        at = {"url": listener.url, "id": "old", "token": "t", "authentication": auth}
        params = {"message": said, "configuration": {"pushNotificationConfig": at}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
        task = service.http.post("/a2a/rpc", json=call).json()["result"]
        rpc = Rpc(service)
        rpc(CREATE, taskId=task["id"], id="new", url=new.url)
        _decide(rpc, rpc("GetTask", id=task["id"])["result"])
        wait_for(lambda: "TASK_STATE_COMPLETED" in new.states())
        wait_for(lambda: '"completed"' in json.dumps(listener.got))
        now = {**call, "method": "tasks/get", "params": {"id": task["id"]}}
        assert listener.got[-1][1] == service.http.post("/a2a/rpc", json=now).json()["result"]
    for headers, notified in listener.got:
        assert headers["authorization"] == "Bearer of-the-caller"
        assert headers["x-a2a-notification-token"] == "t"
        assert (OldTask.model_validate(notified).id, notified["kind"]) == (task["id"], "task")
    ended = [notified for _, notified in listener.got if notified["status"]["state"] == "completed"]
    assert len(ended) == 1
    for _, event in new.got:
        ParseDict(event, StreamResponse())
    new.server.shutdown()
    new.server.server_close()


def test_callers_of_0_3_keep_and_delete_an_address(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent, adapter="a2a", push_notifications=True, push_hosts=["127.0.0.1"])
    task_id = Rpc(service).task("delete web")["id"]

    def old(method: str, **params: Any) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "id": 3, "method": method, "params": params}
        answer = service.http.post("/a2a/rpc", json=call, headers={"A2A-Version": "0.3"})
        found: dict[str, Any] = answer.json()
        return found

    method = "tasks/pushNotificationConfig"
    wanted = {"id": "mine", "url": "http://127.0.0.1:9/x"}
    made = old(f"{method}/set", taskId=task_id, pushNotificationConfig=wanted)["result"]
    assert made == {"taskId": task_id, "pushNotificationConfig": wanted}
    assert old(f"{method}/list", id=task_id)["result"] == [made]
    named = {"id": task_id, "pushNotificationConfigId": "mine"}
    for which in (named, {"id": task_id}):
        assert old(f"{method}/get", **which)["result"] == made
    deleted = old(f"{method}/delete", id=task_id, pushNotificationConfigId="mine")
    assert deleted == {"jsonrpc": "2.0", "id": 3, "result": None}
    assert old(f"{method}/list", id=task_id)["result"] == []
    assert old(f"{method}/get", id=task_id)["error"]["code"] == -32001


def test_callers_of_0_3_are_told_that_notifications_are_off(serve: Serve, cluster: Cluster) -> None:
    service = serve(cluster.agent, adapter="a2a")
    call = {"jsonrpc": "2.0", "id": 3, "method": "tasks/pushNotificationConfig/get"}
    headers = {"A2A-Version": "0.3"}
    answer = service.http.post("/a2a/rpc", json={**call, "params": {"id": "t"}}, headers=headers)
    assert answer.json()["error"]["code"] == -32003


def test_redirects_are_not_followed(notified: Service, listener: Listener) -> None:
    target = Listener()
    listener.moved = target.url
    try:
        rpc = Rpc(notified)
        task = rpc.task("delete web")
        rpc(CREATE, taskId=task["id"], url=listener.url)
        _decide(rpc, task)
        wait_for(lambda: "TASK_STATE_COMPLETED" in listener.states())
        assert target.got == []
    finally:
        target.server.shutdown()
        target.server.server_close()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/x",
        "http://localhost/x",
        "http://10.0.0.1/x",
        "http://192.168.1.1/",
        "http://172.16.0.1/",
        "http://100.64.0.1/",
        "http://169.254.169.254/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://[fe80::1]/",
        "http://[fc00::1]/",
        "http://[2002:7f00:1::]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::a00:1]/",
        "http://[64:ff9b:1::a00:1]/",
        "http://[::127.0.0.1]/",
        "http://[2001:0:a00:1::f5ff:fffe]/",
        "http://user:pass@93.184.216.34/",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "//127.0.0.1/x",
        "http://",
        "http://[bad",
        "no address",
        "",
    ],
)
def test_addresses_that_are_not_public_are_refused(serve: Serve, url: str) -> None:
    async def allowed() -> bool:
        return await Screening([]).allows(url)

    assert asyncio.run(allowed()) is False


def test_public_addresses_of_each_kind_are_allowed() -> None:
    async def allowed(url: str) -> bool:
        return await Screening([]).allows(url)

    for host in ("93.184.216.34", "[2606:2800:220:1::1]"):
        assert asyncio.run(allowed(f"http://{host}/")) is True, host


@pytest.mark.parametrize("kept", ["memory", "database"])
def test_credentials_with_a_line_end_are_refused(
    serve: Serve, cluster: Cluster, tmp_path: Path, kept: str
) -> None:
    options: dict[str, Any] = {"push_notifications": True, "push_hosts": ["127.0.0.1"]}
    if kept == "database":
        options["database"] = f"sqlite+aiosqlite:///{tmp_path}/tasks.db"
    rpc = Rpc(serve(cluster.agent, adapter="a2a", **options))
    task = rpc.task("delete web")
    given = {"taskId": task["id"], "url": "http://127.0.0.1:9/"}
    for bad in (
        {"token": "abc\r\nX-Admin: yes"},
        {"authentication": {"scheme": "Bearer", "credentials": "abc\nX-Admin: yes"}},
        {"authentication": {"scheme": "Bearer\r\nX: y", "credentials": "abc"}},
    ):
        assert rpc(CREATE, **given, **bad)["error"]["code"] == -32602
        sent = {"taskPushNotificationConfig": {"url": given["url"], **bad}}
        refused = rpc("SendMessage", message=message("delete db"), configuration=sent)
        assert refused["error"]["code"] == -32602
    assert not rpc("ListTaskPushNotificationConfigs", taskId=task["id"])["result"].get("configs")


def test_refused_address_leaves_nothing_behind(serve: Serve, cluster: Cluster) -> None:
    rpc = Rpc(serve(cluster.agent, adapter="a2a", push_notifications=True))
    task = rpc.task("delete web")
    assert rpc(CREATE, taskId=task["id"], url="http://10.0.0.1/")["error"]["code"] == -32602
    sent = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:9/"}}
    refused = rpc("SendMessage", message=message("delete db"), configuration=sent)
    assert refused["error"]["code"] == -32602
    listed = rpc("ListTaskPushNotificationConfigs", taskId=task["id"])["result"]
    assert not listed.get("configs")
    rpc = Rpc(rpc.service, authorization=f"Bearer {rpc.service.host.start_token}")
    assert len(rpc("ListTasks")["result"]["tasks"]) == 1


def test_name_that_changes_its_address_after_the_check_reaches_nobody(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first lookup of the name returns a public address, each later one this machine's."""
    asked: list[str] = []

    async def use() -> None:
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def rebinding(host: Any, port: Any, **named: Any) -> Any:
            if host != "rebinds.example":
                return await real(host, port, **named)
            asked.append(host)
            address = "93.184.216.34" if len(asked) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(loop, "getaddrinfo", rebinding)
        screening = Screening([])
        url = f"http://rebinds.example:{listener.server.server_port}/told"
        assert await screening.allows(url)
        async with notifying_client(screening) as client:
            with pytest.raises(httpx.ConnectError, match="no public address"):
                await client.post(url, json={})

    asyncio.run(use())
    assert len(asked) == 2
    assert listener.got == []


def test_connection_goes_to_the_address_that_was_screened(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        loop = asyncio.get_running_loop()

        async def resolves(host: Any, port: Any, **named: Any) -> Any:
            assert host in ("hooks.example", "127.0.0.1"), "nobody looks it up once more"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", resolves)

        async def everything(self: Screening, url: str) -> bool:
            return True

        monkeypatch.setattr(Screening, "allows", everything)
        async with notifying_client(Screening([])) as client:
            port = listener.server.server_port
            answer = await client.post(f"http://hooks.example:{port}/told", json={"a": 1})
            assert answer.status_code == 200
            assert listener.got[0][0]["host"] == f"hooks.example:{port}"

    asyncio.run(use())


def test_task_has_a_few_addresses_at_most(notified: Service) -> None:
    rpc = Rpc(notified)
    task_id = rpc.task("delete web")["id"]
    made = [rpc(CREATE, taskId=task_id, id=f"c{n}", url="http://127.0.0.1:9/") for n in range(21)]
    assert ["error" in answer for answer in made] == [False] * 20 + [True]
    assert made[-1]["error"]["code"] == -32602
    changed = rpc(CREATE, taskId=task_id, id="c1", url="http://127.0.0.1:10/")
    assert changed["result"]["url"] == "http://127.0.0.1:10/"


def test_notifications_belong_to_the_principal_of_the_task(
    tmp_path: Path, cluster: Cluster
) -> None:
    options: dict[str, Any] = {"push_notifications": True, "push_hosts": ["127.0.0.1"]}
    base = configured(tmp_path, adapter="a2a", **options).model_dump(exclude_unset=True)
    tokens = {"ann": "token-of-ann", "bob": "token-of-bob"}
    config = Config.model_validate({**base, "auth": {"scheme": "bearer", "tokens": tokens}})
    with running(cluster.agent, config) as service:
        ann, bob = (Rpc(service, authorization=f"Bearer {t}") for t in tokens.values())
        at = {"taskId": ann.task("delete web")["id"]}
        config_of = {**at, "id": "mine", "url": "http://127.0.0.1:9/", "token": "of ann"}
        ann(CREATE, **config_of)
        for answer in (
            bob(CREATE, **at, url="http://127.0.0.1:10/"),
            bob("GetTaskPushNotificationConfig", **at, id="mine"),
            bob("ListTaskPushNotificationConfigs", **at),
            bob("DeleteTaskPushNotificationConfig", **at, id="mine"),
        ):
            assert answer["error"]["code"] == -32001
        # A message of his own that names her task in its address changes nothing of hers.
        sent = {"taskPushNotificationConfig": {**at, "id": "mine", "url": "http://127.0.0.1:11/"}}
        bob("SendMessage", message=message("hello"), configuration=sent)
        listed = ann("ListTaskPushNotificationConfigs", **at)["result"]["configs"]
        assert listed == [config_of]


@pytest.mark.parametrize("given", [None, "of-the-caller"])
def test_notification_is_signed_where_its_address_has_no_credentials(
    tmp_path: Path, cluster: Cluster, listener: Listener, given: str | None
) -> None:
    made = ec.generate_private_key(ec.SECP256R1())
    key = tmp_path / "key.pem"
    key.write_bytes(
        made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    config = configured(
        tmp_path,
        adapter="a2a",
        push_notifications=True,
        push_hosts=["127.0.0.1"],
        signing={"key": str(key), "kid": "k1"},
    )
    wanted: dict[str, Any] = {"url": listener.url}
    if given:
        wanted["authentication"] = {"scheme": "Bearer", "credentials": given}
    with running(cluster.agent, config) as service:
        Rpc(service)(
            "SendMessage",
            message=message("hello"),
            configuration={"taskPushNotificationConfig": wanted},
        )
        wait_for(lambda: "TASK_STATE_COMPLETED" in listener.states())
        published = service.http.get("/.well-known/jwks.json").json()["keys"]
    for headers, body in listener.got:
        token = headers["authorization"].removeprefix("Bearer ")
        if given:
            assert token == given
            continue
        claims = jwt.decode(
            token, jwt.PyJWK.from_dict(published[0]), ["ES256"], audience=listener.url
        )
        sent = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        assert claims["request_body_sha256"] == hashlib.sha256(sent).hexdigest()
        assert {"iat", "exp", "jti"} <= claims.keys()
