"""The configuration's rules on approval: `[[approvals.rules]]`."""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

from sayso.agent import Agent
from sayso.config.approvals import ApprovalRule
from sayso.errors import ConfigError
from sayso.ledger.people import Terms
from sayso.tools import Tool
from sayso.trees import canonical
from sayso.wire.characters import unseen
from sayso.wire.messages import PlatformContext

logger = logging.getLogger("sayso.tools")
Verdict = Literal["allow", "require", "deny"]


class Policy:
    """Approval rules: the first that matches decides; without one, the tool's own
    `requires_approval`."""

    def __init__(self, rules: Sequence[ApprovalRule], *, guarded: bool = False) -> None:
        self.rules = list(rules)
        self._guarded = guarded
        """Whether callers authenticate: mere claims of theirs then allow nothing."""
        self.reads_inputs = any(rule.arguments for rule in rules)
        """Whether a verdict validates inputs, possibly with user code."""

    def verdict(
        self,
        tool: Tool[..., Any],
        input: Mapping[str, Any] | None,
        platform: PlatformContext | None,
    ) -> Verdict:
        """Whether this call runs at once, waits for approval, or is refused.

        A rule that asks or refuses is checked against the sent input and against the tool's
        arguments: a default counts, and a number that was sent as text. With no `input` yet, rules
        on arguments match nothing.
        """
        sent = _Input(tool, input) if self.reads_inputs and input is not None else None
        rule = self._first(tool.name, sent, platform)
        if rule is not None:
            return rule.action
        return "require" if tool.requires_approval else "allow"

    def terms(
        self,
        name: str,
        tool: Tool[..., Any] | None,
        sent: Mapping[str, Any],
        got: Mapping[str, Any],
        platform: PlatformContext | None,
    ) -> Terms | None:
        """The demands of the first matching rule on the approvers of a call that is proposed.

        `sent` is the input that was sent and `got` the input that the tool gets; a terminal command
        has no tool.
        """
        rule = self._first(name, _Input(tool, sent, got), platform)
        return None if rule is None else terms_of(rule)

    def forbids(
        self, name: str, input: Mapping[str, Any], platform: PlatformContext | None
    ) -> bool:
        """Whether a rule refuses a call that no tool carries out: a terminal command, or one that a
        callable proposes. Without a rule, it waits for approval."""
        rule = self._first(name, _Input(None, input, input), platform)
        return rule is not None and rule.action == "deny"

    def grantable(
        self,
        tool: Tool[..., Any],
        sent: Mapping[str, Any],
        got: Mapping[str, Any],
        platform: PlatformContext | None,
    ) -> bool:
        """Whether a standing grant may approve the call, according to its rule, or else to the mark
        of its tool; the arguments are those of `terms`."""
        rule = self._first(tool.name, _Input(tool, sent, got), platform)
        said = rule.grants if rule is not None else None
        return tool.destructive is not True if said is None else said

    def _first(
        self, name: str, input: _Input | None, platform: PlatformContext | None
    ) -> ApprovalRule | None:
        matches = (rule for rule in self.rules if self._matches(rule, name, input, platform))
        return next(matches, None)

    def _matches(
        self,
        rule: ApprovalRule,
        name: str,
        input: _Input | None,
        platform: PlatformContext | None,
    ) -> bool:
        if not fnmatchcase(name, rule.tool):
            return False
        if rule.arguments:
            if input is None:
                return False
            meets = input.is_sent if rule.action == "allow" else input.holds
            if not all(meets(name, wanted) for name, wanted in rule.arguments.items()):
                return False
        if not rule.platform:
            return True
        stated = platform or PlatformContext()
        fields = {**(stated.model_extra or {}), **stated.model_dump(mode="json")}
        if rule.action == "allow":
            found = (_fits(pattern, fields.get(name)) for name, pattern in rule.platform.items())
            return not self._guarded and all(found)
        return all(_may_be(pattern, fields.get(name)) for name, pattern in rule.platform.items())

    def unmet(self) -> list[str]:
        """The tools of rules that can never match: they allow because of callers' mere claims."""
        allowing = (r.tool for r in self.rules if r.action == "allow" and r.platform)
        return list(dict.fromkeys(allowing)) if self._guarded else []

    def may_gate(self, tool: Tool[..., Any]) -> bool:
        """Whether some call of the tool may wait for approval."""
        asks = any(r.action == "require" and fnmatchcase(tool.name, r.tool) for r in self.rules)
        return tool.requires_approval or asks

    def loosened(self, tools: Sequence[Tool[..., Any]]) -> list[str]:
        """The gated tools that some rule lets run without approval, for the start-up lines."""
        return [
            tool.name
            for tool in tools
            if tool.requires_approval
            and any(r.action == "allow" and fnmatchcase(tool.name, r.tool) for r in self.rules)
        ]

    def check(self, agent: Agent) -> None:
        """Raise ConfigError for rules that match none of the agent's tools: a misspelt one would
        seem to gate something. If tools come from outside, a warning follows once they are
        known."""
        idle = self.idle([*agent.tools.values()])
        if agent.sources:
            agent.tool_listeners.append(_Watch(self, agent))
        elif idle:
            names = ", ".join(agent.tools) or "none"
            raise ConfigError(
                f"approvals.rules name tools that the agent does not have: {_named(idle)}; mend "
                f"the names, or leave those rules out; its tools are: {names}"
            )

    def idle(self, tools: Sequence[Tool[..., Any]]) -> list[str]:
        """The names in rules that match no tool; they may be misspelt. Terminal commands match
        rules for "command"."""
        names = dict.fromkeys(rule.tool for rule in self.rules if rule.tool.strip("*"))
        names.pop("command", None)
        return [n for n in names if not any(fnmatchcase(tool.name, n) for tool in tools)]

    def misnamed(self, tools: Sequence[Tool[..., Any]]) -> list[tuple[str, str]]:
        """The arguments in rules, each with its rule's `tool`, that none of its tools has."""
        stated = dict.fromkeys((name, rule.tool) for rule in self.rules for name in rule.arguments)
        return [
            (name, pattern)
            for name, pattern in stated
            if (meant := [tool for tool in tools if fnmatchcase(tool.name, pattern)])
            and not any(tool.takes(name) for tool in meant)
        ]


def terms_of(rule: ApprovalRule) -> Terms | None:
    """The demands of the rule on approvers; None if it has none."""
    terms = Terms(
        approvers=list(rule.approvers),
        quorum=rule.quorum,
        not_requester=rule.not_requester,
        reason=rule.reason == "required",
        decide_within=rule.decide_within,
        run_within=rule.run_within,
    )
    if terms == Terms():
        return None
    return replace(terms, rule=sha256(canonical(rule.model_dump(mode="json"))).hexdigest())


class _Watch:
    """Warns of rules that match no tool, once the tools are known and when they change."""

    def __init__(self, policy: Policy, agent: Agent) -> None:
        self._policy, self._agent = policy, agent
        self._warned: list[str] = []

    def __call__(self) -> None:
        idle = self._policy.idle([*self._agent.tools.values()])
        if idle and idle != self._warned:
            logger.warning(
                "approvals.rules name tools that the agent does not have now: %s", _named(idle)
            )
        self._warned = idle


def _named(patterns: Sequence[str]) -> str:
    return ", ".join(map(repr, patterns))


def forbidden(name: str) -> str:
    """The answer to a call of the tool `name` that a rule refuses."""
    return f"a rule of this service forbids this call of {name!r}"


class _Input:
    """The input of a call, as it was sent and as the tool would get it."""

    def __init__(
        self,
        tool: Tool[..., Any] | None,
        sent: Mapping[str, Any],
        got: Mapping[str, Any] | None = None,
    ) -> None:
        self._tool = tool
        self._sent = sent
        self._known = got

    @cached_property
    def _got(self) -> Mapping[str, Any]:
        if self._known is not None or self._tool is None:
            return self._known or {}
        return self._tool.as_called(self._sent)

    def is_sent(self, name: str, wanted: Any) -> bool:
        """Whether this very value was sent, in an argument that the tool does not ignore."""
        if name not in self._sent or not _fits(wanted, self._sent[name]):
            return False
        if self._tool is None or name in self._tool.input_schema["properties"]:
            return True
        return name in self._got and _fits(wanted, self._got[name])

    def holds(self, name: str, wanted: Any) -> bool:
        """Whether the argument contains this value, possibly among others."""
        forms = (self._sent, self._got)
        return any(name in form and _covers(wanted, form[name]) for form in forms)


def _fits(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, str) and isinstance(value, str):
        return value == wanted or fnmatchcase(value, wanted)
    return canonical(wanted) == canonical(value)


def _may_be(pattern: str, value: Any) -> bool:
    """Whether a field of the platform context may match. Leaving it out, or writing it differently,
    must not evade a rule."""
    if not isinstance(value, str):
        return True
    plain = _plain(value)
    return not plain or plain == _plain(pattern) or fnmatchcase(plain, _plain(pattern))


def _plain(text: str) -> str:
    """`text` without case, spaces, and invisible characters."""
    seen = (c for c in unicodedata.normalize("NFKC", text) if not (c.isspace() or unseen(c)))
    return "".join(seen).casefold()


def _covers(wanted: Any, value: Any) -> bool:
    """Whether `value` is the wanted one, or a list or table that contains it; 22 and "22" are
    equal."""
    if _fits(wanted, value):
        return True
    match wanted, value:
        case dict(), dict():
            return bool(wanted) and all(n in value and _covers(wanted[n], value[n]) for n in wanted)
        case list(), list() if wanted:
            return all(any(_covers(one, item) for item in value) for one in wanted)
        case _, list():
            return any(_covers(wanted, item) for item in value)
        case str(), bool() | int() | float():
            return fnmatchcase(canonical(value).decode(), wanted)
        case bool() | int() | float() | dict() | list(), str():
            with suppress(ValueError, RecursionError):
                return _covers(wanted, json.loads(value))
    return False
