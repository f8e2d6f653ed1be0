"""One response: its turn, its frames, and the stored data."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from sayso import (
    Approvals,
    Asked,
    Caller,
    ChatRequest,
    Done,
    ErrorEvent,
    Event,
    EventStream,
    Host,
    Shown,
    TextDelta,
    asked,
    outcomes_of,
)
from sayso_openai_api.answers import Failed, Json, error_of
from sayso_openai_api.bodies import ResponseBody
from sayso_openai_api.items import Input
from sayso_openai_api.output import Output, new_response
from sayso_openai_api.store import Store
from sayso_openai_api.usage import Tokens

_STOPPED = {"code": "cancelled", "message": "the response was cancelled"}
_MARGIN = 60.0
"""Seconds beyond a turn's limit after which a response that is not done counts as lost."""


def continued(kept: Json | None) -> Input:
    """The conversation up to a kept response."""
    if kept is None:
        return Input()
    shown = [Shown(role, text, ids) for role, text, ids in kept["shown"]]
    return Input(shown, reported=set(kept["reported"]), inputs=dict(kept["inputs"]))


class Run:
    """One response from its input to its last frame; `last` are those of a cancelled one."""

    last: Sequence[bytes] = ()
    failed: Exception | None = None
    """Why the turn gave no answer."""

    def __init__(
        self,
        host: Host,
        store: Store,
        caller: Caller,
        body: ResponseBody,
        given: Input,
        *,
        session: Json | None,
        page: str | None,
    ) -> None:
        self._host = host
        self._store = store
        self._caller = caller
        self._body = body
        self._given = given
        self._session = session
        self._page = page
        self._waiting: list[str] = []
        instructions = str((caller.request_fields or {}).get("instructions", ""))
        self._output = Output(new_response(body, instructions))
        self.response = self._output.response
        self.owner = caller.principal or ""

    async def frames(self) -> AsyncGenerator[list[bytes], None]:
        """The frames of the stream, in pieces; the response is stored when its last one is sent."""
        yield [*self._output.begin()]
        try:
            wanted = await self._asked()
            if wanted.request is None:
                self._waiting = [row.id for row in wanted.pending]
                for row in wanted.pending:
                    self._given.inputs[row.id] = row.runs
                last = [*self._output.requests(wanted.pending, self._page)]
                last += self._output.end("approval_required")
                await self.keep()
                yield last
                return
            async with aclosing(self._turn(wanted.request)) as turn:
                async for frames in turn:
                    yield frames
        except asyncio.CancelledError:
            self.last = [*self._output.failed(_STOPPED, "cancelled")]
            await asyncio.shield(self.keep())
            raise
        except Exception as error:
            self.failed = error
            last = [*self._output.failed(error_of(self._host.failure(error)))]
            await self.keep()
            yield last

    async def _asked(self) -> Asked:
        given = self._given
        return await asked(
            self._host.calls,
            self._caller,
            given.shown,
            given.decisions,
            reported=given.reported,
            session=self._session,
            supersede=self._host.config.approvals.on_new_message == "supersede",
        )

    async def _turn(self, request: ChatRequest) -> AsyncGenerator[list[bytes], None]:
        stream = self._host.stream(request, self._caller)
        try:
            while events := await stream.ready():
                frames = [frame for event in events for frame in await self._frames(event, stream)]
                if isinstance(events[-1], Done | ErrorEvent):
                    await self.keep()
                yield frames
        except asyncio.CancelledError:
            if self._body.background:
                # The client did not leave: the response itself was cancelled.
                stream.stop()
            raise
        finally:
            await stream.aclose()

    async def _frames(self, event: Event, stream: EventStream) -> list[bytes]:
        output = self._output
        match event:
            case TextDelta(text=text):
                return [*output.say(text)]
            case Approvals(approvals=approvals):
                self._waiting = [one.id for one in approvals]
                rows = await self._host.calls.standing(self._waiting, self._caller)
                self._given.inputs |= {id_: row.runs for id_, row in rows.items()}
                return [*output.requests([*rows.values()], self._page)]
            case ErrorEvent():
                self.failed = Failed(event, stream.failure)
                return [*output.failed(error_of(self.failed.failure))]
            case Done():
                self._session = event.session or self._session
                tokens = Tokens()
                tokens.add(event.meta_data)
                self.response["usage"] = tokens.of_response()
                return [*output.end(event.stop_reason)]
        self._given.reported |= {ended.id for ended in outcomes_of(event)}
        return [frame for ended in outcomes_of(event) for frame in output.outcome(ended)]

    async def keep(self) -> None:
        """Keep the response and the conversation up to it, unless the client wants neither."""
        if not self._body.store:
            return
        given = self._given
        said = [*given.shown]
        if not said or said[-1].role != "user":
            said.append(Shown("user", ""))
        said.append(Shown("assistant", self._output.text, self._waiting))
        body = {
            "response": self.response,
            "input": _listed(self._body.input),
            "shown": [[one.role, one.text, list(one.ids)] for one in said],
            "reported": sorted(given.reported),
            "inputs": given.inputs,
            "session": self._session,
            "until": time.time() + self._host.config.limits.turn_time + _MARGIN,
        }
        await self._store.put(self.owner, self.response["id"], body)


def _listed(given: str | list[Json]) -> list[Json]:
    if isinstance(given, str):
        part = {"type": "input_text", "text": given}
        given = [{"type": "message", "role": "user", "content": [part]}]
    return [{"id": f"item_{secrets.token_hex(12)}", **item} for item in given]
