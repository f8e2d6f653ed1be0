"""The path that runs are posted to, and the one that says what the agent can do."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso import (
    Approvals,
    Caller,
    ChatRequest,
    Done,
    Event,
    Host,
    InvalidRequest,
    asked,
    caller_of,
    read_body,
    sse_reply,
    standard_error,
)
from sayso_agui.events import VERSION, Events
from sayso_agui.run_input import Json, Malformed, Read, RunInput, inputs, read

PROTOCOL = "agui"
_WAITS = (
    "Calls wait for your decision. Approve or reject them first; your message was not answered."
)


class Runs:
    """The ASGI application that runs the agent."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one run with its stream, or refuse it with V2's bodies."""
        limits = self._host.config.limits
        try:
            body = await read_body(scope, receive, limits.body)
            run = inputs.read(body, limits.nesting, limits.values)
            if len(run.messages) > limits.messages:
                text = f"there are more than {limits.messages} messages"
                raise InvalidRequest.at(["body", "messages"], "too_long", text)
        except Exception as error:
            await _refusal(self._host, error)(scope, receive, send)
            return
        caller = caller_of(scope, PROTOCOL)
        await sse_reply(self._frames(run, caller), receive, send)

    async def _frames(self, run: RunInput, caller: Caller) -> AsyncGenerator[bytes, None]:
        events = Events(self._host, run)
        yield events.begin()
        try:
            async with aclosing(self._run(events, run, read(run), caller)) as pieces:
                async for piece in pieces:
                    yield piece
        except Malformed as error:
            yield b"".join(events.failed(str(error), "MALFORMED_DECISION"))
        except Exception as error:
            failure = self._host.failure(error)
            yield b"".join(events.failed(failure.message, failure.code, failure.incident))

    async def _run(
        self, events: Events, run: RunInput, given: Read, caller: Caller
    ) -> AsyncGenerator[bytes, None]:
        host = self._host
        fields: Json = {"forwardedProps": run.forwarded_props} if run.forwarded_props else {}
        if given.context:
            fields["context"] = given.context
        caller = caller._replace(request_fields=fields)
        await self._know(events, given, caller)
        wanted = await asked(
            host.calls,
            caller,
            given.shown,
            given.decisions,
            reported=given.reported,
            session=run.state if isinstance(run.state, dict) and run.state else None,
            supersede=host.config.approvals.on_new_message == "supersede",
        )
        if wanted.request is None:
            yield b"".join(events.restated(wanted.pending, _WAITS))
            return
        async with aclosing(self._turn(events, wanted.request, caller)) as pieces:
            async for piece in pieces:
                yield piece

    async def _know(self, events: Events, given: Read, caller: Caller) -> None:
        """Find the calls that the page has: those that it shows or decides, and those proposed
        together with them. Some pages resume without any messages."""
        ids = {*(id_ for one in given.shown for id_ in one.ids), *(d.id for d in given.decisions)}
        found = await self._host.calls.standing([*ids], caller)
        events.know(ids, {row.turn for row in found.values()})

    async def _turn(
        self, events: Events, request: ChatRequest, caller: Caller
    ) -> AsyncGenerator[bytes, None]:
        stream = self._host.stream(request, caller)
        try:
            while waiting := await stream.ready():
                for event in waiting:
                    if frames := await self._encoded(events, event, caller):
                        yield frames
        finally:
            await stream.aclose()

    async def _encoded(self, events: Events, event: Event, caller: Caller) -> bytes:
        if isinstance(event, Approvals):
            ids = [one.id for one in event.approvals]
            rows = await self._host.calls.standing(ids, caller)
            return b"".join(events.ask([*rows.values()]))
        return b"".join(events.of(event))


class Connections(Runs):
    """The ASGI application that a page asks after it was reloaded: it starts nothing."""

    async def _run(
        self, events: Events, run: RunInput, given: Read, caller: Caller
    ) -> AsyncGenerator[bytes, None]:
        ids = {id_: None for one in given.shown for id_ in one.ids}
        rows = await self._host.calls.standing([*ids], caller)
        events.know(ids, ())
        pending = sorted((r for r in rows.values() if r.state == "PENDING"), key=lambda r: r.order)
        yield b"".join(events.ask(pending))
        yield b"".join(events.finish(Done("approval_required" if pending else "end_turn")))


class Capabilities:
    """The ASGI application that says what the agent can do."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with AG-UI's capabilities."""
        agent = self._host.agent
        tools = agent.tools.values()
        body: Json = {
            "identity": {"name": agent.name, "description": agent.description},
            "transport": {"streaming": True},
            "state": {"snapshots": True},
            "humanInTheLoop": {
                "supported": True,
                "approvals": True,
                "interrupts": True,
                "approveWithEdits": any(tool.editable for tool in tools),
            },
            "protocolVersion": VERSION,
        }
        await Response(to_json(body), media_type="application/json")(scope, receive, send)


def _refusal(host: Host, error: Exception) -> ASGIApp:
    failure = host.failure(error)
    status, body = standard_error(error, failure)
    response = Response(to_json(body), status, media_type="application/json")
    response.raw_headers += failure.headers
    return response
