"""The calls of a conversation: the messages that show and decide each, its outcome in words, and
calls and results in the pairs that model providers require."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sayso.conversation.approvals import command_input, shown_ids, stated_ids
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, Decided, command_key
from sayso.models import Attachment, Block, Call, Result, Text, Turn, bound_to_model, unused_id
from sayso.wire.messages import Data, ExecutedApproval, ExecutedCommand, ExecutedToolCall, Message

_NO_OUTPUT = "(no output)"
NOT_DECIDED = "Not run: not decided. Nobody has approved or rejected this yet."
NEVER_DECIDED = "Not run: never decided. The proposal is no longer open."
LOST = "No result of this call is known."
_TOO_LATE = "Not run: approved, but the approval expired before its caller asked."
_WITHOUT_RESULT: Mapping[str, str] = {
    "PENDING": NOT_DECIDED,
    "APPROVED": "Not run yet: approved, and runs when its caller asks.",
    "EXECUTING": "No result yet: approved, and still running.",
    "EXPIRED": NEVER_DECIDED,
}
_FAILURES = ("Error:", "Rejected:", "Outcome unknown:")
"""The beginnings of the output of a call that did not succeed."""


def spoken(output: str | None) -> str:
    """A call's output as the model reads it; providers do not accept a blank one."""
    return output if output and output.strip() else _NO_OUTPUT


def outcome_text(row: Proposal) -> tuple[str, bool]:
    """A proposal's state as the model reads it, and whether it is an error."""
    if row.state == "DONE" and row.purged:
        return LOST, False
    changed = ""
    if row.edited is not None:
        changed = f"(The approver changed the input to {json.dumps(row.edited)}.)"
    if row.state == "DONE":
        return f"{changed}\n{spoken(row.output)}" if changed else spoken(row.output), False
    if row.state == "REJECTED":
        reason = row.decision.reason if row.decision and row.decision.reason else "no reason given"
        return f"Rejected by the user: {reason}", True
    if row.state in ("FAILED", "INDETERMINATE"):
        # It begins with its kind: `Error:` or `Outcome unknown:`.
        output = row.output or LOST
        return f"{output}\n{changed}" if changed else output, True
    if row.state == "EXPIRED" and row.decision is not None:
        return _TOO_LATE, True
    # A newer Sayso may have further states.
    return _WITHOUT_RESULT.get(row.state, LOST), True


def known_since(data: Data, rows: Mapping[str, Proposal]) -> str:
    """The addition to a recorded reply that reported unknown outcomes of which some are known by
    now: they are stated with it, and the addition corrects its text."""
    stated = [*data.outcomes, *data.executed_cmds]
    unknown = [rows.get(d.id or "") for d in stated if d.output.startswith("Outcome unknown:")]
    known = [r for r in unknown if r and r.state in ("DONE", "FAILED") and not r.purged]
    if not known:
        return ""
    names = ", ".join(dict.fromkeys(map(_what, known)))
    return f"Since this was written it has become known how {names} ended: see its outcome."


def _what(row: Proposal) -> str:
    return str(row.input.get("command")) if row.kind == "command" else row.name


def late_note(row: Proposal) -> str:
    """The note about an outcome that came after the model was told that there is none."""
    what = row.input.get("command") if row.kind == "command" else json.dumps(row.input)
    return f"The earlier call {row.name} {what} has now ended: {outcome_text(row)[0]}"


class KnownOutcomes:
    """The outcome of each call as the model reads it, and whether as an error.

    The ledger takes precedence over the messages, unless a purge has removed the outcome.
    """

    def __init__(self, messages: Sequence[Message], found: Decided) -> None:
        self._outcomes: dict[str, tuple[str, bool]] = {}
        self.reported: set[str] = set()
        """The calls whose outcome a message reports."""
        self.commands: set[str] = set()
        """The commands whose outcome a message reports, by their text."""
        for message in messages:
            if message.data is not None:
                self._read(message.data)
        for row in found.rows.values():
            if not row.purged or row.id not in self._outcomes:
                self._outcomes[row.id] = outcome_text(row)

    def of(self, id_: str) -> tuple[str, bool]:
        """The outcome of a call, and whether it is an error."""
        return self._outcomes.get(id_, (NEVER_DECIDED, True))

    def result(self, id_: str) -> Result:
        """The result of a call for the model."""
        return Result(id_, *self.of(id_))

    def _read(self, data: Data) -> None:
        for done in data.outcomes:
            failed = done.output.startswith(_FAILURES)
            self._outcomes.setdefault(done.id, (spoken(done.output), failed))
            self.reported.add(done.id)
        self.commands |= {ran.command for ran in commands_run(data)}
        for item in data.stated:
            if item.rejection_reason:
                rejected = f"Rejected by the user: {item.rejection_reason}"
                self._outcomes.setdefault(item.id, (rejected, True))


def calls_run(data: Data) -> list[ExecutedToolCall | ExecutedApproval]:
    """The tool calls whose outcome the message reports."""
    if not data.executed_approvals:
        return [*data.executed_tool_calls]
    approved = [e for e in data.executed_approvals if e.type == "tool_call"]
    return [*data.executed_tool_calls, *approved]


def commands_run(data: Data) -> list[ExecutedCommand]:
    """The commands whose outcome the message reports."""
    if not data.executed_approvals:
        return [*data.executed_cmds]
    approved = [
        ExecutedCommand(command=str(e.input.get("command")), output=e.output, id=e.id)
        for e in data.executed_approvals
        if e.type == "command"
    ]
    return [*data.executed_cmds, *approved]


def paired(turns: Sequence[Turn]) -> list[Turn]:
    """The turns in a form that every provider accepts: alternating, beginning and ending with the
    user, each call answered in the next turn exactly once, ids unique, nothing blank, none
    dropped."""
    # Not a new list for each turn: a history may have thousands of one role in a row.
    blocks: list[Block] = []
    merged = [Turn("user", blocks)]
    for turn in turns:
        last = merged[-1]
        if last.role == turn.role:
            last.raw = _raw_of_both(last, turn)
            blocks += turn.blocks
        else:
            blocks = [*turn.blocks]
            merged.append(Turn(turn.role, blocks, turn.raw))
    if merged[-1].role == "assistant":
        merged.append(Turn("user", []))
    if len(merged) > 1 and not merged[0].blocks:
        merged[0] = Turn("user", [Text("(The beginning of the conversation is not shown.)")])
    seen: dict[str, int] = {}
    for index in range(1, len(merged) - 1, 2):
        merged[index], merged[index + 1] = _pair(merged[index], merged[index + 1], seen)
    first = [b for b in merged[0].blocks if not isinstance(b, Result)]
    merged[0] = Turn("user", first or [Text("(continue)")])
    return merged


def _pair(asking: Turn, answering: Turn, seen: dict[str, int]) -> tuple[Turn, Turn]:
    if len(asking.blocks) == len(answering.blocks) == 1:
        # Nearly all turns are a text, a call or its result, and a pair already.
        said, answer = asking.blocks[0], answering.blocks[0]
        if type(said) is Call and type(answer) is Result:
            if said.id == answer.call_id and said.id not in seen:
                seen[said.id] = 1
                return asking, answering
        elif type(said) is Text and type(answer) is Text:
            if said.text.strip() and answer.text.strip():
                return asking, answering
    # A dict instead of single searches: a client's history may have thousands of calls.
    given: dict[str, Result] = {}
    after: list[Block] = []
    for block in answering.blocks:
        if isinstance(block, Result):
            given.setdefault(block.call_id, block)
        elif isinstance(block, Attachment) or (isinstance(block, Text) and block.text.strip()):
            after.append(block)
    blocks: list[Block] = []
    results: dict[str, Block] = {}
    for block in asking.blocks:
        if isinstance(block, Text) and block.text.strip():
            blocks.append(block)
        elif isinstance(block, Call) and block.id not in results:
            result = given.get(block.id) or Result(block.id, LOST, True)
            fresh = unused_id(block.id, seen)
            renamed = fresh != block.id
            results[block.id] = replace(result, call_id=fresh) if renamed else result
            blocks.append(replace(block, id=fresh) if renamed else block)
    raw = asking.raw
    if blocks != asking.blocks:
        # Provider data beside the calls is matched by their order, which is valid only if none was
        # dropped.
        none_dropped = len(results) == sum(isinstance(b, Call) for b in asking.blocks)
        raw = bound_to_model(raw) if none_dropped else None
    answers = [*results.values(), *after]
    return (
        Turn("assistant", blocks or [Text("(no reply)")], raw),
        Turn("user", answers or [Text("(continue)")]),
    )


def _raw_of_both(first: Turn, second: Turn) -> Mapping[str, Any] | None:
    """The provider blocks of two neighbours as one turn."""
    if not second.blocks:
        return first.raw
    if not first.blocks:
        return second.raw
    for turn, other in ((first, second), (second, first)):
        raw = bound_to_model(turn.raw)
        if raw and not any(isinstance(block, Call) for block in other.blocks):
            return raw
    return None


class Mentions:
    """An index made by examining each message once, however many calls a long conversation has
    had."""

    def __init__(
        self, messages: Sequence[Message], chosen: Iterable[tuple[Choice, Proposal]]
    ) -> None:
        beside = _decided_beside(messages, chosen)
        self.stated = [stated_ids(m.data) | beside.get(n, set()) for n, m in enumerate(messages)]
        """The ids that each message proposes or decides, and the ids decided in the previous
        one."""
        self._shown: dict[str, int] = {}
        self._by_assistant: dict[str, int] = {}
        self._decided: dict[str | bytes, list[int]] = {}
        for index, message in enumerate(messages):
            for id_ in shown_ids(message.data):
                self._shown.setdefault(id_, index)
                if message.role == "assistant":
                    self._by_assistant.setdefault(id_, index)
            for key in _decisions(message.data) | beside.get(index, set()):
                self._decided.setdefault(key, []).append(index)

    def shown(self, ids: Iterable[str]) -> int | None:
        """The index of the first message that has one of the ids."""
        return min((self._shown[id_] for id_ in ids if id_ in self._shown), default=None)

    def shown_by_assistant(self, ids: Iterable[str]) -> int | None:
        """The index of the first assistant message that has one of the ids."""
        found = self._by_assistant
        return min((found[id_] for id_ in ids if id_ in found), default=None)

    def decided(self, row: Proposal, start: int) -> int | None:
        """The index of the first message from `start` on that decides `row` or reports its
        outcome."""
        keys: list[str | bytes] = [row.id]
        if row.kind == "command":
            keys.append(command_key(row.input))
        found = [self._decided.get(key, ()) for key in keys]
        return min((at[n] for at in found if (n := bisect_left(at, start)) < len(at)), default=None)


def _decided_beside(
    messages: Sequence[Message], chosen: Iterable[tuple[Choice, Proposal]]
) -> dict[int, set[str]]:
    """The tool calls that a user's message decides by the statements of the assistant message
    before it.

    Commands never block: a message after them need not be the one that decided them.
    """
    # Interceptors see an approval further back as decided; that says nothing about it here.
    found = [(int(c.loc[2]), row.id) for c, row in chosen if row.kind == "tool_call"]
    for index, message in enumerate(messages):
        for item in message.data.stated if message.data is not None else ():
            if item.rejection_reason and getattr(item, "type", "") != "command":
                found.append((index, item.id))
    beside: dict[int, set[str]] = {}
    for index, id_ in found:
        if [m.role for m in messages[index : index + 2]] == ["assistant", "user"]:
            beside.setdefault(index + 1, set()).add(id_)
    return beside


def _decisions(data: Data | None) -> set[str | bytes]:
    """The identities of everything that a message decides or reports the outcome of: ids, and the
    identity of commands."""
    if data is None:
        return set()
    stated = {item.id for item in data.stated if item.execute or item.rejection_reason}
    decided = [c for c in data.cmds if c.execute or c.rejection_reason]
    commands = {command_key(command_input(c)) for c in decided}
    return stated | {e.id for e in data.outcomes} | commands
