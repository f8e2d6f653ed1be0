"""The cards of the official protocol, as clients of 1.0 and of 0.3 read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
from a2a.client import A2ACardResolver
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from a2a_kit import conforms
from a2a_services import (
    V1,
    Cluster,
    Rpc,
    Serve,
    Service,
    bearer,
    configured,
    proposals,
    running,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWK
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from sayso import Agent, SourceHost, StartupError, Tool, create_app, tool
from sayso_a2a.official.card import EXTENSION

PATH = "/.well-known/agent-card.json"


@pytest.fixture
def service(serve: Serve, cluster: Cluster) -> Service:
    """The cluster's agent over the official protocol."""
    return serve(cluster.agent, adapter="a2a")


def test_card_names_both_bindings_and_the_tools(service: Service) -> None:
    card = service.http.get(PATH).json()
    assert [
        (i["protocolBinding"], i["protocolVersion"], i["url"]) for i in card["supportedInterfaces"]
    ] == [
        ("JSONRPC", "1.0", f"{service.url}/a2a/rpc"),
        ("HTTP+JSON", "1.0", f"{service.url}/a2a/rest"),
        ("JSONRPC", "0.3", f"{service.url}/a2a/rpc"),
        ("HTTP+JSON", "0.3", f"{service.url}/a2a/rest"),
    ]
    assert [(skill["id"], skill["tags"]) for skill in card["skills"]] == [
        ("list_pods", ["tool"]),
        ("delete_pod", ["tool", "requires-approval"]),
        ("hold", ["tool"]),
    ]
    assert card["capabilities"]["streaming"] is True
    assert not card["capabilities"].get("pushNotifications")
    assert service.http.get("/.well-known/agent.json").status_code == 404


@pytest.mark.parametrize("version", [None, "0.3"])
def test_card_is_read_by_clients_of_0_3_which_state_no_version(
    service: Service, version: str | None
) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    card = service.http.get(PATH, headers=headers).json()
    assert (card["url"], card["preferredTransport"]) == (f"{service.url}/a2a/rpc", "JSONRPC")
    assert card["protocolVersion"].startswith("0.3")
    assert card["supportedInterfaces"][0]["protocolVersion"] == "1.0"


def test_card_has_the_fields_of_1_0_only_for_those_who_state_it(service: Service) -> None:
    reported = service.http.get(PATH, headers=V1)
    conforms(AgentCard, reported.json())
    assert "A2A-Version" in reported.headers["vary"]
    assert reported.headers["etag"] != service.http.get(PATH).headers["etag"]


def test_capability_that_is_overridden_leaves_the_others(serve: Serve, cluster: Cluster) -> None:
    extra = {"uri": "https://example.com/extra"}
    card = {"capabilities": {"pushNotifications": True, "extensions": [extra]}}
    service = serve(cluster.agent, adapter="a2a", agent_card=card)
    stated = service.http.get(PATH, headers=V1).json()["capabilities"]
    assert stated["streaming"] is True
    assert stated["pushNotifications"] is True
    assert [each["uri"] for each in stated["extensions"]] == [extra["uri"], EXTENSION]


@pytest.mark.parametrize("approvals", ["client", "inbox", "deny"])
def test_form_of_proposals_is_an_extension_that_the_card_declares(
    serve: Serve, cluster: Cluster, approvals: str
) -> None:
    service = serve(cluster.agent, adapter="a2a", approvals=approvals)
    card = service.http.get(PATH, headers=V1).json()
    declared = card["capabilities"].get("extensions", [])
    skills = [skill["id"] for skill in card["skills"]]
    if approvals == "deny":
        assert (declared, skills) == ([], ["list_pods", "hold"])
        return
    (extension,) = declared
    assert extension["uri"] == EXTENSION
    assert not extension.get("required")
    assert ("decision" in extension["params"]) is (approvals == "client")
    (call,) = proposals(Rpc(service).task("delete web"))
    jsonschema_rs.validate(extension["params"]["proposal"], call)
    assert "delete_pod" in skills


def test_card_is_cached_by_its_headers(service: Service) -> None:
    first = service.http.get(PATH)
    assert "max-age=" in first.headers["cache-control"]
    for header, value in (
        ("if-none-match", first.headers["etag"]),
        ("if-modified-since", first.headers["last-modified"]),
    ):
        again = service.http.get(PATH, headers={header: value})
        assert (again.status_code, again.content) == (304, b"")
    other = {"if-none-match": '"other"'}
    assert service.http.get(PATH, headers=other).status_code == 200


def test_cards_name_the_tools_that_came_after_the_start(serve: Serve) -> None:
    @tool
    def weather() -> str:
        """Tell the weather."""
        return "dry"

    @tool
    def tides() -> str:
        """Tell the tides."""
        return "low"

    class Late:
        """Tools that are known once it is open, and others later."""

        known: Sequence[Tool] = ()

        async def open(self, host: SourceHost, changed: Callable[[], None]) -> None:
            self.known, self.changed = [weather], changed

        def tools(self) -> Sequence[Tool]:
            return self.known

        async def close(self) -> None:
            pass

    def skills(card: Any) -> list[str]:
        return [skill["id"] for skill in card["skills"]]

    late, more = Late(), {"description": "For those who may know"}
    agent = Agent(model="offline", tools=[late])
    service = serve(agent, adapter="a2a", guarded=True, extended_card=more)
    first = service.http.get(PATH)
    assert skills(first.json()) == ["weather"]
    late.known = [weather, tides]
    late.changed()
    tag = {"if-none-match": first.headers["etag"]}
    assert skills(service.http.get(PATH, headers=tag).json()) == ["weather", "tides"]
    extended = Rpc(service, **bearer("ann"))("GetExtendedAgentCard")["result"]
    assert skills(extended) == ["weather", "tides"]
    assert extended["description"] == more["description"]


def test_extended_card_is_for_authenticated_callers(tmp_path: Path, cluster: Cluster) -> None:
    more = {"description": "Looks after the secret cluster"}
    config = configured(tmp_path, guarded=True, adapter="a2a", extended_card=more)
    with running(cluster.agent, config) as service:
        public = service.http.get(PATH).json()
        assert public["capabilities"]["extendedAgentCard"] is True
        assert public["description"] == "Looks after a cluster"
        card = Rpc(service, authorization="Bearer token-of-ann")("GetExtendedAgentCard")["result"]
        assert card["description"] == more["description"]
        assert card["supportedInterfaces"][0]["url"] == f"{service.url}/a2a/rpc"
        path = "/a2a/rest/extendedAgentCard"
        assert service.http.get(path, headers=V1).status_code == 401
        reported = service.http.get(path, headers={**V1, "authorization": "Bearer token-of-ann"})
        assert reported.json()["supportedInterfaces"] == card["supportedInterfaces"]


def test_each_card_of_a_service_in_a_mount_names_the_mount(
    tmp_path: Path, cluster: Cluster
) -> None:
    more = {"description": "More"}
    config = configured(tmp_path, guarded=True, adapter="a2a", extended_card=more)
    outer = Starlette(routes=[Mount("/kube", create_app(cluster.agent, config=config))])
    client = TestClient(outer, base_url="http://127.0.0.1", headers=V1 | bearer("ann"))
    expected = client.get(f"/kube{PATH}").json()["supportedInterfaces"]
    assert expected[0]["url"] == "http://127.0.0.1/kube/a2a/rpc"
    for path in ("extendedAgentCard", "tenant/extendedAgentCard"):
        card = client.get(f"/kube/a2a/rest/{path}").json()
        assert card["supportedInterfaces"] == expected
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard", "params": {}}
    card = client.post("/kube/a2a/rpc", json=call).json()["result"]
    assert card["supportedInterfaces"] == expected


@pytest.fixture(params=["ec", "rsa", "ed25519"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    """A private key in a file, and its public one."""
    made: Any = {
        "ec": lambda: ec.generate_private_key(ec.SECP256R1()),
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "ed25519": ed25519.Ed25519PrivateKey.generate,
    }[request.param]()
    pem = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "card.pem").write_bytes(pem)
    return tmp_path / "card.pem", made.public_key()


@pytest.mark.parametrize("version", [None, "1.0"])
def test_signed_card_is_verified_by_the_client_of_the_sdk(
    tmp_path: Path, cluster: Cluster, keys: tuple[Path, Any], version: str | None
) -> None:
    signing = {"key": str(keys[0]), "kid": "k1"}
    config = configured(tmp_path, guarded=True, adapter="a2a", signing=signing)
    asked: list[str | None] = []

    def key_of(kid: str | None, jku: str | None) -> Any:
        asked.append(jku)
        published = httpx.get(str(jku)).json()["keys"]
        return PyJWK.from_dict(next(key for key in published if key["kid"] == kid))

    verify = create_signature_verifier(key_of, ["ES256", "RS256", "EdDSA"])

    async def use(url: str) -> AgentCard:
        headers = {} if version is None else {"A2A-Version": version}
        async with httpx.AsyncClient(headers=headers) as http:
            return await A2ACardResolver(http, url).get_agent_card(signature_verifier=verify)

    with running(cluster.agent, config) as service:
        card = asyncio.run(use(service.url))
        assert asked == [f"{service.url}/.well-known/jwks.json"]
        card.description = "Another one"
        with pytest.raises(InvalidSignaturesError):
            verify(card)
        # Most signatures differ each time; copies of clients must stay valid.
        tags = {service.http.get(PATH).headers["etag"] for _ in range(2)}
        assert len(tags) == 1


@pytest.mark.parametrize("content", [None, "no key"])
def test_key_that_cannot_sign_stops_the_start(
    tmp_path: Path, cluster: Cluster, content: str | None
) -> None:
    file = tmp_path / "card.pem"
    if content is not None:
        file.write_text(content)
    config = configured(tmp_path, adapter="a2a", signing={"key": str(file), "kid": "k1"})
    with pytest.raises(StartupError, match=r"plugin\.a2a\.signing\.key: .* no private key"):
        create_app(cluster.agent, config=config)
