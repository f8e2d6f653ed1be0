"""The adapter `a2a`: the official protocol, 1.0 with 0.3 compatibility, on the official SDK.

    GET  /.well-known/agent-card.json    the agent card, with caching headers
    POST /a2a/rpc                        JSON-RPC, with and without a slash at the end
    *    /a2a/rest/...                   HTTP+JSON

The header `A2A-Version` says which version a request speaks; without it, 0.3.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate, parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from a2a.server.context import ServerCallContext
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.types import AgentCard
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from sayso import ConfigError, Host, PluginError, Screening, install_line
from sayso_a2a.card import base_url, custom_card
from sayso_a2a.official.callers import URL, Contexts
from sayso_a2a.official.card import REST, RPC, card_json, generated_card, official_card
from sayso_a2a.official.execution import Executor
from sayso_a2a.official.handler import Handler
from sayso_a2a.official.mends import Mended
from sayso_a2a.official.notifying import Notifier
from sayso_a2a.official.signing import JWKS, Signer
from sayso_a2a.official.stores import KeptPushConfigs, KeptTasks
from sayso_a2a.rows import Rows
from sayso_a2a.settings import Settings, task_file
from sayso_a2a.task import LEASE
from sayso_a2a.watching import Looks

if TYPE_CHECKING:
    from sayso_a2a.official.database import DatabaseTasks

logger = logging.getLogger("sayso.a2a")
__all__ = ["Official"]

_CARD_SECONDS = 300
_FORWARDED = ("Host", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix")
_PARKED_SECONDS = 30.0


class Official:
    """The official protocol's endpoints on the SDK's request handler."""

    def __init__(self, host: Host, settings: Settings) -> None:
        self._host = host
        self._settings = settings
        self._custom = custom_card(host, settings.agent_card)
        self._generated = generated_card(host, settings)
        self._made = formatdate(usegmt=True)
        self._notifier: Notifier | None = None
        self._signer = Signer(host, settings.signing) if settings.signing else None
        self._grpc_port = settings.grpc_port
        card = self.card(settings.url or "http://localhost")
        self._tasks = self._store()
        self._executor = Executor(host, self._tasks, settings.approvals)
        self._handler = Handler(
            host,
            self._tasks,
            self._executor,
            agent_card=card,
            interrupted_task_timeout=_PARKED_SECONDS,
            **self._extended(settings.url or "http://localhost"),
            **self._push(),
        )

    def card(self, url: str) -> AgentCard:
        """The card of a service at `url`, with the agent's current tools."""
        return self._signed(self._custom, url)

    def _signed(self, custom: Mapping[str, Any], url: str) -> AgentCard:
        card = official_card(self._fields(), custom, url, self._grpc_at(url))
        return card if self._signer is None else self._signer.card(card, url)

    def _grpc_at(self, url: str) -> str:
        """The address for gRPC of a service at `url`; empty where it is not served."""
        if self._settings.grpc_port is None:
            return ""
        return self._settings.grpc_url or f"{urlsplit(url).hostname}:{self._grpc_port}"

    def _fields(self) -> dict[str, Any]:
        """The generated fields, made anew for each card: tools of other servers may change at any
        time."""
        fields = generated_card(self._host, self._settings)
        if fields != self._generated:
            self._generated, self._made = fields, formatdate(usegmt=True)
        return fields

    def _store(self) -> "KeptTasks | DatabaseTasks":
        settings = self._settings
        kept: dict[str, Any] = {"ttl": settings.task_ttl, "most": settings.max_tasks}
        if settings.database is None:
            return KeptTasks(Rows("a2a", task_file(self._host), **kept))
        try:
            from sayso_a2a.official.database import DatabaseTasks

            return DatabaseTasks(settings.database, **kept)
        except ImportError as error:
            raise PluginError(
                f"plugin.a2a.database needs SQLAlchemy and a driver ({error}); "
                f"try: {install_line('sayso-a2a[sqlite]')}, or [postgresql] or [mysql], "
                "and name the driver, as in 'postgresql+asyncpg://db/sayso'"
            ) from error

    def _extended(self, url: str) -> dict[str, Any]:
        """The additional fields of the card for authenticated callers, with the request's
        addresses."""
        more = self._settings.extended_card
        if more is None:
            return {}
        if not self._host.guarded:
            raise ConfigError(
                "plugin.a2a.extended_card is for callers who have said who they are, and nobody is "
                "asked: set [auth], or give its fields in agent_card"
            )

        def made(url: str) -> AgentCard:
            return self._signed({**self._custom, **more}, url)

        async def of_request(_: AgentCard, context: ServerCallContext) -> AgentCard:
            return made(context.state.get(URL) or url)

        return {"extended_agent_card": made(url), "extended_card_modifier": of_request}

    def _push(self) -> dict[str, Any]:
        if not self._settings.push_notifications:
            return {}
        screening = Screening(self._settings.push_hosts)
        kept = getattr(self._tasks, "push_configs", None)
        if kept is None:
            kept = KeptPushConfigs(self._settings.max_tasks)
        self._notifier = Notifier(screening, kept, self._tasks, self._signer)
        return {
            "push_config_store": kept,
            "push_sender": self._notifier,
            "push_url_validator": screening.allows,
        }

    def router(self) -> Router:
        """The routes; all but the card's are below `/a2a/`."""
        contexts = Contexts(self._settings)
        rpc = create_jsonrpc_routes(self._handler, RPC, contexts, enable_v0_3_compat=True)
        rest = create_rest_routes(self._handler, contexts, enable_v0_3_compat=True)
        limits = self._host.config.limits
        bounds: dict[str, Any] = {"limit": limits.body, "nesting": limits.nesting}
        router = Router()
        router.routes.append(Route("/.well-known/agent-card.json", self._card, methods=["GET"]))
        if self._signer is not None:
            router.routes.append(Route(JWKS, self._jwks, methods=["GET"]))
        rpc_app = Mended(_endpoint(rpc[0].endpoint), rest=False, **bounds)
        for path in (RPC, f"{RPC}/"):
            shown = path == RPC
            router.routes.append(Route(path, rpc_app, methods=["POST"], include_in_schema=shown))
        # The SDK's routes end in a mount that matches every path, so they get a router of their
        # own.
        mount = Mount(REST, Router(rest, redirect_slashes=False))
        rest_app = Mended(mount, rest=True, **bounds)
        router.routes.append(Route(REST + "/{path:path}", rest_app, methods=None))
        return router

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Open the store, and renew the leases of running tasks, until the service ends."""
        await self._tasks.open()
        beating = asyncio.ensure_future(self._beat())
        try:
            async with self._grpc():
                yield
        finally:
            beating.cancel()
            await self._executor.watch.aclose()
            await self._handler.aclose()
            if self._notifier is not None:
                await self._notifier.aclose()
            await self._tasks.close()

    @asynccontextmanager
    async def _grpc(self) -> AsyncIterator[None]:
        """The port for gRPC, if one is configured."""
        if self._settings.grpc_port is None:
            yield
            return
        from sayso_a2a.official.grpc import serving

        async with serving(self._host, self._handler, self._settings.grpc_port) as port:
            self._grpc_port = port
            yield

    async def _beat(self) -> None:
        looks = Looks()
        while True:
            try:
                await self._executor.watch_those_left(looks.since())
                await asyncio.sleep(LEASE / 5)
                for task_id in await self._tasks.beat():
                    self._executor.stop(task_id)
            except Exception:
                logger.exception("the leases of running tasks could not be prolonged")

    async def _jwks(self, request: Request) -> Response:
        assert self._signer is not None
        return JSONResponse(self._signer.jwks(), headers={"Cache-Control": "public, max-age=300"})

    async def _card(self, request: Request) -> Response:
        card = self.card(base_url(request.scope, self._settings))
        body = to_json(card_json(card, version=request.headers.get("a2a-version", "")))
        tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {
            "Cache-Control": f"public, max-age={_CARD_SECONDS}",
            "ETag": tag,
            "Last-Modified": self._made,
        }
        vary = ["A2A-Version"]
        if self._settings.url is None:
            vary += _FORWARDED if self._settings.trust_forwarded else _FORWARDED[:1]
        headers["Vary"] = ", ".join(vary)
        if _fresh(request, tag, self._made):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)


def _fresh(request: Request, tag: str, made: str) -> bool:
    """Whether the caller's copy of the card is still current (RFC 9110, section 13)."""
    if (tags := request.headers.get("if-none-match")) is not None:
        known = [each.strip().removeprefix("W/") for each in tags.split(",")]
        return "*" in known or tag.removeprefix("W/") in known
    since = request.headers.get("if-modified-since")
    try:
        return since is not None and parsedate_to_datetime(since) >= parsedate_to_datetime(made)
    except (TypeError, ValueError):
        return False


def _endpoint(answer: Any) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = _with_result(await answer(Request(scope, receive, send)))
        await response(scope, receive, send)

    return app


def _with_result(response: Response) -> Response:
    """The response with its null result: the SDK omits it for 0.3, but JSON-RPC requires it."""
    if not isinstance(response, JSONResponse):
        return response
    body = bytes(response.body)
    if b'"result":' in body or b'"error":' in body:
        return response
    return JSONResponse({**from_json(body), "result": None})
