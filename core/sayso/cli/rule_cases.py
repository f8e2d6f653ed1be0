"""The cases of `sayso approvals test`: calls, and the verdicts expected of the rules."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import ValidationError

from sayso.cli.group import configuration
from sayso.config.files import PIPE, no_file
from sayso.config.layers import Origin, explain
from sayso.config.settings import Duration, Section
from sayso.errors import ConfigError
from sayso.ledger.people import Terms


def rule_cases(
    config_file: Path | None, file: Path, target: str | None
) -> Iterator[tuple[str, str, str]]:
    """Each case of the file: the call, the expected verdict, and that of the rules."""
    from sayso.agent import as_agent
    from sayso.config.targets import load_agent
    from sayso.policy import Policy
    from sayso.wire.messages import PlatformContext

    config = configuration(config_file, overrides={"agent": target} if target else {})
    if config.agent is None:
        raise ConfigError("there is no agent to take the tools from; name one with --agent")
    tools = as_agent(load_agent(config.agent, config.path("agent", "."))).tools
    policy = Policy(config.approvals.rules, guarded=config.auth.scheme != "none")
    for case in _table(file):
        if case.tool not in tools:
            raise ConfigError(f"{file.name}: the agent has no tool {case.tool!r}")
        tool = tools[case.tool]
        if unknown := [name for name in case.arguments if not tool.takes(name)]:
            # Such a call is refused before any rule is asked.
            named = ", ".join(map(repr, unknown))
            raise ConfigError(f"{file.name}: the tool {case.tool!r} has no argument {named}")
        platform = PlatformContext.model_validate(case.platform)
        verdict: str = policy.verdict(tool, case.arguments, platform)
        got = tool.as_called(case.arguments)
        terms = policy.terms(case.tool, tool, case.arguments, got, platform)
        expected = "; ".join([case.expect, *case.demands()])
        if asked := case.demanded(terms or Terms()):
            verdict = "; ".join([verdict, *asked])
        if case.grants is not None:
            # A grant is the approval of one person.
            may = verdict.startswith("require") and (terms or Terms()).quorum == 1
            may = may and policy.grantable(tool, case.arguments, got, platform)
            expected, verdict = f"{expected}; grants {case.grants}", f"{verdict}; grants {may}"
        yield f"{case.tool} {json.dumps(case.arguments)}", expected, verdict


class _Case(Section):
    tool: str
    arguments: dict[str, Any] = {}
    platform: dict[str, Any] = {}
    expect: Literal["allow", "require", "deny"]
    approvers: list[str] | None = None
    quorum: int | None = None
    not_requester: bool | None = None
    reason: Literal["optional", "required"] | None = None
    decide_within: Duration | None = None
    run_within: Duration | None = None
    grants: bool | None = None
    """Whether a standing grant may cover the call."""

    def demands(self) -> list[str]:
        """The demands on approvers that the case expects, each as a text."""
        return [f"{name} {getattr(self, name)}" for name in self._stated()]

    def demanded(self, terms: Terms) -> list[str]:
        """The demands that a rule makes in the same respects."""
        said = {**asdict(terms), "reason": "required" if terms.reason else "optional"}
        return [f"{name} {said[name]}" for name in self._stated()]

    def _stated(self) -> list[str]:
        names = ("approvers", "quorum", "not_requester", "reason", "decide_within", "run_within")
        return [name for name in names if getattr(self, name) is not None]


class _Table(Section):
    case: list[_Case]


def _table(file: Path) -> list[_Case]:
    origin = Origin("file", file.name)
    if no_file(file) == PIPE:
        wait = f"{str(file)!r} is a pipe: the test waits until its writer has ended"
        click.echo(f"sayso: {wait}", err=True)
    try:
        cases = _Table.model_validate(tomllib.loads(file.read_text(encoding="utf-8-sig"))).case
    except ValidationError as error:
        raise ConfigError(explain(error, _Table, lambda _: origin)) from None
    except ValueError as error:
        raise ConfigError(f"{file.name}: {error}") from None
    if not cases:
        raise ConfigError(f"{file.name} has no [[case]]")
    return cases
