"""Payloads of Slack, over HTTP and over Socket Mode: acknowledged first, then handled."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sayso import Host, RequestError, read_body
from sayso_slack.api import Api, cause_of
from sayso_slack.people import PROTOCOL

logger = logging.getLogger("sayso.slack")
EVENTS, INTERACTIONS = "/slack/events", "/slack/interactions"
_LARGEST = 2**20
_MOST = 100
"""Most payloads that are handled at once; further ones are refused, and Slack repeats them."""
_LONGEST = 60.0


class Receiver:
    """Takes payloads, and handles each in a task of its own."""

    def __init__(
        self,
        host: Host,
        events: Callable[[Any], Awaitable[None]],
        interactions: Callable[[Any], Awaitable[None]],
    ) -> None:
        self._host = host
        self._handlers = {"events_api": events, "interactive": interactions}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether no further payload is taken."""
        return len(self._tasks) >= _MOST or self._host.stopping

    def take(self, kind: str, payload: Any) -> None:
        """Handle a payload of this kind of Socket Mode; call it on the loop of the service."""
        handler = self._handlers.get(kind)
        if handler is None or not isinstance(payload, dict) or self.full:
            return
        task = asyncio.ensure_future(self._handled(handler, payload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handled(self, handler: Callable[[Any], Awaitable[None]], payload: Any) -> None:
        try:
            await handler(payload)
        except Exception:
            # The content of a payload is a person's: the log has only the trace.
            logger.exception("a payload of Slack could not be handled")

    async def aclose(self) -> None:
        """Stop what is being handled; the host ends the turns that have started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Endpoints:
    """The two paths to which Slack posts signed requests."""

    def __init__(self, host: Host, receiver: Receiver, signing_secret: str) -> None:
        self._host = host
        self._receiver = receiver
        self._verifier = SignatureVerifier(signing_secret)

    async def events(self, request: Request) -> Response:
        """An event, or the check of the address."""
        payload = await self._read(request, json.loads)
        if isinstance(payload, Response):
            return payload
        if isinstance(payload, dict) and payload.get("type") == "url_verification":
            return JSONResponse({"challenge": str(payload.get("challenge", ""))[:1_000]})
        return self._taken("events_api", payload)

    async def interactions(self, request: Request) -> Response:
        """A press of a button, or a submitted modal."""
        payload = await self._read(request, _form)
        return payload if isinstance(payload, Response) else self._taken("interactive", payload)

    def _taken(self, kind: str, payload: Any) -> Response:
        if self._receiver.full:
            return Response(status_code=503)
        self._receiver.take(kind, payload)
        return Response()

    async def _read(self, request: Request, parse: Callable[[str], Any]) -> Any:
        try:
            raw = await read_body(request.scope, request.receive, _LARGEST, takes=_is_taken)
        except RequestError as error:
            return Response(status_code=error.status)
        if self._is_signed(raw, request.headers):
            with suppress(ValueError, RecursionError):
                return parse(raw.decode())
        else:
            reason = "signature" if "x-slack-signature" in request.headers else "missing"
            client = request.client
            self._host.refused(PROTOCOL, reason, client.host if client is not None else None)
        return Response("the signature or the body is not valid", 401)

    def _is_signed(self, raw: bytes, headers: Headers) -> bool:
        try:
            return self._verifier.is_valid_request(raw, dict(headers))
        except (ValueError, TypeError):
            # The SDK cannot compare a time stamp that is no number, or text outside of ASCII.
            return False


def _is_taken(kind: bytes) -> bool:
    return kind.partition(b";")[0] in (b"application/json", b"application/x-www-form-urlencoded")


def _form(text: str) -> Any:
    return json.loads(parse_qs(text).get("payload", [""])[0])


class SocketMode:
    """The connection to Slack over which payloads come without a public address."""

    def __init__(self, api: Api, receiver: Receiver, app_token: str) -> None:
        self._api = api
        self._receiver = receiver
        self._token = app_token
        self._client: SocketModeClient | None = None

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return self._client is not None and self._client.is_connected()

    async def run(self) -> None:
        """Connect, and stay connected until cancelled."""
        loop = asyncio.get_running_loop()

        def received(client: Any, request: SocketModeRequest) -> None:
            # Without an acknowledgement, Slack sends a payload again, to another process.
            if not self._receiver.full:
                client.send_socket_mode_response(SocketModeResponse(request.envelope_id))
                loop.call_soon_threadsafe(self._receiver.take, request.type, request.payload)

        pause = 1.0
        while self._client is None:
            client = SocketModeClient(self._token, web_client=self._api.client)
            client.socket_mode_request_listeners.append(received)
            try:
                await self._api.begin()
                await self._api.run(client.connect)
                self._client = client
            except Exception as error:
                await asyncio.to_thread(client.close)
                cause = cause_of(error)
                logger.warning("no connection to Slack (%s); tried again in %.0f s", cause, pause)
                await asyncio.sleep(pause)
                pause = min(_LONGEST, 2 * pause)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
