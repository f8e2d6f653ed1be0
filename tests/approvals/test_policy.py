"""`[[approvals.rules]]`: which calls need approval (issue: approvals, "Policy")."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NotRequired

import pytest
from agents import scripted, suggest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_serializer,
)
from pydantic.alias_generators import to_camel
from serving import Json, Serve, approved, said, until, user
from typing_extensions import TypedDict

from sayso import Call, ConfigError, LocalShell, Tool, cli, tool
from sayso.config.approvals import ApprovalRule
from sayso.models import Result
from sayso.policy import Policy
from sayso.wire.messages import PlatformContext

CLOSED = {"additionalProperties": False}
AGENT = '''
from sayso import Agent, tool

@tool(requires_approval=True)
def delete_pod(name: str, namespace: str = "default") -> str:
    """Delete a pod."""
    return "gone"

@tool
def list_pods(namespace: str = "default") -> str:
    """List pods."""
    return "none"

agent = Agent(tools=[delete_pod, list_pods])
'''
RULES = """
agent = "pods.py:agent"
[approvals]
ledger = "sqlite:///approvals.db"
[[approvals.rules]]
tool = "delete_*"
arguments = { namespace = "prod*" }
action = "deny"
[[approvals.rules]]
tool = "delete_pod"
arguments = { namespace = "scratch" }
platform = { tenant_name = "acme" }
action = "allow"
[[approvals.rules]]
tool = "list_pods"
platform = { team = "guests" }
action = "require"
"""
CASES = """
[[case]]
tool = "delete_pod"
arguments = { name = "a", namespace = "production" }
platform = { tenant_name = "acme" }
expect = "deny"
[[case]]
tool = "delete_pod"
arguments = { name = "a", namespace = "scratch" }
platform = { tenant_name = "acme" }
expect = "allow"
[[case]]
tool = "delete_pod"
arguments = { name = "a", namespace = "scratch" }
expect = "require"
[[case]]
tool = "list_pods"
platform = { team = "guests" }
expect = "require"
[[case]]
tool = "list_pods"
platform = { team = "staff" }
expect = "allow"
"""


def rules(*given: Json) -> Policy:
    return Policy([ApprovalRule(**rule) for rule in given])


@tool(requires_approval=True)
def gated(name: str, count: int = 0) -> str:
    """A gated tool."""
    return name


@tool
def open_(name: str = "") -> str:
    """An open tool."""
    return name


@pytest.mark.parametrize(
    ("rule", "input", "verdict"),
    [
        ({"tool": "other", "action": "allow"}, {"name": "a"}, "require"),
        ({"tool": "gat*", "action": "allow"}, {"name": "a"}, "allow"),
        ({"tool": "GATED", "action": "allow"}, {"name": "a"}, "require"),
        ({"arguments": {"name": "a*"}, "action": "deny"}, {"name": "abc"}, "deny"),
        ({"arguments": {"name": "a*"}, "action": "deny"}, {"name": "b"}, "require"),
        ({"arguments": {"count": 1}, "action": "allow"}, {"name": "a", "count": 1.0}, "allow"),
        ({"arguments": {"count": 1}, "action": "allow"}, {"name": "a", "count": True}, "require"),
        ({"arguments": {"count": "*"}, "action": "allow"}, {"name": "a", "count": 1}, "require"),
        ({"arguments": {"count": 1}, "action": "allow"}, {"name": "a"}, "require"),
        ({"platform": {"tenant_name": "*"}, "action": "allow"}, {"name": "a"}, "require"),
        ({"action": "deny"}, {"name": "a"}, "deny"),
    ],
)
def test_a_rule_matches_what_it_says(rule: Json, input: Json, verdict: str) -> None:
    assert rules(rule).verdict(gated, input, PlatformContext()) == verdict


@pytest.mark.parametrize("action", ["require", "deny"])
@pytest.mark.parametrize(
    ("stated", "matches"),
    [
        ({"k8s_namespace": "prod"}, True),
        ({}, True),
        (None, True),
        ({"k8s_namespace": ""}, True),
        ({"k8s_namespace": "PROD"}, True),
        ({"k8s_namespace": " prod\u200b "}, True),
        ({"k8s_namespace": "\uff50rod"}, True),
        ({"k8s_namespace": "production"}, False),
        ({"k8s_namespace": "dev"}, False),
    ],
)
def test_a_rule_that_asks_or_refuses_by_platform_fails_closed(
    action: Any, stated: Json | None, matches: bool
) -> None:
    policy = rules({"platform": {"k8s_namespace": "prod"}, "action": action})
    platform = None if stated is None else PlatformContext.model_validate(stated)
    assert policy.verdict(open_, {}, platform) == (action if matches else "allow")


@pytest.mark.parametrize("value", ["prod", " prod", "PROD", None])
@pytest.mark.parametrize("guarded", [False, True])
def test_nothing_is_allowed_by_what_a_caller_merely_claims(
    value: str | None, guarded: bool
) -> None:
    rule = ApprovalRule(platform={"k8s_namespace": "prod"}, action="allow")
    platform = PlatformContext(k8s_namespace=value)
    verdict = Policy([rule], guarded=guarded).verdict(gated, {}, platform)
    assert verdict == ("allow" if value == "prod" and not guarded else "require")


@pytest.mark.parametrize("protocol", ["v1", "v2"])
def test_with_auth_no_claim_spares_the_approval(served: Serve, protocol: str) -> None:
    rule = {"tool": "gated", "platform": {"tenant_name": "acme"}, "action": "allow"}
    agent, _ = scripted([[Call("1", "gated", {"name": "a"})], "done"], [gated])
    service = served(
        agent, auth__scheme="bearer", auth__tokens={"ann": "key-of-ann"}, approvals__rules=[rule]
    )
    asked = user("go", platform_context={"tenant_name": "acme"})
    headers = {"Authorization": "Bearer key-of-ann"}
    reply = service.chat(asked, path=protocol, headers=headers)
    assert [call["name"] for call in reply["data"]["tool_calls"]] == ["gated"]
    assert any("callers only claim" in line for line in service.app.host.describe())


class Place(BaseModel):
    environment: Annotated[str, StringConstraints(to_lower=True)] = "production"
    zone: int = Field(default=3, alias="Zone")


@tool
def restart(service: str, environment: str = "production", zone: int = 3) -> str:
    """Restart a service."""
    return service


@tool
def move(place: Place) -> str:
    """Move to a place."""
    return place.environment


@tool(input_schema={"properties": {"environment": {"type": "string"}, "zone": {"type": "integer"}}})
def stop(environment: str = "production", zone: int = 3) -> str:
    """Stop what is there."""
    return environment


@pytest.mark.parametrize(
    ("what", "arguments", "input", "matches"),
    [
        (restart, {"environment": "prod*"}, {"service": "a"}, True),
        (restart, {"environment": "prod*"}, {"service": "a", "environment": "test"}, False),
        (restart, {"zone": 3}, {"service": "a", "zone": "3"}, True),
        (restart, {"zone": 3}, {"service": "a", "zone": 4}, False),
        (restart, {"zone": 3}, {}, False),
        (move, {"environment": "production"}, {}, True),
        (move, {"environment": "production"}, {"environment": "PRODUCTION"}, True),
        (move, {"Zone": 3}, {"Zone": "3"}, True),
        (move, {"Zone": 3}, {"Zone": 4}, False),
        (stop, {"environment": "production", "zone": 3}, {}, True),
        (stop, {"environment": "production", "zone": 3}, {"zone": 4}, False),
    ],
)
def test_a_rule_that_protects_goes_by_what_the_tool_gets(
    what: Any, arguments: Json, input: Json, matches: bool
) -> None:
    for action in ("require", "deny"):
        verdict = rules({"arguments": arguments, "action": action}).verdict(what, input, None)
        assert verdict == (action if matches else "allow")
    # A rule that loosens is checked against the sent input; with no input yet no rule matches.
    loose = rules({"arguments": arguments, "action": "allow"}, {"action": "require"})
    assert loose.verdict(what, {}, None) == "require"
    strict = rules({"arguments": arguments, "action": "deny"})
    assert strict.verdict(what, None, None) == "allow"


class Named(BaseModel):
    where: str = Field("production", validation_alias=AliasChoices("env", "environment"))
    zone: int = Field(3, alias="Zone", exclude=True)

    @field_serializer("where")
    def hidden(self, value: str) -> str:
        return "..."


@dataclass
class Spot:
    environment: str = "production"
    zone: int = 3


@tool
def name(named: Named) -> str:
    """Name a place."""
    return named.where


@tool
def odd(
    port: int | str = 22,
    amount: Decimal = Decimal(1),
    day: date | None = None,
    salt: bytes = b"\xff",
    environment: Annotated[str, Field(default="production")] = "production",
) -> str:
    """Take all kinds of things."""
    return environment


class Flag(TypedDict):
    on: Annotated[NotRequired[bool], Field(alias="enabled")]


class Target(TypedDict):
    __pydantic_config__ = ConfigDict(alias_generator=to_camel)  # type: ignore[misc]
    pod_name: str
    spot: Annotated[Spot, Field(validation_alias=AliasChoices("at", AliasPath("all", 0)))]
    flags: NotRequired[list[Flag]]


@dataclass
class Plan:
    in_space: Annotated[str, Field(alias="ns")] = "production"
    at_most: int = Field(3, validation_alias=AliasChoices("limit", "max"))
    target: Target | None = None


@tool
def deploy(plan: Plan, targets: Sequence[Target] = ()) -> str:
    """Deploy as planned."""
    return ""


@tool(input_schema=Plan)
def undo(plan: Plan) -> str:
    """Undo a plan."""
    return ""


@tool
def all_of(names: list[str], spots: Sequence[Spot] = (), free: Any = None) -> str:
    """Take several."""
    return ""


@tool(input_schema={"properties": {"environment": {"default": "production"}, "zone": True}})
def far(**given: Any) -> str:
    """Tell a server that knows the defaults."""
    return ""


@tool
def anything(**given: Any) -> str:
    """Take what comes."""
    return ""


ON_A: Json = {"podName": "a", "at": {}}
ON_SPOT: Json = {"plan": {"target": ON_A}}
fixed = tool(
    partial(tool(partial(restart.fn, "a", zone=3)), environment="production"), name="fixed"
)


@pytest.mark.parametrize(
    ("what", "arguments", "input", "matches"),
    [
        (name, {"env": "production"}, {}, True),
        (name, {"env": "production"}, {"environment": "production"}, True),
        (name, {"where": "production"}, {"env": "production"}, True),
        (name, {"env": "production"}, {"env": "test"}, False),
        (name, {"Zone": 3}, {}, True),
        (odd, {"environment": "production"}, {}, True),
        (odd, {"port": 22}, {"port": "22"}, True),
        (odd, {"port": "22"}, {"port": 22}, True),
        (odd, {"port": 22}, {"port": "x"}, False),
        (odd, {"amount": 100}, {"amount": "100.0"}, True),
        (odd, {"day": date(2026, 1, 2)}, {"day": "2026-01-02"}, True),
        (odd, {"day": "*"}, {}, False),
        (all_of, {"names": "prod*"}, {"names": ["a", "prod-1"]}, True),
        (all_of, {"names": ["a"]}, {"names": ["b", "a"]}, True),
        (all_of, {"names": ["a", "c"]}, {"names": ["b", "a"]}, False),
        (all_of, {"names": "[a]"}, {"names": ["[a]"]}, True),
        (all_of, {"spots": {"environment": "prod*"}}, {"names": [], "spots": [{"zone": 4}]}, True),
        (all_of, {"spots": {"environment": "prod*", "zone": 3}}, {"spots": [{"zone": 4}]}, False),
        (all_of, {"free": {"a": 1}}, {"names": [], "free": '{"a": 1, "b": 2}'}, True),
        (all_of, {"free": {"a": 1}}, {"names": [], "free": "{"}, False),
        (far, {"environment": "production"}, {}, True),
        (far, {"environment": "production"}, {"environment": "test"}, False),
        (fixed, {"service": "a", "environment": "prod*", "zone": 3}, {}, True),
        (deploy, {"plan": {"ns": "prod*"}}, {"plan": {}}, True),
        (deploy, {"plan": {"in_space": "prod*", "max": 3}}, {"plan": {}}, True),
        (deploy, {"plan": {"ns": "prod*"}}, {"plan": {"ns": "test"}}, False),
        (deploy, {"plan": {"target": {"podName": "a", "at": {"zone": 3}}}}, ON_SPOT, True),
        (deploy, {"plan": {"target": {"pod_name": "a", "spot": {"zone": 3}}}}, ON_SPOT, True),
        (deploy, {"plan": {"target": {"podName": "b", "at": {"zone": 3}}}}, ON_SPOT, False),
        (
            deploy,
            {"targets": {"podName": "a", "at": {"zone": 3}, "flags": {"enabled": True}}},
            {"plan": {}, "targets": [{**ON_A, "flags": [{"enabled": True}]}]},
            True,
        ),
        (undo, {"ns": "prod*", "limit": 3}, {}, True),
        (undo, {"ns": "prod*"}, {"ns": "test"}, False),
    ],
)
def test_a_rule_that_protects_is_passed_by_no_other_way_to_say_the_same(
    what: Any, arguments: Json, input: Json, matches: bool
) -> None:
    for action in ("require", "deny"):
        verdict = rules({"arguments": arguments, "action": action}).verdict(what, input, None)
        assert verdict == (action if matches else "allow")


def test_a_rule_that_allows_is_not_met_by_what_the_tool_ignores() -> None:
    loose = rules({"arguments": {"zone": 4}, "action": "allow"}, {"action": "require"})
    assert loose.verdict(name, {"zone": 4}, None) == "require"
    assert loose.verdict(restart, {"service": "a", "zone": 4}, None) == "allow"
    assert loose.verdict(far, {"zone": 4}, None) == "allow"
    second = rules({"arguments": {"environment": "test"}, "action": "allow"}, {"action": "require"})
    assert second.verdict(name, {"environment": "test"}, None) == "allow"
    shadowed = {"env": "production", "environment": "test"}
    assert second.verdict(name, shadowed, None) == "require"


def test_the_first_rule_that_matches_counts() -> None:
    both = ({"tool": "gated", "action": "deny"}, {"tool": "*", "action": "allow"})
    assert rules(*both).verdict(gated, {"name": "a"}, PlatformContext()) == "deny"
    assert rules(*reversed(both)).verdict(gated, {"name": "a"}, PlatformContext()) == "allow"


def test_loosened_tools_are_named() -> None:
    policy = rules({"tool": "*", "arguments": {"name": "a"}, "action": "allow"})
    assert policy.loosened([gated, open_]) == ["gated"]
    assert rules({"tool": "*", "action": "require"}).loosened([gated, open_]) == []


def test_the_start_says_what_is_loosened(served: Serve) -> None:
    agent, _ = scripted(["hi"], [gated, open_])
    reported = served(
        agent, approvals__rules=[{"tool": "g*", "action": "allow"}]
    ).app.host.describe()
    assert "warning: rules let run without approval: gated" in reported


def test_rules_that_name_no_tool_stop_the_start(served: Serve) -> None:
    agent, _ = scripted(["hi"], [gated, open_])
    rules = [{"tool": name, "action": "deny"} for name in ("gaetd", "wipe_*", "g*", "wipe_*")]
    with pytest.raises(ConfigError) as refused:
        served(agent, approvals__rules=rules)
    assert str(refused.value) == (
        "approvals.rules name tools that the agent does not have: 'gaetd', 'wipe_*'; mend the "
        "names, or leave those rules out; its tools are: gated, open_"
    )
    assert served(agent, approvals__rules=rules[2:3]).chat(user("hi"))["content"] == "hi"


def test_rule_for_every_tool_never_stops_the_start(served: Serve) -> None:
    rules = [{"tool": name, "action": "deny"} for name in ("*", "**")]
    assert served(lambda messages: "hi", approvals__rules=rules).chat(user("hi"))["content"] == "hi"


class Late:
    """A source whose tools are known after a while."""

    def __init__(self) -> None:
        self.known: list[Tool] = []

    async def open(self, host: Any, changed: Callable[[], None]) -> None:
        self.changed = changed

    def tools(self) -> Sequence[Tool]:
        return self.known

    async def close(self) -> None:
        """Nothing to release."""


def test_rules_are_looked_at_once_the_tools_from_outside_are_known(
    served: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    source = Late()
    agent, _ = scripted(["hi"], [source])
    warning = "approvals.rules name tools that the agent does not have now: 'gaetd'"
    service = served(agent, approvals__rules=[{"tool": "gaetd", "action": "deny"}])
    assert warning not in caplog.text
    source.known = [gated]
    source.changed()
    source.known = [gated, open_]
    source.changed()
    assert caplog.text.count(warning) == 1
    assert service.chat(user("hi"))["content"] == "hi"


@pytest.mark.parametrize(("closed", "misnamed"), [({}, []), (CLOSED, [("other", "*")])])
def test_tool_has_each_argument_that_its_schema_and_its_function_admit(
    closed: Json, misnamed: list[tuple[str, str]]
) -> None:
    @tool(input_schema={"type": "object", "properties": {"name": {"type": "string"}}, **closed})
    def spread(**values: Any) -> str:
        """Spread the word."""
        return str(values)

    policy = rules({"tool": "*", "arguments": {"other": 1}, "action": "deny"})
    assert policy.verdict(spread, {"other": 1}, None) == "deny"
    assert policy.misnamed([spread]) == misnamed


def test_the_start_says_which_rules_name_an_argument_that_no_tool_of_theirs_has(
    served: Serve,
) -> None:
    agent, _ = scripted(["hi"], [restart, far, move, name, all_of, undo, fixed, anything])
    known: list[Json] = [
        {"tool": "restart", "arguments": {"environment": "a", "zone": 1}},
        {"tool": "far", "arguments": {"zone": 1}},
        {"tool": "mov*", "arguments": {"Zone": 1, "zone": 1, "environment": "a"}},
        {"tool": "name", "arguments": {"env": "a", "where": "a", "Zone": 1}},
        {"tool": "undo", "arguments": {"ns": "a", "in_space": "a", "max": 1}},
        {"tool": "fixed", "arguments": {"zone": 1, "service": "a"}},
        {"tool": "anything", "arguments": {"whatever": 1}},
        {"tool": "*", "arguments": {"names": "a", "service": "a"}},
    ]
    for rule in known:
        rule["action"] = "deny"
    reported = served(agent, approvals__rules=known).app.host.describe()
    assert not [line for line in reported if "argument" in line]
    wrong: list[Json] = [
        {"tool": "restart", "action": "deny", "arguments": {"enviroment": "a", "zone": 1}},
        {"tool": "[mn]*e", "action": "deny", "arguments": {"service": "a"}},
    ]
    reported = served(agent, approvals__rules=[*known, *wrong]).app.host.describe()
    assert (
        "warning: approvals.rules name arguments that none of a rule's tools has: "
        "'enviroment' of 'restart', 'service' of '[mn]*e'"
    ) in reported


@pytest.mark.parametrize("tokens", [{"tokens": {"ann": "a"}}, {"tokens_file": "tokens"}])
def test_the_start_says_that_nobody_asks_for_the_tokens(served: Serve, tokens: Json) -> None:
    agent, _ = scripted(["hi"], [open_])
    (reported,) = [
        line for line in served(agent, auth=tokens).app.host.describe() if "reaches" in line
    ]
    assert reported.startswith(
        "warning: everyone who reaches this address may call, although [auth]"
    )
    assert reported.endswith('set auth.scheme = "bearer"')


def test_a_call_that_leaves_a_protected_value_to_its_default_waits(served: Serve) -> None:
    rule = {"tool": "restart", "arguments": {"environment": "prod*"}, "action": "require"}
    agent, _ = scripted([[Call("1", "restart", {"service": "a"})], "done"], [restart])
    reply = served(agent, approvals__rules=[rule]).chat(user("restart a"))
    (call,) = reply["data"]["tool_calls"]
    assert (call["name"], call["input"]) == (
        "restart",
        {"service": "a", "environment": "production", "zone": 3},
    )


@pytest.mark.parametrize("protocol", ["v1", "v2"])
def test_rules_hold_over_the_wire(served: Serve, protocol: str) -> None:
    runs: list[str] = []

    @tool(requires_approval=True)
    def wipe(name: str) -> str:
        """Wipe a thing."""
        runs.append(name)
        return f"wiped {name}"

    @tool
    def peek(name: str) -> str:
        """Look at a thing."""
        runs.append(name)
        return f"{name} is there"

    calls = [
        Call("1", "wipe", {"name": "scratch"}),
        Call("2", "wipe", {"name": "prod"}),
        Call("3", "wipe", {"name": "other"}),
        Call("4", "peek", {"name": "vault"}),
        Call("5", "peek", {"name": "door"}),
    ]
    agent, model = scripted([calls, "done"], [wipe, peek])
    service = served(
        agent,
        approvals__rules=[
            {"tool": "wipe", "arguments": {"name": "scratch"}, "action": "allow"},
            {"tool": "wipe", "arguments": {"name": "prod"}, "action": "deny"},
            {
                "tool": "peek",
                "arguments": {"name": "vault"},
                "platform": {"team": "guests"},
                "action": "require",
            },
        ],
    )
    guests = {"platform_context": {"team": "guests"}}
    reply = service.chat(user("go", **guests), path=protocol)
    assert sorted(runs) == ["door", "scratch"]
    assert [c["input"]["name"] for c in reply["data"]["tool_calls"]] == ["other", "vault"]
    decided = [approved(call) for call in reply["data"]["tool_calls"]]
    last = user("", data={"tool_calls": decided}, **guests)
    assert service.chat(user("go"), said(reply), last, path=protocol)["content"] == "done"
    assert sorted(runs) == ["door", "other", "scratch", "vault"]
    results = {
        b.call_id: b for t in model.asks[-1].turns for b in t.blocks if isinstance(b, Result)
    }
    assert results["2"].is_error
    assert "a rule of this service forbids this call" in results["2"].output
    assert [results[n].is_error for n in "1345"] == [False] * 4


def test_an_edit_cannot_get_around_a_rule(served: Serve) -> None:
    runs: list[str] = []

    @tool(requires_approval=True, editable=True)
    def wipe(name: str) -> str:
        """Wipe a thing."""
        runs.append(name)
        return f"wiped {name}"

    agent, _ = scripted([[Call("1", "wipe", {"name": "a"})], "I see"], [wipe])
    service = served(agent, approvals__rules=[{"arguments": {"name": "prod"}, "action": "deny"}])
    reply = service.chat(user("go"))
    call = approved(reply["data"]["tool_calls"][0], input={"name": "prod"})
    last = user("", data={"tool_calls": [call]})
    (done,) = service.chat(user("go"), said(reply), last)["data"]["executed_tool_calls"]
    assert done["output"] == "Error: a rule of this service forbids this call of 'wipe'"
    assert runs == []


class TestOffline:
    def run(
        self, folder: Path, cases: str, capsys: Any, *options: str, file: str = "cases.toml"
    ) -> tuple[int, str]:
        (folder / "pods.py").write_text(AGENT)
        (folder / "sayso.toml").write_text(RULES)
        (folder / "cases.toml").write_text(cases)
        capsys.readouterr()
        code = cli.run(
            [
                "approvals",
                "test",
                "--config",
                str(folder / "sayso.toml"),
                str(folder / file),
                *options,
            ]
        )
        out, err = capsys.readouterr()
        return code, out + err

    def test_a_table_of_cases_passes(self, tmp_path: Path, capsys: Any) -> None:
        code, said = self.run(tmp_path, CASES, capsys)
        assert (code, said.count("ok  ")) == (0, 5), said
        assert not (tmp_path / "approvals.db").exists(), "no store is opened"

    def test_a_table_that_begins_with_a_byte_order_mark_is_read(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        assert self.run(tmp_path, f"\ufeff{CASES}", capsys)[0] == 0

    def test_a_table_from_a_pipe_is_read_and_the_wait_for_its_writer_is_told(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        os.mkfifo(tmp_path / "pipe")
        said: list[str] = []
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.run, tmp_path, CASES, capsys, file="pipe")

            def waits() -> bool:
                said.append(capsys.readouterr().err)
                return "pipe' is a pipe: the test waits until its writer" in "".join(said)

            until(waits)
            (tmp_path / "pipe").write_text(CASES, "utf-8")
            code, end = running.result()
        assert (code, "".join([*said, end]).count("ok  ")) == (0, 5)

    def test_a_failing_case_is_named(self, tmp_path: Path, capsys: Any) -> None:
        code, said = self.run(tmp_path, CASES.replace('"deny"', '"allow"'), capsys)
        assert code == 1
        assert "FAIL 1: delete_pod" in said
        assert "deny, not allow" in said
        assert "1 of 5 cases failed" in said

    @pytest.mark.parametrize(
        "cases",
        [
            '[[case]]\ntool = "nope"\nexpect = "deny"\n',
            '[[case]]\ntool = "list_pods"\nexpect = "maybe"\n',
            '[[case]]\ntool = "list_pods"\n',
            '[[case]]\ntool = "list_pods"\nargs = {}\nexpect = "allow"\n',
            '[[cases]]\ntool = "list_pods"\nexpect = "allow"\n',
            "",
            "not toml",
        ],
    )
    def test_a_wrong_table_does_not_pass(self, tmp_path: Path, capsys: Any, cases: str) -> None:
        code, said = self.run(tmp_path, cases, capsys)
        assert code == 1, said
        assert "Traceback" not in said

    def test_an_argument_that_no_call_of_the_tool_can_have_does_not_pass(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        cases = '[[case]]\ntool = "list_pods"\narguments = {namespce = "x"}\nexpect = "allow"\n'
        code, said = self.run(tmp_path, cases, capsys)
        assert code == 1, said
        assert "the tool 'list_pods' has no argument 'namespce'" in said

    def test_an_agent_named_by_the_option_is_found_from_the_working_folder(
        self, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "mine.py").write_text(AGENT)
        monkeypatch.chdir(tmp_path / "here")
        code, said = self.run(tmp_path, CASES, capsys, "--agent", "mine.py")
        assert code == 0, said

    def test_each_wrong_key_is_told_with_the_nearest_right_one(
        self, tmp_path: Path, capsys: Any
    ) -> None:
        cases = '[[case]]\ntool = "list_pods"\nexpct = "allow"\n[[cases]]\ntool = "list_pods"\n'
        _, said = self.run(tmp_path, cases, capsys)
        assert "unknown key 'case.0.expct' (cases.toml); did you mean 'case.0.expect'?" in said
        assert "unknown key 'cases' (cases.toml); did you mean 'case'" in said


FORBIDDEN = [
    {"tool": "command", "arguments": {"command": "rm *"}, "action": "deny"},
    {"tool": "*", "platform": {"tenant_name": "prod"}, "action": "deny"},
]


@pytest.mark.parametrize("rule", FORBIDDEN, ids=["by its text", "by the tenant"])
def test_a_command_that_a_rule_forbids_is_not_proposed(served: Serve, rule: Json) -> None:
    agent, asks = scripted([["t", suggest("true", "rm -r x")], "well"], [], commands=LocalShell())
    service = served(agent, approvals__rules=[rule])
    reply = service.chat(user("go", platform_context={"tenant_name": "prod"}))
    assert reply["content"].endswith("well")
    assert not (reply["data"]["cmds"] or reply["data"]["approvals"])
    (result,) = [b for turn in asks.asks[1].turns for b in turn.blocks if isinstance(b, Result)]
    assert result.is_error and "forbids this call of 'command'" in result.output


def test_a_newer_rule_keeps_an_approved_command_from_running(served: Serve, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    script = [["t", suggest(f"touch {ran}")], "well"]
    agent, _ = scripted(script, [], commands=LocalShell())
    service = served(agent)
    reply = service.chat(user("go"))
    service.app.host.policy.rules.append(ApprovalRule(tool="command", action="deny"))
    data = {"cmds": [approved(reply["data"]["cmds"][0])], "session": reply["data"]["session"]}
    after = service.chat(user("go"), said(reply), user(data=data))
    (done,) = after["data"]["executed_cmds"]
    assert done["output"] == "Error: a rule of this service forbids this call of 'command'"
    assert not ran.exists()


def test_a_rule_forbids_what_a_callable_proposes(served: Serve) -> None:
    given: list[Any] = []

    def act(messages: Sequence[Any], context: Any) -> Any:
        given.extend(context.decisions)
        if len(messages) > 1:
            return "well"
        return {"content": "may I?", "data": {"cmds": [{"command": "rm x", "execute": False}]}}

    (rule, _) = FORBIDDEN
    service = served(act)
    reply = service.chat(user("go"))
    service.app.host.policy.rules.append(ApprovalRule(**rule))
    data = {"cmds": [approved(reply["data"]["cmds"][0])], "session": reply["data"]["session"]}
    refused = service.ask(user("go"), said(reply), user(data=data))
    assert refused.types == {"approval_not_allowed"}
    assert given == []
    assert service.ask(user("go")).status == 500
