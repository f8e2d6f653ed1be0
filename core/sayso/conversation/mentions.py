"""The messages of a conversation that show and decide each call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sayso.conversation.approvals import command_input, shown_ids, stated_ids
from sayso.ledger import Proposal
from sayso.ledger.choices import Choice, command_key
from sayso.wire.messages import Data, Message


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
