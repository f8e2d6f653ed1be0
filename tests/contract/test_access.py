"""Access: authentication, and the origins of pages (issue: who may call; design, section 6, "Web
pages")."""

from __future__ import annotations

import http.client
import json
import logging
from typing import Any

import pytest
from serving import PATHS, Json, Serve, Service, user
from websockets.exceptions import InvalidStatus

from sayso import Busy, Plugin, Unauthenticated, hookimpl

AUTH: dict[str, Any] = {"auth__scheme": "bearer", "auth__tokens": {"ann": "token-ann"}}
ANN = {"Authorization": "Bearer token-ann"}
ROUTES = [path for pair in PATHS.values() for path in pair]
BODY = json.dumps({"messages": [user("x")]})


@pytest.fixture
def guarded(served: Serve) -> Service:
    return served(lambda messages, context: f"hello {context.principal}", **AUTH)


WRONG: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Basic token-ann"},
    {"Authorization": "token-ann"},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer token-ann token-ann"},
    {"Authorization": "Bearer TOKEN-ANN"},
    {"X-Principal": "ann"},
    {"Authorization": "Bearer \xff\xfe"},
]


@pytest.mark.parametrize("headers", WRONG, ids=str)
def test_every_route_asks_for_the_token(guarded: Service, headers: dict[str, str]) -> None:
    for path in ROUTES:
        answer = guarded.request(
            "POST", path, BODY, {"Content-Type": "application/json", **headers}
        )
        assert answer.status == 401, path
        assert answer.headers["www-authenticate"] == "Bearer"
        body = answer.json()
        assert body["code"] == "UNAUTHENTICATED"
        assert isinstance(body["detail"], str)
        assert "token-ann" not in answer.raw.decode()


def test_unknown_paths_tell_nothing_without_a_token(guarded: Service) -> None:
    assert guarded.request("GET", "/nothing").status == 401
    assert guarded.request("GET", "/api/chat").status == 401


def test_health_is_open(guarded: Service) -> None:
    assert guarded.request("GET", "/health").json() == {"status": "ok"}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_token_names_the_principal(guarded: Service, scheme: str) -> None:
    for path in ("v1", "v2"):
        reply = guarded.chat(user("x"), path=path, headers={"Authorization": f"{scheme} token-ann"})
        assert reply["content"] == "hello ann"


@pytest.mark.parametrize("headers", WRONG[:3], ids=str)
def test_websocket_is_refused_before_the_first_frame(
    guarded: Service, headers: dict[str, str]
) -> None:
    with pytest.raises(InvalidStatus) as refused, guarded.ws(additional_headers=headers):
        pass
    assert refused.value.response.status_code == 401


SEVERAL = [
    {"Authorization": "Bearer token-ann", "authorization": "Bearer wrong"},
    {"Authorization": "Bearer wrong", "authorization": "Bearer token-ann"},
    {"Authorization": "", "authorization": "Bearer token-ann"},
    {"Authorization": "Bearer token-ann", "authorization": "Bearer token-ann"},
]


@pytest.mark.parametrize("headers", SEVERAL, ids=str)
def test_request_with_several_credentials_is_refused(
    guarded: Service, headers: dict[str, str]
) -> None:
    for path in ROUTES:
        answer = guarded.request(
            "POST", path, BODY, {"Content-Type": "application/json", **headers}
        )
        assert answer.status == 401, path
        assert "more than one 'Authorization' header" in answer.json()["detail"]
    with pytest.raises(InvalidStatus) as refused, guarded.ws(additional_headers=headers):
        pass
    assert refused.value.response.status_code == 401


def test_hook_never_sees_one_of_several_credentials(served: Serve) -> None:
    class Keys(Plugin):
        name = "keys"

        @hookimpl
        def authenticate(self, headers: Any) -> str:
            return str(headers["authorization"])

    service = served(lambda messages, context: context.principal, [Keys()])
    several = {"Authorization": "ann", "authorization": "bob"}
    assert service.ask(user("x"), headers=several).status == 401
    assert service.chat(user("x"), headers={"Authorization": "ann"})["content"] == "ann"


def test_where_nobody_asks_for_credentials_several_are_as_good_as_none(echo: Service) -> None:
    several = {"Authorization": "ann", "authorization": "bob"}
    assert echo.ask(user("x"), headers=several).status == 200


def test_websocket_with_a_token_has_its_principal(guarded: Service) -> None:
    with guarded.ws(additional_headers=ANN) as ws:
        assert ws.turn({"messages": [user("x")]})[0]["text"] == "hello ann"


def test_tokens_come_from_a_file_and_the_environment(
    served: Serve, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens"
    path.write_text("# names\nbob = token-bob\n")
    path.chmod(0o600)
    service = served(
        lambda messages, context: context.principal,
        auth__scheme="bearer",
        auth__tokens_file=str(path),
    )
    reply = service.chat(user("x"), headers={"Authorization": "Bearer token-bob"})
    assert reply["content"] == "bob"


def test_hook_of_a_plugin_authenticates(served: Serve) -> None:
    class Keys(Plugin):
        name = "keys"

        @hookimpl
        async def authenticate(self, headers: dict[str, str]) -> str | None:
            if headers.get("x-key") == "bad":
                raise Unauthenticated("this key is revoked")
            return {"k1": "ann"}.get(headers.get("x-key", ""))

    service = served(lambda messages, context: context.principal, [Keys()])
    assert service.chat(user("x"), headers={"X-Key": "k1"})["content"] == "ann"
    assert service.ask(user("x")).status == 401
    answer = service.ask(user("x"), headers={"X-Key": "bad"})
    assert (answer.status, answer.json()["detail"]) == (401, "this key is revoked")


def test_caller_who_cannot_be_named_now_is_told_when_to_ask_again(served: Serve) -> None:
    class Away(Plugin):
        name = "away"

        @hookimpl
        def authenticate(self, headers: dict[str, str]) -> str | None:
            raise Busy("the directory does not answer")

    service = served(lambda messages, context: "in", [Away()])
    answer = service.ask(user("x"))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"detail": "the directory does not answer", "code": "BUSY"}
    with pytest.raises(InvalidStatus) as refused, service.ws():
        pass
    assert refused.value.response.headers["retry-after"] == "1"


@pytest.mark.parametrize("debug", [False, True])
def test_the_token_in_the_error_of_a_failing_hook_is_told_nowhere(
    served: Serve, caplog: pytest.LogCaptureFixture, debug: bool
) -> None:
    class Names(Plugin):
        name = "names"

        @hookimpl
        def authenticate(self, headers: dict[str, str]) -> str:
            names: dict[str, str] = {}
            return names[headers["authorization"].removeprefix("Bearer ")]

    service = served(lambda messages, context: "hi", [Names()], server__debug=debug)
    with caplog.at_level(logging.DEBUG):
        answer = service.ask(user("x"), headers={"Authorization": "Bearer tok-of-a-caller"})
    assert answer.status == 500
    assert "KeyError: '[secret]'" in caplog.text
    assert "tok-of-a-caller" not in caplog.text + answer.raw.decode()


def test_failing_hook_lets_nobody_in(served: Serve, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Plugin):
        name = "broken"

        @hookimpl
        def authenticate(self, headers: dict[str, str]) -> str | None:
            raise KeyError("SECRET")

    service = served(lambda messages, context: "in", [Broken()])
    answer = service.ask(user("x"))
    assert answer.status == 500
    assert "SECRET" not in answer.raw.decode()
    assert f"incident {answer.json()['incident']}: AGENT_ERROR" in caplog.text
    with pytest.raises(InvalidStatus), service.ws():
        pass


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil.example"],
)
def test_foreign_origin_cannot_open_a_websocket(echo: Service, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused, echo.ws(origin=origin):
        pass
    assert refused.value.response.status_code == 403


def test_own_and_configured_origins_can(served: Serve, echo: Service) -> None:
    with echo.ws(origin=f"http://127.0.0.1:{echo.port}") as ws:
        assert ws.turn({"messages": [user("x")]})[-1]["type"] == "done"
    service = served(lambda m, c: "ok", server__cors_origins=["https://desk.example"])
    with service.ws(origin="https://desk.example") as ws:
        assert ws.turn({"messages": [user("x")]})[-1]["type"] == "done"
    with pytest.raises(InvalidStatus), service.ws(origin="https://evil.example"):
        pass


@pytest.fixture
def local(served: Serve) -> Service:
    return served(
        lambda messages, context: "ok",
        server__host="127.0.0.1",
        server__hosts=["desk.test", "Full.Test.", "[fd00::1]", "fd00::2", "at.test:8000"],
    )


def by_host(service: Service, host: str, path: str = "/api/chat") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    headers: Json = {"Host": host, "Content-Type": "application/json"}
    connection.request("POST" if path != "/health" else "GET", path, BODY, headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "169.254.169.254",
        "0.0.0.0",
        "localhost.evil.example",
        "localhost..",
        "[::2]",
        "[::ffff:10.0.0.1]",
        "at.test",
        "a.desk.test",
    ],
)
def test_foreign_host_on_loopback_is_421(local: Service, host: str) -> None:
    for path in ROUTES:
        assert by_host(local, host, path) == 421
    with pytest.raises(InvalidStatus) as refused, local.ws(additional_headers={"Host": host}):
        pass
    assert refused.value.response.status_code in (421, 400)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1:9",
        "127.1.2.3",
        "[::1]",
        "[::1]:8000",
        "desk.test",
        "Desk.Test:8000",
        "app.localhost",
        "localhost.",
        "localhost.:8000",
        "desk.test.",
        "[::ffff:127.0.0.1]:8000",
        "full.test:8000",
        "full.test.",
        "[fd00::1]:8000",
        "[FD00::2]",
        "at.test:8000",
    ],
)
def test_loopback_and_configured_hosts_are_served(local: Service, host: str) -> None:
    assert by_host(local, host) == 200


def test_any_host_is_served_on_a_public_bind(echo: Service) -> None:
    assert by_host(echo, "chat.example.org") == 200


def test_cors_is_off_unless_configured(served: Serve, echo: Service) -> None:
    headers = {
        "Origin": "https://desk.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    assert (
        "access-control-allow-origin"
        not in echo.request("OPTIONS", "/api/chat", headers=headers).headers
    )
    service = served(lambda m, c: "ok", server__cors_origins=["https://desk.example"], **AUTH)
    answer = service.request("OPTIONS", "/api/chat", headers=headers)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://desk.example"
    got = service.request(
        "POST",
        "/api/chat",
        BODY,
        {"Origin": "https://desk.example", "Content-Type": "application/json"},
    )
    assert got.status == 401
    assert got.headers["access-control-allow-origin"] == "https://desk.example"
