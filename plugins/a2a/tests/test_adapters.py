"""The adapter that serves, its address and its card."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a2a.types import AgentCard
from a2a_services import Cluster, Rpc, Serve, configured
from fastapi import APIRouter
from pydantic import BaseModel

from sayso import Config, Plugin, RequestContext, StartupError, create_app, hookimpl
from sayso_a2a import A2A


def routes(agent: object, tmp_path: Path, **a2a: Any) -> set[str]:
    app = create_app(agent, config=configured(tmp_path, **a2a))
    (info,) = [i for i in app.host.plugins.info(app.host) if i.name == "a2a"]
    return set(info.routes)


def test_each_adapter_has_its_routes(tmp_path: Path, cluster: Cluster) -> None:
    simple = {
        "GET /.well-known/agent.json",
        "HEAD /.well-known/agent.json",
        "POST /a2a/tasks/send",
        "GET /a2a/tasks/{id}",
        "HEAD /a2a/tasks/{id}",
        "POST /a2a/tasks/{id}/cancel",
    }
    official = {
        "GET /.well-known/agent-card.json",
        "HEAD /.well-known/agent-card.json",
        "POST /a2a/rpc",
        "POST /a2a/rpc/",
        "* /a2a/rest/{path:path}",
    }
    assert routes(cluster.agent, tmp_path) == simple
    assert routes(cluster.agent, tmp_path, adapter="a2a") == official
    assert routes(cluster.agent, tmp_path, adapter="both") == simple | official


def test_both_serve_side_by_side(serve: Serve, cluster: Cluster) -> None:
    class Late(Plugin):
        """A plugin whose routes are registered after the others."""

        name = "zlate"

        @hookimpl
        def register_routes(self) -> APIRouter:
            router = APIRouter()
            router.add_api_route("/one/two/three", lambda: "late")
            return router

    service = serve(cluster.agent, adapter="both", app={"plugins": [Late()]})
    assert service.send("hello")["text"] == "You said: hello"
    assert Rpc(service).task("hello")["status"]["state"] == "TASK_STATE_COMPLETED"
    cards = [
        service.http.get(f"/.well-known/{name}.json").json() for name in ("agent", "agent-card")
    ]
    assert cards[0]["skills"][0] == "list_pods"
    assert cards[1]["skills"][0]["id"] == "list_pods"
    assert service.http.get("/one/two/three").json() == "late"
    assert service.http.get("/health").json() == {"status": "ok"}
    message = {"role": "user", "content": "x"}
    assert service.http.post("/api/chat", json={"messages": [message]}).status_code == 200
    assert service.http.get("/nobody/knows").status_code == 404


@pytest.mark.parametrize(
    "reply",
    [
        {"content": "half \ud83d"},
        {"content": "x", "meta_data": {"half \ud83d": object()}},
        {"content": "x", "data": {"session": {"a": float("nan")}, "extra": {1j}}},
        {"content": "x", "data": {"session": {"a": 10**400}, "extra": 10**5000, "wide": 10**400}},
        {"data": {"tool_calls": [{"id": "1", "name": "n", "input": {}, "intent": "half \ud83d"}]}},
    ],
    ids=["text", "meta_data", "data", "integers", "proposal"],
)
def test_reply_that_no_json_holds_is_told_as_on_v2(serve: Serve, reply: dict[str, Any]) -> None:
    def agent(messages: Any, context: RequestContext) -> Iterator[Any]:
        context.update("half \udcff")
        yield "half \ud83d"
        yield reply

    service = serve(agent, adapter="both")
    body = {"messages": [{"role": "user", "content": "x"}]}
    text = service.http.post("/api/chat", json=body).json()["content"]
    task = service.send("x")
    assert task["text"] == text
    assert task["status"] == (
        "input-required" if "tool_calls" in reply.get("data", {}) else "completed"
    )
    official = Rpc(service).task("x")
    waits = official["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    reported = official["status"]["message"] if waits else official["artifacts"][-1]
    assert reported["parts"][0] == {"text": text}


def test_endpoints_are_there_only_when_switched_on(tmp_path: Path, cluster: Cluster) -> None:
    config = Config.model_validate(
        {
            "server": {"state_dir": tmp_path},
            "approvals": {"ledger": "memory://"},
        }
    )
    off = create_app(cluster.agent, config=config)
    assert "a2a" not in off.host.plugins.names
    on = create_app(cluster.agent, config=config, a2a=True, a2a_adapter="both")
    assert "a2a" in on.host.plugins.names
    plugin = on.host.plugins.get("a2a")
    assert isinstance(plugin, A2A)
    assert plugin.settings.adapter == "both"


def test_unknown_adapter_stops_the_start(tmp_path: Path, cluster: Cluster) -> None:
    with pytest.raises(StartupError, match=r"no A2A adapter 'grpc'; there are: a2a, both, simple"):
        create_app(cluster.agent, config=configured(tmp_path, adapter="grpc"))


@pytest.mark.parametrize("address", ["tasks.db", "nosuch+driver://db/x", "sqlite:///tasks.db"])
def test_wrong_address_of_the_database_names_the_setting_and_a_right_one(
    tmp_path: Path, cluster: Cluster, address: str
) -> None:
    expected = r"plugin\.a2a\.database .*such as 'postgresql\+asyncpg://db/sayso'"
    with pytest.raises(StartupError, match=expected):
        routes(cluster.agent, tmp_path, adapter="a2a", database=address)


def test_address_of_the_database_with_a_password_that_was_not_quoted_is_refused_without_it(
    tmp_path: Path, cluster: Cluster
) -> None:
    address = "sqlite+aiosqlite://me:pass@word:-1@db/x"
    with pytest.raises(StartupError, match=r"plugin\.a2a\.database .*as %XX") as caught:
        routes(cluster.agent, tmp_path, adapter="a2a", database=address)
    assert "-1@db" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"url": "agents.example"}, r"plugin\.a2a\.url.*https"),
        ({"url": "https://agents.example/?x"}, r"plugin\.a2a\.url.*https"),
        ({"push_hosts": ["http://hooks.example"]}, r"plugin\.a2a\.push_hosts.*'hooks\.example'"),
        ({"push_hosts": ["127.0.0.1:9"]}, r"plugin\.a2a\.push_hosts.*without a port"),
        ({"extended_card": {}}, r"plugin\.a2a\.extended_card .*set \[auth\]"),
        ({"guarded": True, "extended_card": {"name": 3}}, "the agent card is wrong: .*name"),
        ({"approvals": "console"}, r"plugin\.a2a\.approvals.*'client', 'inbox' or 'deny'"),
    ],
)
def test_wrong_setting_stops_the_start(
    tmp_path: Path, cluster: Cluster, settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(StartupError, match=expected):
        routes(cluster.agent, tmp_path, adapter="a2a", **settings)


PIGEON = """
from contextlib import nullcontext
from fastapi import APIRouter

class Pigeon:
    def __init__(self, host, settings):
        self.loft = settings.options["loft"]

    def router(self):
        router = APIRouter()
        router.add_api_route("/pigeons", lambda: self.loft)
        return router

    def lifespan(self):
        return nullcontext()
"""


def test_adapter_of_another_distribution_is_found_by_its_entry_point(
    serve: Serve, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "pigeon_adapter-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "pigeon_adapter.py").write_text(PIGEON)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-adapter\nVersion: 1.0\n")
    entry = "[sayso.a2a_adapters]\npigeon = pigeon_adapter:Pigeon\n"
    (info / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(site))
    service = serve(cluster.agent, adapter="pigeon", options={"loft": "north"})
    assert service.http.get("/pigeons").json() == "north"


def test_simple_adapter_imports_no_sdk() -> None:
    code = (
        "import sys, sayso_a2a; from sayso_a2a.simple import Simple; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert not {"a2a", "google", "httpx"} & set(done.stdout.split())


class Card(BaseModel):
    """A card as a model."""

    name: str = "Custom"
    description: str | None = None


@dataclasses.dataclass
class PlainCard:
    """A card as a dataclass."""

    name: str = "Custom"


@pytest.mark.parametrize(
    "card",
    [
        {"name": "Custom"},
        Card(),
        PlainCard(),
        AgentCard(name="Custom"),
    ],
    ids=["dict", "model", "dataclass", "protobuf"],
)
def test_custom_card_stands_in_both_cards(serve: Serve, cluster: Cluster, card: object) -> None:
    service = serve(cluster.agent, adapter="both", app={"a2a_agent_card": card})
    for name in ("agent", "agent-card"):
        shown = service.http.get(f"/.well-known/{name}.json").json()
        assert (shown["name"], shown["description"]) == ("Custom", "Looks after a cluster")


def test_card_of_the_configuration_is_served(serve: Serve, cluster: Cluster) -> None:
    card = {"name": "Configured", "skills": ["one"], "version": "7", "x": 1}
    service = serve(cluster.agent, adapter="both", agent_card=card)
    assert service.http.get("/.well-known/agent.json").json()["x"] == 1
    official = service.http.get("/.well-known/agent-card.json").json()
    assert (official["name"], official["version"]) == ("Configured", "7")
    assert official["skills"] == [
        {"id": "one", "name": "one", "description": "one", "tags": ["tool"]}
    ]


def test_what_is_no_card_stops_the_start(tmp_path: Path, cluster: Cluster) -> None:
    with pytest.raises(StartupError, match="a2a_agent_card is int"):
        create_app(cluster.agent, config=configured(tmp_path), a2a_agent_card=7)
    wrong = {"name": {"first": "x"}}
    with pytest.raises(StartupError, match="the agent card is wrong"):
        create_app(cluster.agent, config=configured(tmp_path, adapter="a2a", agent_card=wrong))


FORWARDED = {
    "x-forwarded-proto": "https, http",
    "x-forwarded-host": "agents.example, inner",
    "x-forwarded-prefix": "/desk",
}


def card_url(serve: Serve, cluster: Cluster, headers: dict[str, str], **a2a: Any) -> str:
    service = serve(cluster.agent, **a2a)
    url: str = service.http.get("/.well-known/agent.json", headers=headers).json()["url"]
    return url.replace(service.url, "SELF")


def test_url_of_the_card_is_the_configured_one(serve: Serve, cluster: Cluster) -> None:
    url = "https://public.example/desk/"
    shown = card_url(serve, cluster, FORWARDED, url=url, trust_forwarded=True)
    assert shown == "https://public.example/desk"


def test_forwarded_headers_count_only_when_trusted(serve: Serve, cluster: Cluster) -> None:
    assert card_url(serve, cluster, FORWARDED) == "SELF"
    trusted = card_url(serve, cluster, FORWARDED, trust_forwarded=True)
    assert trusted == "https://agents.example/desk"


@pytest.mark.parametrize("host", ["a b", "x/../y", "<script>", "h:99999999"])
def test_forwarded_nonsense_is_not_repeated(serve: Serve, cluster: Cluster, host: str) -> None:
    headers = {"x-forwarded-host": host, "x-forwarded-prefix": "//evil", "x-forwarded-proto": "x"}
    shown = card_url(serve, cluster, headers, trust_forwarded=True)
    assert shown == "SELF"
