"""Conversations of `chat` with pending calls, held until they can continue."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from sayso import AgentMessage, Caller, Host, Proposal
from sayso_mcp.questions import Answer
from sayso_mcp.waiting import CANCELLED, who

MOST = 1000
"""Most conversations held at once; the oldest is dropped first."""
logger = logging.getLogger("sayso.mcp")
Wire = dict[str, Any]
"""A message, or a part of one, as requests carry it."""
GoingOn = Callable[["Held"], Awaitable[None]]


@dataclass(slots=True)
class Held:
    """A conversation up to the agent's `reply`. `waiting` are its undecided calls; `texts` is all
    that the agent has said since the user's last message."""

    key: str
    messages: list[Wire]
    reply: AgentMessage
    stop_reason: str
    waiting: list[str]
    texts: list[str]
    unheard: bool = False
    """Whether its last reply was delivered to nobody, because it continued by itself."""


class Conversations:
    """The held conversations, found by the caller and the messages: the same message after the same
    history, or after more of it."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._watching: dict[str, asyncio.Task[None]] = {}

    def known(self, key: str) -> Held | None:
        """The conversation with this key, even if none of its calls is pending any more."""
        return self._held.get(key)

    def find(self, caller: Caller, said: Sequence[Wire]) -> tuple[Held | None, list[Wire]]:
        """The conversation that begins with these messages, if it has pending calls, and the
        messages after the agent's reply."""
        for end in range(len(said), 0, -1):
            held = self._held.get(key_of(caller, said[:end]))
            if held is not None and (held.waiting or held.unheard):
                more = list(said[end:])
                return held, more[1:] if more and more[0]["role"] == "assistant" else more
        return None, []

    def hold(self, held: Held) -> None:
        """Hold a conversation, replacing its earlier state."""
        self.drop(held)
        self._held[held.key] = held
        if len(self._held) > MOST:
            key, _ = self._held.popitem(last=False)
            if (watching := self._watching.get(key)) is not None:
                watching.cancel()

    def drop(self, held: Held) -> None:
        """Stop holding the conversation."""
        self._held.pop(held.key, None)

    def watch(self, held: Held, going_on: GoingOn) -> None:
        """Let it continue by itself, unless that is under way."""
        if held.key not in self._watching:
            task = asyncio.ensure_future(self._watched(held, going_on))
            self._watching[held.key] = task

    async def _watched(self, held: Held, going_on: GoingOn) -> None:
        try:
            await going_on(held)
        except Exception:
            logger.info("a conversation could not go on by itself", exc_info=True)
        finally:
            del self._watching[held.key]

    async def gone_on(self, held: Held) -> None:
        """Return when the turn that continues by itself, if there is one, has ended."""
        if (watching := self._watching.get(held.key)) is not None:
            await asyncio.wait({watching})

    async def close(self) -> None:
        """Let none continue by itself any more."""
        watching = list(self._watching.values())
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


def key_of(caller: Caller, said: Sequence[Wire]) -> str:
    """The key of a conversation: its caller and the messages."""
    texts = [[message["role"], message["content"]] for message in said]
    return hashlib.sha256(to_json([who(caller), texts])).hexdigest()


class Standing:
    """How the pending calls of a conversation stand, and the decisions of the client's person."""

    def __init__(self, rows: Sequence[Proposal], answers: Mapping[str, Answer]) -> None:
        self.rows = rows
        self.answers = answers

    @classmethod
    async def of(
        cls, held: Held, host: Host, caller: Caller, answers: Mapping[str, Answer] | None = None
    ) -> Standing:
        """The calls as the ledger has them."""
        found = [await host.calls.look(id_, caller) for id_ in held.waiting]
        return cls([row for row in found if row is not None], answers or {})

    @property
    def open(self) -> list[Proposal]:
        """The calls that are still undecided."""
        return [r for r in self.rows if r.state == "PENDING" and r.id not in self.answers]

    @property
    def is_over(self) -> bool:
        """Whether nothing can come of the calls any more: they expired, or their client
        cancelled."""
        return not self.open and not self.decisions

    @property
    def decisions(self) -> list[Wire]:
        """The decisions, in the form in which the continuing request carries them."""
        decided = ((row, self._answer(row)) for row in self.rows)
        return [_decision(row, answer) for row, answer in decided if answer is not None]

    def _answer(self, row: Proposal) -> Answer | None:
        if row.state == "PENDING":
            return self.answers.get(row.id)
        reason = row.decision.reason if row.decision else None
        if row.state == "EXPIRED" or (row.state == "REJECTED" and reason == CANCELLED):
            return None
        return Answer(row.state != "REJECTED", reason, row.seen)


def _decision(row: Proposal, answer: Answer) -> Wire:
    decision: Wire = {"id": row.id, "type": row.kind, "seen": answer.seen}
    if answer.approved:
        # Nobody has said that it is to run again.
        return {**decision, "execute": not row.runs_again, "reason": answer.reason}
    return {**decision, "rejection_reason": answer.reason or "no reason given"}
