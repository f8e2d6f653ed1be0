"""Rules of the configuration on what needs approval: `[[approvals.rules]]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from assent.canonical import canonical
from assent.messages import PlatformContext
from assent.settings import ApprovalRule
from assent.tools import Tool

Verdict = Literal["allow", "require", "deny"]


class Policy:
    """The first rule that matches says; without one, the tool's own `requires_approval`."""

    def __init__(self, rules: Sequence[ApprovalRule] = ()) -> None:
        self.rules = list(rules)
        self.reads_inputs = any(rule.arguments and rule.action != "allow" for rule in rules)
        """Whether a verdict has inputs validated, by what users wrote perhaps."""

    def verdict(
        self,
        tool: Tool[..., Any],
        input: Mapping[str, Any] | None,
        platform: PlatformContext | None,
    ) -> Verdict:
        """Whether this call runs at once, waits for approval, or is refused.

        A rule that asks or refuses goes by what the tool would get, too: by a default, or by a
        number that was sent as text. With no `input` yet, rules on arguments match nothing.
        """
        for rule in self.rules:
            if self._matches(rule, tool, input, platform or PlatformContext()):
                return rule.action
        return "require" if tool.requires_approval else "allow"

    def _matches(
        self,
        rule: ApprovalRule,
        tool: Tool[..., Any],
        input: Mapping[str, Any] | None,
        platform: PlatformContext,
    ) -> bool:
        if not fnmatchcase(tool.name, rule.tool):
            return False
        if rule.arguments:
            forms = [] if input is None else [input]
            if input is not None and rule.action != "allow":
                forms.append(tool.as_called(input))
            for name, wanted in rule.arguments.items():
                if not any(name in form and _fits(wanted, form[name]) for form in forms):
                    return False
        fields = {**(platform.model_extra or {}), **platform.model_dump(mode="json")}
        for name, pattern in rule.platform.items():
            if not _fits(pattern, fields.get(name)):
                return False
        return True

    def loosened(self, tools: Sequence[Tool[..., Any]]) -> list[str]:
        """The gated tools that some rule lets run without approval, for the start-up lines."""
        return [
            tool.name
            for tool in tools
            if tool.requires_approval
            and any(r.action == "allow" and fnmatchcase(tool.name, r.tool) for r in self.rules)
        ]


def _fits(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, str) and isinstance(value, str):
        return fnmatchcase(value, wanted)
    return canonical(wanted) == canonical(value)
