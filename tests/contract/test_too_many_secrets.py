"""A platform context with too many secrets is refused, and delays nobody."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest
from serving import PATHS, Json, Serve, user

from sayso import RequestContext
from sayso.wire import messages as wire

MANY = {"aws_credentials": {"keys": [f"key-{n}-{n * 7919:08x}" for n in range(100_000)]}}
CONFIG = "".join(f"- name: u{n}\n  user:\n    token: token-of-{n:08}\n" for n in range(1000))
IN_KUBECONFIG = {"kubeconfig": base64.b64encode(CONFIG.encode()).decode()}
LONG = {"aws_credentials": {"key": "k" * (2**20 + 1)}}
REFUSED = {
    "credentials": (MANY, "more than 1000 secret values"),
    "kubeconfig": (IN_KUBECONFIG, "more than 1000 secret values"),
    "long": (LONG, "more than 1048576 bytes of secret values"),
}


def asked(platform: Json) -> Json:
    return user("go", platform_context=platform)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", REFUSED)
def test_more_secrets_than_are_masked_are_refused(served: Serve, path: str, kind: str) -> None:
    service = served(lambda messages, context: "fine")
    platform, words = REFUSED[kind]
    answer = service.ask(asked(platform), path=path)
    assert answer.types == {"too_many_secrets"} and words in answer.items[0]["msg"]
    assert b"key-1" not in answer.raw and b"token-of" not in answer.raw
    [event] = service.stream(asked(platform), path=path)
    assert event["type"] == "error" and words in json.dumps(event)


def test_more_secrets_than_are_masked_are_refused_on_a_web_socket(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__secrets=3)
    platform = {"platform_token": "tok-12345", "aws_credentials": {"keys": ["a1", "b2", "c3"]}}
    with service.ws() as socket:
        [event] = socket.turn({"messages": [asked(platform)]})
    assert event["type"] == "error" and "limits.secrets" in json.dumps(event)


def test_equal_secrets_count_once(served: Serve) -> None:
    service = served(lambda messages, context: "fine", limits__secrets=3)
    keys = {"keys": ["key-1", "key-2"] * 50}
    assert service.chat(asked({"aws_credentials": keys, "platform_token": "t"}))["content"]


def test_to_look_for_the_secrets_of_one_request_delays_no_other(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, go_on = threading.Event(), threading.Event()
    find = wire.in_credentials

    def slow(value: Any) -> Any:
        if value:
            looking.set()
            assert go_on.wait(60)
        return find(value)

    monkeypatch.setattr(wire, "in_credentials", slow)
    service = served(lambda messages, context: "fine")
    replies: list[Json] = []
    first = threading.Thread(
        target=lambda: replies.append(service.chat(asked({"aws_credentials": {"key": "abcdef"}})))
    )
    first.start()
    assert looking.wait(60)
    assert service.chat(user("go"))["content"] == "fine"
    assert not replies
    go_on.set()
    first.join()
    assert replies


def test_the_forms_of_a_secret_are_made_once_for_a_request(
    served: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[None] = []
    of = wire.Secrets.of

    def counted(values: Any) -> wire.Secrets:
        made.append(None)
        return of(values)

    monkeypatch.setattr(wire.Secrets, "of", counted)

    def answer(messages: Any, context: RequestContext) -> str:
        key = (context.platform.aws_credentials or {})["key"]
        for _ in range(3):
            context.update(f"with {base64.b64encode(key.encode()).decode()}")
        return f"used {key.encode().hex()}"

    service = served(answer)
    platform = {"aws_credentials": {"key": "abc/def+ghi"}}
    first = user("go", platform_context=platform)
    events = service.stream(first, {"role": "assistant", "content": "so"}, asked(platform))
    assert "abc/def" not in json.dumps(events)
    assert len(made) == 1
