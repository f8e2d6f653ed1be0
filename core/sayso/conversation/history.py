"""A conversation as the model gets it: native calls and results, always paired.

Suspended turns come from the ledger, block by block; calls that are not in the ledger are rebuilt
from the messages (design, section 5, "Messages to the model").
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sayso.conversation.approvals import command_input, stated_ids
from sayso.conversation.attachments import attached, attachment
from sayso.conversation.calls import (
    LOST,
    NEVER_DECIDED,
    NOT_DECIDED,
    KnownOutcomes,
    Mentions,
    calls_run,
    commands_run,
    late_note,
    outcome_text,
    paired,
    spoken,
)
from sayso.ledger import RAN, Proposal, SuspendedTurn
from sayso.ledger.choices import Decided, command_key
from sayso.models import (
    Block,
    Call,
    Result,
    Text,
    Turn,
    bound_to_model,
    dump_turns,
    load_turns,
)
from sayso.wire.messages import (
    Approval,
    Command,
    Data,
    ExecutedApproval,
    ExecutedToolCall,
    Message,
    ToolCall,
)


def model_turns(
    messages: Sequence[Message],
    found: Decided,
    references: Sequence[str],
    prefix: str,
) -> list[Turn]:
    """The turns for an `Ask`: alternating, first and last a user's, each call answered once.

    `references` are the prefix digests of the messages as received; `prefix` is the digest of the
    model, system prompt, context and tools. Provider blocks are sent verbatim if `bound_to` returns
    the same digest for everything before them as when they were made; data bound to its model alone
    is always sent.
    """
    if not found.rows and not found.turns and (turns := _texts(messages)):
        return turns
    return Builder(messages, found, references, prefix).build()


def bound_to(prefix: str, turns: Iterable[Turn]) -> str:
    """The digest of everything that a model had received before it produced its blocks.

    A provider that signs thinking refuses it, and everything after it, if anything before it
    differs.
    """
    running = hashlib.sha256(prefix.encode())
    for turn in turns:
        running.update(_as_sent(turn))
    return running.hexdigest()[:32]


def _as_sent(turn: Turn) -> bytes:
    return json.dumps(dump_turns([turn]), sort_keys=True, default=str).encode()


def _texts(messages: Sequence[Message]) -> list[Turn] | None:
    """The turns of a conversation of alternating texts and nothing else; None for any other.

    Most conversations are of this kind, and need neither the builder nor `paired`.
    """
    turns: list[Turn] = []
    role: Literal["user", "assistant"] = "user"
    for message in messages:
        if message.data is not None or message.role != role or not message.content.strip():
            return None
        turns.append(Turn(role, [Text(message.content)]))
        role = "assistant" if role == "user" else "user"
    return turns if role == "assistant" else None


_AnyCall = ToolCall | Approval | ExecutedToolCall | ExecutedApproval | Proposal


def _proposed(data: Data) -> list[ToolCall | Approval]:
    """The tool calls that the message states; of two with one id the last."""
    calls = {call.id: call for call in data.stated}.values()
    return [call for call in calls if call.name and getattr(call, "type", "") != "command"]


@dataclass(slots=True)
class Builder:
    """Makes the turns of these messages, one message after another."""

    messages: Sequence[Message]
    found: Decided
    references: Sequence[str]
    prefix: str
    places: dict[int, list[SuspendedTurn]] = field(default_factory=dict)
    """The suspended turns placed at or before each message."""
    taken_place: set[int] = field(default_factory=set)
    """The messages that a suspended turn replaces."""
    late: dict[int, list[str]] = field(default_factory=dict)
    """The notes before each message about outcomes that came late."""
    out: list[Turn] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    """The calls that are in `out`, or will be."""
    decided_in: dict[str, int] = field(default_factory=dict)
    """The message with the decision of each call."""
    placed: dict[tuple[str | int, ...], str] = field(default_factory=dict)
    """The call that is decided at each place of the request."""
    mentions: Mentions = field(init=False)
    known: KnownOutcomes = field(init=False)
    answered: dict[str, int] = field(default_factory=dict)
    """The message that ends the prefix of each reference."""
    rows: dict[str, list[Proposal]] = field(default_factory=dict)
    """The proposals of each suspended turn."""
    commands: dict[str, list[Proposal]] = field(default_factory=dict)
    """Its commands, by their text."""
    made: list[tuple[str, list[Mapping[str, Any]]]] = field(default_factory=list)
    """The provider blocks of each suspended turn, with the digest that the last of them are bound
    to."""

    def build(self) -> list[Turn]:
        return self._verbatim(paired(self.unpaired()))

    def unpaired(self) -> list[Turn]:
        self._look()
        for turn in sorted(self.found.turns.values(), key=lambda t: t.created):
            if turn.transcript:
                self.places.setdefault(self._place(turn), []).append(turn)
                self.called.update(turn.calls)
        self.known = KnownOutcomes(self.messages, self.found)
        for choice, row in self.found.chosen:
            if not choice.copy:
                self.decided_in[row.id] = int(choice.loc[2])
                self.placed[choice.loc] = row.id
        for index, message in enumerate(self.messages):
            for turn in self.places.get(index, []):
                self._suspended(turn, index)
            if message.role == "assistant":
                self._assistant(index, message)
            else:
                self._user(index, message)
        for turn in self.places.get(len(self.messages), []):
            self._suspended(turn, len(self.messages))
        return self.out

    def _look(self) -> None:
        """Make the indexes for looking up calls: a long conversation has thousands."""
        for row in self.found.rows.values():
            if row.kind == "command":
                self.commands.setdefault(row.input.get("command", ""), []).append(row)
        if not self.found.turns:
            # The other indexes are for the places of suspended turns.
            return
        self.mentions = Mentions(self.messages, self.found.chosen)
        self.rows = self.found.by_turn()
        for index, reference in enumerate(self.references):
            self.answered.setdefault(reference, index)

    def _verbatim(self, turns: list[Turn]) -> list[Turn]:
        """The turns with provider blocks, but only where the provider still accepts them."""
        if not self.made:
            return turns
        running = hashlib.sha256(self.prefix.encode())
        found: dict[int, str] = {}
        for turn in turns:
            found[id(turn.raw)] = running.hexdigest()[:32]
            running.update(_as_sent(turn))
        kept: set[int] = set()
        for bound, blocks in self.made:
            if found.get(id(blocks[-1])) != bound:
                break
            kept |= {id(raw) for raw in blocks}
        return [
            turn if id(turn.raw) in kept else replace(turn, raw=bound_to_model(turn.raw))
            for turn in turns
        ]

    def _place(self, turn: SuspendedTurn) -> int:
        """The index of the message that the suspended turn replaces or precedes; the number of
        messages if it comes last."""
        shown = self.mentions.shown_by_assistant(turn.calls)
        if shown is not None:
            if not stated_ids(self.messages[shown].data).isdisjoint(turn.calls):
                self.taken_place.add(shown)
            return shown
        answered = self.answered.get(turn.reference)
        if answered is not None:
            index, behind = answered + 1, self.messages[answered + 1 : answered + 2]
            # Decided in the very message that was answered, as by a client that sends it again: the
            # following messages are then not the proposal.
            rows = self.rows.get(turn.id, ())
            again = any(self.mentions.decided(row, answered) == answered for row in rows)
            if behind or again:
                if behind and not again and behind[0].role == "assistant":
                    self.taken_place.add(index)
                return index
        carrier = self.mentions.shown(turn.calls)
        return len(self.messages) - 1 if carrier is None else carrier

    def _suspended(self, turn: SuspendedTurn, index: int) -> None:
        turns = load_turns(turn.transcript)
        if blocks := [t.raw for t in turns if t.raw]:
            self.made.append((turn.prefix, blocks))
        partial = list(turns.pop().blocks) if turns[-1].role == "user" else []
        have = {b.call_id: b for b in partial if isinstance(b, Result)}
        rows: dict[str, list[Proposal]] = {}
        for row in self.rows.get(turn.id, ()):
            rows.setdefault(row.call_id, []).append(row)
        results: list[Block] = []
        for block in turns[-1].blocks:
            if isinstance(block, Call):
                given = have.get(block.id) or self._result(block, rows.get(block.id, []), index)
                results.append(given)
        self.out += [*turns, Turn("user", results)]

    def _result(self, call: Call, rows: Sequence[Proposal], index: int) -> Result:
        if not rows:
            return Result(call.id, LOST, True)
        outcomes = [self._shown_outcome(row, index) for row in rows]
        if rows[0].kind == "tool_call":
            return Result(call.id, *outcomes[0])
        lines = [
            f"$ {row.input.get('command', '')}\n{text}"
            for row, (text, _) in zip(rows, outcomes, strict=True)
        ]
        return Result(call.id, "\n".join(lines), all(failed for _, failed in outcomes))

    def _shown_outcome(self, row: Proposal, index: int) -> tuple[str, bool]:
        """The result of the call in its own place, as the model reads it, and whether it is an
        error."""
        decided = self._decided_at(row, index)
        if decided is not None and row.state not in ("PENDING", "EXPIRED"):
            if self._went_on(row, index, decided):
                self.late.setdefault(decided, []).append(late_note(row))
                return NOT_DECIDED, True
        return self.known.of(row.id)

    def _decided_at(self, row: Proposal, index: int) -> int | None:
        itself = self.messages[index : index + 1]
        by_assistant = bool(itself) and itself[0].role == "assistant"
        return self.mentions.decided(row, index + by_assistant)

    def _went_on(self, row: Proposal, index: int, decided: int) -> bool:
        calls = self.found.turns[row.turn].calls
        begin = index if self.messages[index].role == "user" else index + 1
        return any(
            self.messages[n].content.strip() and self.mentions.stated[n].isdisjoint(calls)
            for n in range(begin, decided)
        )

    def _assistant(self, index: int, message: Message) -> None:
        if message.data is None:
            if message.content.strip() and index not in self.taken_place:
                self.out.append(Turn("assistant", [Text(message.content)]))
            return
        data = message.data
        own = self._new(_proposed(data)) if data.tool_calls or data.approvals else []
        if before := self._new(calls_run(data)):
            self.out.append(Turn("assistant", [*before]))
            self.out.append(self._results(before))
        notes = [*self.late.get(index, ())]
        blocks: list[Block] = []
        if index not in self.taken_place:
            notes += self._commands(data, index)
            if message.content.strip():
                blocks.append(Text(message.content))
        if notes:
            self.out.append(Turn("user", [Text(text, note=True) for text in notes]))
        if blocks or own:
            self.out.append(Turn("assistant", [*blocks, *own]))
        if own:
            self.out.append(self._results(own))

    def _new(self, calls: Iterable[_AnyCall]) -> list[Call]:
        """Those of the calls that the model has not been shown; from now on it has."""
        new = [Call(c.id, c.name, c.input) for c in calls if c.id not in self.called]
        self.called.update([call.id for call in new])
        return new

    def _results(self, calls: Iterable[Call]) -> Turn:
        return Turn("user", [self.known.result(call.id) for call in calls])

    def _user(self, index: int, message: Message) -> None:
        if message.data is None:
            self._said(self.late.get(index, ()), message)
            return
        data = message.data
        if calls := self._new([*calls_run(data), *self._directly_proposed(data)]):
            self.out.append(Turn("assistant", [*calls]))
            self.out.append(self._results(calls))
        notes = [*self.late.get(index, ()), *self._commands(data, index)]
        self._said([*notes, *self._unplaced(data, index)], message)

    def _said(self, notes: Sequence[str], message: Message) -> None:
        blocks: list[Block] = [Text(note, note=True) for note in notes]
        if message.content.strip():
            blocks.append(Text(message.content))
        if message.data is not None and message.data.model_extra:
            blocks += map(attachment, attached(message))
        if blocks:
            self.out.append(Turn("user", blocks))

    def _directly_proposed(self, data: Data) -> list[Proposal]:
        """The tool calls stated here that no model made, such as those of an MCP client."""
        rows = [self.found.rows.get(item.id) for item in data.stated]
        return [row for row in rows if row is not None and row.kind == "tool_call"]

    def _unplaced(self, data: Data, index: int) -> list[str]:
        """Outcomes in a user message of calls that no assistant message shows."""
        texts = []
        at = ("body", "messages", index, "data", "approvals")
        ids = [call.id for call in data.tool_calls]
        # A command may have been decided by its text, with an empty id.
        ids += [a.id or self.placed.get((*at, n), "") for n, a in enumerate(data.approvals)]
        for id_, item in zip(ids, data.stated, strict=True):
            row = self.found.rows.get(id_)
            if id_ in self.called or (row is None and id_ in self.known.reported):
                continue
            self.called.add(id_)
            if row is not None:
                texts.append(late_note(row))
            elif id_ and (item.execute or item.rejection_reason):
                name = item.name or item.id
                texts.append(f"The call {name} was never run: {NEVER_DECIDED}")
        return texts

    def _commands(self, data: Data, index: int) -> list[str]:
        """Commands that are in no suspended turn, as plain text."""
        texts = []
        run = commands_run(data)
        if not (run or data.cmds):
            return []
        held = {done.command for done in run if self._is_held(done.command)}
        for done in run:
            if done.command not in held and done.id not in self.called:
                self.called |= {done.id} if done.id else set()
                rejected = done.output.startswith("Rejected:")
                what = "was suggested. " if rejected else "was run:\n"
                texts.append(f"The command `{done.command}` {what}{spoken(done.output)}")
        for n, command in enumerate(data.cmds):
            what = f"The command `{command.command}` was suggested."
            row = self._row_of(command, index, n)
            if row is None:
                reason = command.rejection_reason
                state = f"Rejected by the user: {reason}" if reason else NOT_DECIDED
                known = command.id in self.called or command.command in self.known.commands
                if not command.execute and not known:
                    texts.append(f"{what} {state}")
            elif row.id not in self.called:
                if self.decided_in.get(row.id, index) > index:
                    texts.append(what)
                    continue
                self.called.add(row.id)
                ran = f"The command `{command.command}` was run:\n"
                texts.append((ran if row.state in RAN else f"{what} ") + outcome_text(row)[0])
        return texts

    def _is_held(self, command: str) -> bool:
        return any(row.id in self.called for row in self.commands.get(command, ()))

    def _row_of(self, command: Command, index: int, n: int) -> Proposal | None:
        """The ledger's row of a command: by its id, by its decision, or else by its text."""
        at = ("body", "messages", index, "data", "cmds", n)
        rows = self.found.rows
        if (row := rows.get(command.id or self.placed.get(at, ""))) is not None:
            return row
        wanted = command_key(command_input(command))
        equal = (
            row
            for row in self.commands.get(command.command, ())
            if (row.id in self.called or row.id in self.decided_in)
            and command_key(row.input) == wanted
        )
        return next(equal, None)
