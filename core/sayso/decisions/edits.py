"""Inputs changed by an approver (design, section 6, "Edited input")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sayso.engine import Engine
from sayso.errors import InvalidRequest, ToolInputError
from sayso.ledger import Proposal
from sayso.ledger.choices import Decided, Edit
from sayso.tools import Tool
from sayso.tools.inputs import recorded
from sayso.trees import canonical
from sayso.wire.masking import holds_secret


class _Unread(Exception):
    """A changed input that its tool has not validated yet; raising it undoes the transaction."""


class Edits:
    """The inputs that an approver changed, with what their tools validated of them so far.

    Tools validate between transactions: validators are user code, and a slow one would delay all
    other approvals.
    """

    def __init__(self, engine: Engine, secrets: Sequence[str]) -> None:
        self._engine = engine
        self.secrets = secrets
        # The input that each tool gets for a changed input, or the error of its validation.
        self._read: dict[bytes, ToolInputError | dict[str, Any]] = {}
        self._unread: dict[bytes, tuple[Tool[..., Any], dict[str, Any]]] = {}

    async def decided(self, decide: Callable[[Edit], Awaitable[Decided]]) -> Decided:
        """The result of `decide`, which is called with the edits until all of them are
        validated."""
        while True:
            try:
                found = await decide(self._edit)
            except (_Unread, InvalidRequest):
                if not self._unread:
                    raise
            else:
                if not self._unread:
                    return found
            await self._have_read()

    def _edit(self, row: Proposal, stated: dict[str, Any]) -> dict[str, Any] | None:
        """The input that the tool gets for the changed one, if it allows the change.

        Raises ToolInputError if the input does not fit the tool's schema or holds a secret. The
        first time, an input that was not validated yet passes, so that one transaction finds all of
        them; then it raises _Unread.
        """
        tool = self._engine.agent.tools.get(row.name)
        if row.kind != "tool_call" or tool is None or not tool.editable:
            return None
        if holds_secret(stated, self.secrets):
            raise ToolInputError("it holds a secret of the platform context")
        # Unchanged parameters run as recorded, since the client may have rounded a number.
        edited = {
            name: row.runs[name] if _equal(name, stated, row.runs) else value
            for name, value in stated.items()
        }
        key = canonical([row.id, row.revision, edited])
        if key not in self._read:
            if key in self._unread:
                raise _Unread
            self._unread[key] = tool, edited
            return edited
        if isinstance(known := self._read[key], ToolInputError):
            raise known
        return known if _may_change(tool, row.runs, known) else None

    async def _have_read(self) -> None:
        unread, self._unread = self._unread, {}
        for key, (tool, edited) in unread.items():
            try:
                found = await self._engine.code.check(recorded, tool, edited)
                self._read[key] = found.input
            except ToolInputError as error:
                self._read[key] = error


def _may_change(tool: Tool[..., Any], before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether the tool lets an approver change the fields in which the two inputs differ."""
    if isinstance(tool.editable, bool):
        return tool.editable
    return all(name in tool.editable or _equal(name, before, after) for name in {*before, *after})


def _equal(name: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    return name in one and name in other and canonical(one[name]) == canonical(other[name])
