"""One answer over Chat Completions: a turn, and further turns while the stream is held open."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing

from sayso import (
    Approvals,
    Asked,
    Caller,
    ChatRequest,
    Done,
    ErrorEvent,
    Host,
    Proposal,
    Shown,
    TextDelta,
    asked,
    outcomes_of,
)
from sayso_openai_api.answers import Failed, Json
from sayso_openai_api.cards import cards, outcome
from sayso_openai_api.store import Store
from sayso_openai_api.usage import Tokens

_LOOK = 0.5
"""Seconds between two checks whether the service stops while a person decides."""


class Talk:
    """The text of one answer, piece by piece; then `stop` says why it ended, and `tokens`
    what it took."""

    stop = "end_turn"

    def __init__(
        self,
        host: Host,
        caller: Caller,
        shown: Sequence[Shown],
        reported: Collection[str],
        *,
        page: str | None,
        hold: float,
        store: Store,
        conversation: str,
    ) -> None:
        self._host = host
        self._caller = caller
        self._shown = list(shown)
        self._reported = set(reported)
        self._page = page
        self._hold = hold
        self._store = store
        self._key = f"conversation {conversation}" if conversation else ""
        self._session: Json | None = None
        self.tokens = Tokens()
        self._said: list[str] = []
        self._waiting: list[str] = []

    async def pieces(self) -> AsyncGenerator[str, None]:
        """The pieces of the text; raises Failed."""
        if not self._caller.tools and self._host.agent.function is not None:
            # A plain callable cannot be prevented from acting on a client's hidden task.
            return
        wanted = await self._first()
        while True:
            if wanted.request is None:
                self.stop, rows = "approval_required", wanted.pending
                yield cards(rows, self._page)
                self._waiting = [row.id for row in rows]
            else:
                async with aclosing(self._turn(wanted.request)) as pieces:
                    async for piece in pieces:
                        yield piece
            await self._remember()
            if not await self._decided():
                return
            wanted = await self._next()
            if wanted.request is None:
                return

    async def _first(self) -> Asked:
        if self._key and (kept := await self._store.get(self._owner, self._key)):
            self._session = kept["session"]
            known = {id_ for one in self._shown for id_ in one.ids}
            if left := [id_ for id_ in kept["waiting"] if id_ not in known]:
                # The client has forgotten the card, for instance when a message is regenerated.
                self._shown.insert(len(self._shown) - 1, Shown("assistant", "", left))
        return await self._asked()

    async def _next(self) -> Asked:
        """The request that continues with the calls decided by now."""
        self._shown.append(Shown("assistant", "".join(self._said), self._waiting))
        self._shown.append(Shown("user", ""))
        self._said, self._waiting = [], []
        return await self._asked()

    async def _asked(self) -> Asked:
        return await asked(
            self._host.calls,
            self._caller,
            self._shown,
            reported=self._reported,
            session=self._session,
            supersede=self._host.config.approvals.on_new_message == "supersede",
        )

    async def _turn(self, request: ChatRequest) -> AsyncGenerator[str, None]:
        stream = self._host.stream(request, self._caller)
        try:
            while events := await stream.ready():
                for event in events:
                    match event:
                        case TextDelta(text=text):
                            self._said.append(text)
                            yield text
                        case Approvals(approvals=approvals):
                            self._waiting = [one.id for one in approvals]
                            yield cards(await self._rows(), self._page)
                        case ErrorEvent():
                            raise Failed(event, stream.failure)
                        case Done():
                            self.stop = event.stop_reason
                            self.tokens.add(event.meta_data)
                            self._session = event.session or self._session
                        case _:
                            for ended in outcomes_of(event):
                                self._reported.add(ended.id)
                                yield outcome(ended)
        finally:
            await stream.aclose()

    async def _rows(self) -> list[Proposal]:
        found = await self._host.calls.standing(self._waiting, self._caller)
        return [found[id_] for id_ in self._waiting if id_ in found]

    async def _decided(self) -> bool:
        """Whether a call is decided, and none is pending, before the wait is over; at its end also
        whether one of several is. The wait occupies no turn's slot."""
        if not (self._waiting and self._hold):
            return False
        settled = self._host.calls.settled(self._waiting, self._caller, self._hold)
        deciding = asyncio.ensure_future(settled)
        try:
            while not (deciding.done() or self._host.stopping):
                await asyncio.wait({deciding}, timeout=_LOOK)
        finally:
            deciding.cancel()
        rows = deciding.result() if deciding.done() else await self._rows()
        pending = [row for row in rows if row.state == "PENDING"]
        if pending:
            self._hold = 0.0
        return len(pending) < len(rows)

    async def _remember(self) -> None:
        if self._key:
            body = {"session": self._session, "waiting": self._waiting}
            await self._store.put(self._owner, self._key, body)

    @property
    def _owner(self) -> str:
        return self._caller.principal or ""
