"""The contract for plugins: markers, and each hook with what to return (design, section 4).

A plugin is a distribution with an entry point in the group `sayso` that names a subclass of
`sayso.Plugin`, or a module of hooks. Implementations are marked with `@hookimpl`, are plain or
async, and take only the arguments that they name:

    from sayso import Plugin, hookimpl, Blocked

    class NoSecrets(Plugin):
        class Settings(Plugin.Settings):
            word: str = "password"

        @hookimpl
        async def intercept_request(self, request, context):
            if self.settings.word in request.messages[-1].content:
                raise Blocked("please leave that out", code="SECRET")
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal

import pluggy

if TYPE_CHECKING:
    import click
    from starlette.routing import Router

    from sayso.context import Caller, RequestContext
    from sayso.hosting import Host
    from sayso.hosting.erasing import KeptBeside, Removed
    from sayso.ledger.erasing import Subject
    from sayso.observing import Observer
    from sayso.wire.events import AgentEvent
    from sayso.wire.messages import AgentMessage, ChatRequest

PROJECT = "sayso"
Asks = Literal["turn", "decision", "call", "proposal"]
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_routes(host: Host) -> Router | None:
    """Return a FastAPI APIRouter or a Starlette Router with this plugin's routes, or None.

    Called once while the app is built. Two plugins that claim one method and path stop the start,
    and so does one whose Mount, or path with parameters, covers a route of the other.
    """


@hookspec
def intercept_request(
    request: ChatRequest, context: RequestContext, host: Host
) -> ChatRequest | AgentMessage | None:
    """Return a ChatRequest to go on with, an AgentMessage to answer now, or None to pass.

    Raise `Blocked(message, code)` to refuse with a message for the user, `Silence(reasoning)` to
    say nothing. A change of `request` in place counts. Called for each turn, in the configured
    order, off the request loop, before any approved call runs. Decisions are taken from the
    request as the caller sent it: an interceptor can neither add nor change one.
    """


@hookspec
def intercept_response(
    response: AgentMessage, request: ChatRequest, context: RequestContext, host: Host
) -> AgentMessage | None:
    """Return the AgentMessage to send instead, or None to pass; a change in place counts.

    Called for every reply but a blocked or silent one. Proposals leave as they were recorded,
    whatever becomes of them here.
    """


@hookspec
def on_event(event: AgentEvent, host: Host) -> None:
    """Return nothing; look at `event`. An exception is logged and never fails a turn."""


@hookspec
def observe(host: Host) -> Observer | list[Observer] | None:
    """Return an `Observer` of turns, model calls, tools and approvals, a list of them, or None.

    Called once in each process while the service is made: of `host` only `agent`, `config`,
    `model`, `plugins` and `state_dir` exist then; keep it for later. The methods of the observer
    are never awaited; an exception of one is logged and has no other effect.
    """


@hookspec
def admit(caller: Caller, asks: Asks, host: Host) -> AbstractAsyncContextManager[Any] | None:
    """Return an async context manager around what a caller asks for, or None to let it in.

    `asks` is "turn", "decision" (a turn that decides a call), "call" or "proposal" (single calls,
    as MCP makes them). Raise `TooMany` here or as it is entered, and the caller gets 429. It is
    entered before the work begins and left when that has ended, on the engine's loop: wait by
    `await` alone.
    """


@hookspec
def lifespan(host: Host) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager around the service's life, on the server's loop.

    Entered once in each process, in the configured order, before the first request; left in
    reverse order. A plugin with `own_process = True` has it once a service.
    """
    raise NotImplementedError


@hookspec
def resources(host: Host) -> AbstractAsyncContextManager[Any]:
    """Return an async context manager on the home worker loop, where user code runs.

    For pools and clients that tools and interceptors use.
    """
    raise NotImplementedError


@hookspec
def authenticate(headers: Mapping[str, str], scope: Mapping[str, Any], host: Host) -> str | None:
    """Return the principal, as a name or a `Principal`, or None to ask the next plugin.

    `headers` has lower-case names. Raise `Unauthenticated` to refuse. Called for every route,
    WebSocket and second port except `/health`, `/ready`, the public agent cards and the static
    files and signed routes that a plugin names in `public_paths` and `signed_paths`. If every
    plugin returns None and at least one implements the hook, the request is refused with 401.
    """


@hookspec
def erase_subject(subject: Subject, kept: KeptBeside) -> Removed | None:
    """Return a `Removed` with the numbers of what this plugin keeps of `subject` and has removed,
    or None.

    `subject` has a `principal` or a `tenant`, by the name in the record. Called by `sayso erase`,
    once for each store, after the record's own erasure and outside of any service, so there is no
    host: `kept.notes` reads and changes the notes of plugins, `kept.folders` are the state folders.
    Leave what a running service uses, count it as `left`, and remove it the next time.
    """


@hookspec
def register_commands(cli: click.Group) -> None:
    """Return nothing; add sub-commands to `cli`, the `sayso` command."""


HOOKS: tuple[str, ...] = (
    "register_routes",
    "intercept_request",
    "intercept_response",
    "on_event",
    "observe",
    "admit",
    "lifespan",
    "resources",
    "authenticate",
    "erase_subject",
    "register_commands",
)
