"""An approval is bound to the account that the credentials are of (design, section 6, "The deed":
"Context")."""

from __future__ import annotations

from typing import Any

import pytest
from agents import scripted
from serving import Json, Serve, approved, said, user

from sayso import Agent, Call, RequestContext, tool
from sayso.decisions import deed
from sayso.wire.messages import PlatformContext

KEYS = {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": "wJalrXUtn-K7MDENG"}
ROLE = "arn:aws:iam::123456789012:role/{}"
ACCOUNTS = [
    ("role_arn", ROLE.format("admin"), ROLE.format("reader")),
    ("role", "administrator", "restricted"),
    ("account_id", "123456789012", "210987654321"),
    ("AccountId", "production-1", "production-2"),
    ("endpoint_url", "https://s3.example.com", "https://s3.example.org"),
    ("endpoint_url", "https://one:password@s3.example.com", "https://one:password@evil.example"),
    ("region", "EU-CENTRAL-1", "US-EAST-1"),
]
EVERY = pytest.mark.parametrize(("name", "one", "other"), ACCOUNTS)


def place(name: str, value: str, **platform: Any) -> Json:
    return deed.place(PlatformContext(aws_credentials={**KEYS, name: value}, **platform))


@EVERY
def test_credentials_of_another_account_are_another_place(name: str, one: str, other: str) -> None:
    assert deed.differs(place(name, one), place(name, other))
    assert not deed.differs(place(name, one), place(name, one))
    assert "password" not in str(place(name, one))


@pytest.mark.parametrize("at", [0, 2, 4])
def test_approver_is_shown_the_account(at: int) -> None:
    name, one, _ = ACCOUNTS[at]
    assert [*place(name, one)["aws_credentials"].values()] == [one]


def test_namespace_that_is_a_secret_is_bound_and_not_shown() -> None:
    one, other = (
        place("profile", word, k8s_namespace=word) for word in ("production", "testing-1")
    )
    assert deed.differs(one, other) == ["k8s_namespace"]
    assert "production" not in str(one)


def looking(got: list[Any]) -> Agent:
    @tool(requires_approval=True)
    def look(context: RequestContext) -> str:
        """Look."""
        got.append(context.platform.aws_credentials)
        return "looked"

    return scripted([[Call("1", "look", {})], "done"], [look])[0]


@EVERY
def test_call_for_one_account_does_not_run_in_another(
    served: Serve, name: str, one: str, other: str
) -> None:
    got: list[Any] = []
    service = served(looking(got))
    first = user("go", platform_context={"aws_credentials": {**KEYS, name: one}})
    reply = service.chat(first)
    calls = {"tool_calls": [approved(call) for call in reply["data"]["tool_calls"]]}
    there = {"aws_credentials": {**KEYS, name: other}}
    answer = service.ask(first, said(reply), user("", data=calls, platform_context=there))
    assert (answer.types, got) == ({"approval_context_changed"}, [])
    assert service.chat(first, said(reply), user("", data=calls))["content"] == "done"
    assert got == [{**KEYS, name: one}]


def test_account_that_was_not_recorded_is_waited_for(served: Serve) -> None:
    got: list[Any] = []
    service = served(looking(got))
    there = {"aws_credentials": {**KEYS, "role": "administrator"}}
    reply = service.chat(user("go", platform_context=there))
    calls = {"tool_calls": [approved(call) for call in reply["data"]["tool_calls"]]}
    bare = user("", data=calls, platform_context={"aws_credentials": KEYS})
    waits = service.chat(user("go"), said(reply), bare)
    assert ("aws_credentials.role" in waits["content"], got) == (True, [])
    again = user("", data=calls, platform_context=there)
    assert service.chat(user("go"), said(reply), again)["content"] == "done"
    assert got == [there["aws_credentials"]]
