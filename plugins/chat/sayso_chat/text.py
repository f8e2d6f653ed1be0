"""Proposals and outcomes as lines of text without invisible content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sayso import pretty, visible
from sayso_chat.talk import Proposal

LINES = 40
"""Most lines of an input that are shown; a note says that it was cut."""
LENGTH = 4_000
"""Most characters of a line that are shown."""
OUTPUT_LINES = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines of a proposal, as (label, text); `cut` if a part of it is left out."""

    lines: list[tuple[str, str]]
    cut: bool


def title(proposal: Proposal) -> str:
    """The proposal in a few words."""
    if proposal.is_command:
        return "a shell command waits for your decision"
    name = visible(str(proposal.stated.get("name", "")), strict=True)
    return f"{name} waits for your decision"


def name_of(proposal: Proposal) -> str:
    """The name of a tool, or a command after a dollar sign."""
    stated = proposal.stated
    return f"$ {stated.get('command')}" if proposal.is_command else str(stated.get("name"))


def show(proposal: Proposal, *, whole: bool) -> Shown:
    """The parts that a person must see before a decision: intent, description, input; complete if
    `whole`."""
    stated = proposal.stated
    rows: list[tuple[str, str]] = []
    for label, value in (("why", stated.get("intent")), ("does", stated.get("tool_description"))):
        if value:
            rows.append((label, visible(str(value), strict=True)))
    rows += _subject(proposal)
    rows += _bound(proposal.approval.get("bound") or {})
    rows += _about(proposal.approval)
    if any(_hides(text) for text in _texts(stated)):
        rows.append(("note", "characters that a terminal would hide or obey are written out"))
    if whole:
        rows += _details(stated)
    cut = False
    lines: list[tuple[str, str]] = []
    for label, text in rows:
        kept, left_out = _kept(text, whole)
        lines += _labelled(label, kept)
        if left_out:
            lines.append(("", f"… {left_out} more; d shows all of it"))
            cut = True
    return Shown(lines, cut)


def _subject(proposal: Proposal) -> Iterator[tuple[str, str]]:
    stated = proposal.stated
    if not proposal.is_command:
        yield "input", pretty(stated.get("input", {}))
        return
    yield "command", visible(str(stated.get("command", "")), strict=True)
    for file in stated.get("files") or []:
        content = visible(str(file.get("file_content", "")), strict=True)
        yield "file", f"{visible(str(file.get('file_path', '')), strict=True)}\n{content}"


def _bound(bound: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Everything else that an approval binds: the agent, the tool's origin, and its target."""
    for name in ("agent", "tool"):
        if bound.get(name):
            yield name, visible(str(bound[name]), strict=True)
    if isinstance(context := bound.get("context"), dict):
        for name, value in context.items():
            text = pretty(value) if isinstance(value, dict | list) else str(value)
            yield "where", visible(f"{name} {text}", strict=True)


def _about(approval: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The tool's preview of the call, and the approvals so far."""
    if approval.get("preview"):
        yield "preview", visible(str(approval["preview"]), strict=True)
    if isinstance(votes := approval.get("votes"), dict) and "needed" in votes:
        by = ", ".join(map(str, votes.get("by") or ()))
        text = f"{votes.get('given')} of {votes['needed']} approvals" + f", by {by}" * bool(by)
        yield "votes", visible(text, strict=True)


def _details(stated: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if stated.get("id"):
        yield "id", visible(str(stated["id"]), strict=True)
    described = stated.get("input_description")
    if isinstance(described, dict) and described:
        yield "fields", pretty(described)
    known = {
        "id",
        "name",
        "input",
        "execute",
        "tool_description",
        "input_description",
        "intent",
        "command",
        "files",
        "rejection_reason",
    }
    if rest := {name: value for name, value in stated.items() if name not in known}:
        yield "further", pretty(rest)


def _kept(text: str, whole: bool) -> tuple[str, str]:
    """The shown part of `text`, and in words how much is missing."""
    lines = text.split("\n")
    if whole or (len(lines) <= LINES and all(len(line) <= LENGTH for line in lines)):
        return text, ""
    kept = "\n".join(line[:LENGTH] for line in lines[:LINES])
    if len(lines) > LINES:
        return kept, _more(len(lines) - LINES, "line")
    return kept, _more(len(text) - len(kept), "character")


def _more(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _labelled(label: str, text: str) -> list[tuple[str, str]]:
    first, *rest = text.split("\n")
    return [(label, first), *(("", line) for line in rest)]


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield str(key)
                yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)


def _hides(text: str) -> bool:
    # Isolates around right-to-left letters hide nothing; those in `text` itself are written out.
    return visible(text, strict=True).replace("\u2068", "").replace("\u2069", "") != text


def outcome(name: str, output: str) -> list[str]:
    """The lines for the outcome of an approved call; a long output is cut."""
    lines = visible(output).rstrip("\n").split("\n")
    shown = [line[:LENGTH] for line in lines[:OUTPUT_LINES]]
    if len(lines) > OUTPUT_LINES:
        shown.append(f"… {_more(len(lines) - OUTPUT_LINES, 'more line')}")
    head = visible(name, strict=True)
    return [f"{head}: {shown[0]}", *shown[1:]] if len(shown) == 1 else [f"{head}:", *shown]
