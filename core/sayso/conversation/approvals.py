"""Decisions in messages, and proposals as the wire shows them (design, sections 6 and 7)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, TypeVar, overload

from sayso.context import Session
from sayso.ledger import Proposal, is_own_id
from sayso.ledger.choices import Choice, command_key
from sayso.ledger.voting import votes
from sayso.trees import copied
from sayso.wire.events import ToolCallApproved, ToolCallRejected
from sayso.wire.messages import (
    Approval,
    ChatRequest,
    Command,
    Data,
    ExecutedApproval,
    ExecutedCommand,
    ExecutedToolCall,
    Kind,
    Message,
    ToolCall,
)

Item = TypeVar("Item", ToolCall, Approval, Command)


def choices(messages: Sequence[Message]) -> list[Choice]:
    """The decisions of a request: the newest message's; for ids that it does not name, those of the
    assistant message directly before it whose outcomes it does not state; copies further back come
    last."""
    last = len(messages) - 1
    found = _in_message(messages[last], last, newest=True)
    named = stated_ids(messages[last].data)
    if last and (before := messages[last - 1]).role == "assistant":
        ended = _ended(before.data)
        found += [
            choice
            for choice in _in_message(before, last - 1, newest=False)
            if choice.id not in named and _key(choice) not in ended
        ]
        named |= stated_ids(before.data) - ended
    for index in range(last):
        if (data := messages[index].data) is None:
            continue
        for call in data.stated:
            if call.execute and call.id not in named:
                named.add(call.id)
                found.append(_copy(call, index))
    if not messages[last].content.strip() and all(choice.copy for choice in found):
        found += _open(messages)
    return found


def _ended(data: Data | None) -> set[str]:
    """The ids of the calls whose outcomes a message states, and the texts of such commands without
    an id; another service may have run them."""
    if data is None:
        return set()
    return {o.id for o in data.outcomes} | {ran.id or ran.command for ran in data.executed_cmds}


def _key(choice: Choice) -> str | None:
    return choice.id or (choice.input or {}).get("command")


def _open(messages: Sequence[Message]) -> list[Choice]:
    """The undecided commands without an id, which an empty message asks to have restated."""
    return [
        choice
        for index, message in enumerate(messages)
        if message.data is not None
        for choice in _commands(message.data, index, newest=False)
        if choice.copy and not choice.id
    ]


def _copy(call: ToolCall | Approval, index: int) -> Choice:
    return Choice(
        call.id,
        _kind(call) if isinstance(call, Approval) else "tool_call",
        True,
        ("body", "messages", index),
        False,
        through_approvals=isinstance(call, Approval),
        copy=True,
    )


def _kind(item: Approval) -> Kind | None:
    return item.type if "type" in item.model_fields_set else None


def stated_ids(data: Data | None) -> set[str]:
    """The ids of the proposals and decisions in a message."""
    if data is None:
        return set()
    ids = {item.id for item in data.stated}
    return ids | {c.id for c in data.cmds if c.id} if data.cmds else ids


def _in_message(message: Message, index: int, *, newest: bool) -> list[Choice]:
    if (data := message.data) is None:
        return []
    at = ("body", "messages", index, "data")
    found = [
        _of_call(call, (*at, "tool_calls", n), newest)
        for n, call in enumerate(data.tool_calls)
        if call.execute or call.rejection_reason
    ]
    found += [
        _of_approval(item, (*at, "approvals", n), newest)
        for n, item in enumerate(data.approvals)
        if item.execute or item.rejection_reason
    ]
    return found + [choice for choice in _commands(data, index, newest) if not choice.copy]


def _of_call(call: ToolCall, loc: tuple[str | int, ...], newest: bool) -> Choice:
    return _choice(call, "tool_call", loc, newest, call.name, copied(call.input))


def _of_approval(item: Approval, loc: tuple[str | int, ...], newest: bool) -> Choice:
    stated = item.model_fields_set
    name = item.name if "name" in stated and item.name else None
    given = copied(item.input) if "input" in stated else None
    return _choice(item, _kind(item), loc, newest, name, given, through_approvals=True)


def _choice(
    item: ToolCall | Approval | Command,
    kind: Kind | None,
    loc: tuple[str | int, ...],
    newest: bool,
    name: str | None,
    given: dict[str, Any] | None,
    **how: Any,
) -> Choice:
    said, why = item.rejection_reason or None, item.reason or None
    return Choice(
        item.id, kind, item.execute, loc, newest, said, name, given, why=why, seen=item.seen, **how
    )


def _commands(data: Data, index: int, newest: bool) -> list[Choice]:
    """The commands of a message; one that is not decided is a copy."""
    found: list[Choice] = []
    equal: Counter[object] = Counter()
    for n, command in enumerate(data.cmds):
        given = command_input(command)
        same = command_key(given)
        ordinal = equal[same]
        equal[same] += 1
        is_copy = not (command.execute or command.rejection_reason)
        loc = ("body", "messages", index, "data", "cmds", n)
        how = {"copy": is_copy, "message": index, "ordinal": ordinal}
        found.append(_choice(command, "command", loc, newest, "command", given, **how))
    return found


def shown(messages: Iterable[Message]) -> list[str]:
    """The ids of every call and outcome in the messages."""
    return [id_ for message in messages for id_ in shown_ids(message.data)]


def shown_ids(data: Data | None) -> list[str]:
    """The ids of every call and outcome in a message."""
    if data is None:
        return []
    calls = data.tool_calls, data.approvals, data.executed_tool_calls, data.executed_approvals
    ids = [item.id for items in calls for item in items]
    if data.cmds or data.executed_cmds:
        ids += [command.id for command in data.cmds if command.id]
        ids += [command.id for command in data.executed_cmds if command.id]
    return ids


def last_shown(messages: Sequence[Message]) -> list[str]:
    """The ids in the newest assistant message."""
    for message in reversed(messages):
        if message.role == "assistant":
            return shown_ids(message.data)
    return []


def concerns_calls(messages: Iterable[Message], *, any_id: bool = False) -> bool:
    """Whether any message states a call or command, or the outcome of one that the ledger may know,
    so that the ledger is needed.

    With `any_id` it may know calls that other programs have named, otherwise only its own.
    """
    found = [m.data for m in messages if m.data is not None]
    if any(data.tool_calls or data.approvals or data.cmds for data in found):
        return True
    # Replies of other servers, and of callables that run their own tools, have outcomes, too.
    ended = [outcome.id for data in found for outcome in data.outcomes]
    ended += [ran.id for data in found for ran in data.executed_cmds if ran.id]
    return any(map(bool if any_id else is_own_id, ended))


def references(said: Iterable[tuple[str, str]]) -> list[str]:
    """The digest of each prefix of the messages' roles and contents, shortest first."""
    running = hashlib.sha256()
    found = []
    for role, content in said:
        # The bytes of `json.dumps([role, content])`, whose digest the rows of the ledger have.
        running.update(f"[{_quoted(role)}, {_quoted(content)}]".encode())
        found.append(running.hexdigest()[:32])
    return found


class References(Sequence[str]):
    """`references` of these messages, found when they are first needed: most requests need none."""

    def __init__(self, said: Sequence[tuple[str, str]]) -> None:
        self._said = said

    @cached_property
    def _found(self) -> Sequence[str]:
        return references(self._said)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._found[at]

    def __len__(self) -> int:
        return len(self._said)


def request_digest(content: str, decided: Sequence[tuple[Choice, Proposal]]) -> str:
    """The digest that is equal for two messages with the same decisions, whichever lists carry
    them."""
    decisions = sorted({(row.id, c.approved, c.reason or "") for c, row in decided if not c.copy})
    return hashlib.sha256(json.dumps([content, decisions]).encode()).hexdigest()[:32]


def command_input(command: Command) -> dict[str, Any]:
    """A command's content as a proposal's input."""
    files = [f.model_dump(include={"file_path", "file_content"}) for f in command.files or []]
    return {"command": command.command, "files": files or None}


def tool_call(row: Proposal) -> ToolCall:
    """The proposal as the `tool_calls` event shows it; `input` is what runs, edits included."""
    return ToolCall(
        id=row.id,
        name=row.name,
        input=copied(row.runs),
        execute=False,
        intent=row.intent,
        tool_description=row.description,
        input_description=row.input_description,
    )


def approval(
    row: Proposal,
    *,
    execute: bool = False,
    plain: bool = False,
    editable: bool | Sequence[str] = False,
) -> Approval:
    """The proposal in the shape that holds both kinds; `input` is what runs, edits included.

    A `plain` one has only the keys of V1. `editable` is its tool's.
    """
    return Approval(
        id=row.id,
        type=row.kind,
        name=row.name,
        input=copied(row.runs),
        execute=execute,
        description=row.description,
        intent=row.intent,
        input_description=row.input_description,
        bound=copied(row.bound),
        revision=None if plain else row.revision,
        editable=not plain and (editable if isinstance(editable, bool) else [*editable]),
        seen=None if plain else row.seen,
        votes={} if plain else votes(row),
        preview=None if plain else row.preview,
    )


def decision_event(row: Proposal, principal: str | None) -> ToolCallApproved | ToolCallRejected:
    """The event for handlers about a call that `principal` has just decided."""
    reason = row.decision.reason if row.decision else None
    if row.state == "REJECTED":
        return ToolCallRejected(approval(row), reason, principal)
    return ToolCallApproved(approval(row, execute=True), principal, reason)


def command(row: Proposal) -> Command:
    """The proposal as the `commands` event shows it."""
    return Command(
        command=row.input["command"], files=row.input["files"], id=row.id, intent=row.intent
    )


def executed_tool_call(row: Proposal) -> ExecutedToolCall:
    """The outcome in the form of `executed_tool_calls`; `input` is what ran."""
    return ExecutedToolCall(
        id=row.id, name=row.name, input=copied(row.runs), output=row.output or ""
    )


def executed_command(row: Proposal) -> ExecutedCommand:
    """The outcome in the form of `executed_commands`."""
    return ExecutedCommand(command=row.input.get("command", ""), output=row.output or "", id=row.id)


def executed_approval(row: Proposal) -> ExecutedApproval:
    """The outcome in the form of `executed_approvals`, rejections included."""
    return ExecutedApproval(
        id=row.id,
        type=row.kind,
        name=row.name,
        input=copied(row.runs),
        output=row.output or "",
    )


def as_seen(
    request: ChatRequest,
    live: Collection[str],
    states: Mapping[str, str],
    decided: Iterable[tuple[Choice, Proposal]] = (),
) -> ChatRequest:
    """The request as interceptors and callables see it.

    `execute` is true only for the `live` calls; all others carry their recorded `state`. A command
    in `decided` that was sent without an id gets its row's.
    """
    ids = {choice.loc: row.id for choice, row in decided if choice.id is None}
    messages = [
        m.model_copy(update={"data": _seen(_identified(m.data, index, ids), live, states)})
        if m.data is not None and has_state(m.data)
        else m
        for index, m in enumerate(request.messages)
    ]
    return request.model_copy(update={"messages": messages})


def _identified(data: Data, index: int, ids: Mapping[tuple[str | int, ...], str]) -> Data:
    if not ids:
        return data
    at = ("body", "messages", index, "data", "cmds")
    cmds = [
        command.model_copy(update={"id": ids.get((*at, n), command.id)})
        for n, command in enumerate(data.cmds)
    ]
    return data.model_copy(update={"cmds": cmds})


def has_state(data: Data) -> bool:
    """Whether `as_seen` shows this data differently from how it was sent."""
    return bool(data.tool_calls or data.approvals or data.cmds or data.session is not None)


def _seen(data: Data, live: Collection[str], states: Mapping[str, str]) -> Data:
    def one(item: Item) -> Item:
        changes: dict[str, Any] = {"execute": item.execute and (item.id or "") in live}
        if item.id and item.id in states and item.id not in live:
            changes["state"] = states[item.id]
        return item.model_copy(update=changes)

    session = None if data.session is None else Session(data.session).shown()
    return data.model_copy(
        update={
            "session": session,
            "tool_calls": [one(c) for c in data.tool_calls],
            "approvals": [one(c) for c in data.approvals],
            "cmds": [one(c) for c in data.cmds],
        }
    )
