"""Inputs that an approver changed (design, section 6, "Edited input")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assent import approvals
from assent.canonical import canonical
from assent.code import UserCode
from assent.errors import InvalidRequest, ToolInputError
from assent.ledger import Proposal
from assent.ledger.choices import Decided, Edit
from assent.tools import Tool

if TYPE_CHECKING:
    from assent.engine import Engine

Read = dict[bytes, ToolInputError | None]
"""What the tools say of changed inputs; None of those that fit."""


class Unread(Exception):
    """A changed input that its tool has not validated; the transaction is undone."""


async def with_edits(
    engine: Engine,
    secrets: Sequence[str],
    known: Read,
    decide: Callable[[Edit], Awaitable[Decided]],
) -> Decided:
    """What `decide` gives, called with how an input may be changed until all changed ones are
    read; `known` keeps what their tools say."""
    while True:
        edits = Edits(engine.agent.tools, secrets, known)
        try:
            found = await decide(edits.edit)
        except (Unread, InvalidRequest):
            if not edits.unread:
                raise
        else:
            if not edits.unread:
                return found
        await edits.read(engine.code)


class Edits:
    """The changed inputs of a request, one time that its decisions are looked at.

    Tools validate them between transactions: validators are user code, and one that takes its
    time would hold up everybody's approvals.
    """

    def __init__(self, tools: Mapping[str, Tool[..., Any]], secrets: Sequence[str], known: Read):
        self._tools = tools
        self._secrets = secrets
        self._known = known
        self.unread: dict[bytes, tuple[Tool[..., Any], dict[str, Any]]] = {}

    def edit(self, row: Proposal, stated: dict[str, Any]) -> dict[str, Any] | None:
        """The input to run when the tool allows the change; raises ToolInputError where it does
        not fit the tool's schema.

        What was not read yet passes once, so that all of it comes together, and then raises
        Unread.
        """
        tool = self._tools.get(row.name)
        if row.kind != "tool_call" or tool is None or not tool.editable:
            return None
        changed = {
            name
            for name in {*stated, *row.input}
            if name not in stated
            or name not in row.input
            or canonical(stated[name]) != canonical(row.input[name])
        }
        if not isinstance(tool.editable, bool) and not changed <= set(tool.editable):
            return None
        if approvals.holds_secret(stated, self._secrets):
            return None
        # What was left as it was runs as it was recorded: a client may have rounded a number.
        edited = {
            name: value if name in changed else row.input[name] for name, value in stated.items()
        }
        key = canonical([row.id, edited])
        if key not in self._known:
            if key in self.unread:
                raise Unread
            self.unread[key] = tool, edited
        elif error := self._known[key]:
            raise error
        return edited

    async def read(self, code: UserCode) -> None:
        """Have what was unread validated."""
        for key, (tool, edited) in self.unread.items():
            try:
                await code.check(tool.validate, edited)
            except ToolInputError as error:
                self._known[key] = error
            else:
                self._known[key] = None
