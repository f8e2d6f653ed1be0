"""A conversation whose beginning was shown to the model before: its turns are made once."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from sayso.conversation.calls import paired
from sayso.conversation.history import Builder
from sayso.ledger.choices import Decided
from sayso.models import Text, Turn
from sayso.wire.histories import History
from sayso.wire.messages import Data, Message


class _Shown(NamedTuple):
    """The first messages of a conversation, `length` of them, as the model gets them, ending with a
    text of the assistant's, and the calls in them."""

    length: int
    turns: Sequence[Turn]
    called: Set[str]


_NOTHING_SHOWN = _Shown(0, (), frozenset())


def continued_turns(messages: Sequence[Message], history: History) -> list[Turn] | None:
    """The turns of a conversation whose history was shown before; None if later messages may change
    the turns of that history."""
    shown: _Shown | None = history.shown
    if shown is None:
        before = history.before or _NOTHING_SHOWN
        shown = history.shown = _more_shown(before, history.messages) or _NOTHING_SHOWN
    if not shown.length:
        return None
    newest = messages[-1]
    if newest.data is None and newest.content.strip() and len(messages) == shown.length + 1:
        more = [Turn("user", [Text(newest.content)])]
    elif (added := _added(shown, messages)) is not None:
        more = paired(added[0])
    else:
        return None
    # Each request gets lists of its own: a model that changes them, although it should not, changes
    # none of later requests.
    return [Turn(turn.role, [*turn.blocks]) for turn in shown.turns] + more


def _more_shown(before: _Shown, messages: Sequence[Message]) -> _Shown | None:
    if not all(m.data is None or _is_settled(m.data) for m in messages[before.length :]):
        return None
    added = _added(before, messages)
    if added is None or added[0][-1].role != "assistant":
        return None
    out, called = added
    # The last turn is the answer of a user, which `paired` adds; it is left out.
    return _Shown(len(messages), (*before.turns, *paired(out)[:-1]), called)


def _is_settled(data: Data) -> bool:
    """Whether no later message says more of what these data state."""
    stated = data.cmds, data.executed_cmds, data.tool_calls, data.approvals
    return not any(stated) and not data.executed_approvals


def _added(shown: _Shown, messages: Sequence[Message]) -> tuple[list[Turn], Set[str]] | None:
    """The turns of the messages behind those that were shown, before they are paired, and all calls
    so far; None if these turns are to be joined with the last one before them."""
    builder = Builder(messages[shown.length :], Decided(), (), "", called={*shown.called})
    out = builder.unpaired()
    if not out or (shown.length and out[0].role != "user"):
        return None
    return out, builder.called
