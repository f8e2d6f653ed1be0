"""Notifications of tasks, posted without delaying them."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections import deque
from typing import Any, Protocol

import httpx
from a2a.compat.v0_3.conversions import to_compat_task
from a2a.server.context import ServerCallContext
from a2a.server.tasks import PushNotificationSender, TaskStore
from a2a.server.tasks.push_notification_sender import PushNotificationEvent
from a2a.types import Task, TaskPushNotificationConfig
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from sayso import Screening
from sayso_a2a.official.callers import Principal
from sayso_a2a.official.signing import Signer
from sayso_a2a.official.stores import Address
from sayso_a2a.owners import principal_of

logger = logging.getLogger("sayso.a2a")
KEPT = 1_000
"""Most notifications of a task queued for a slow address; older ones are dropped."""
LONGEST = 30.0
"""Seconds that one notification may take, however slowly the answer arrives."""
LAST = 2.0
"""Seconds for queued notifications when the service ends."""
_READ = 64 * 1024


class Addresses(Protocol):
    """A store of the addresses that notifications go to."""

    async def addresses(self, task_id: str) -> list[Address]:
        """The addresses that notifications of the task go to."""


class Notifier(PushNotificationSender):
    """Posts the changes of tasks: as stream events, which 1.0 requires, and as whole tasks to those
    who registered their address over 0.3.

    The notifications of each task are posted in order, beside the task. The SDK would wait for each
    post: with an address that does not answer, a task and everybody who waits for it would stand
    still for ten seconds an event.
    """

    def __init__(
        self,
        screening: Screening,
        kept: Addresses,
        tasks: TaskStore,
        signer: Signer | None = None,
    ) -> None:
        self._signer = signer
        self._client = notifying_client(screening)
        self._screening = screening
        self._kept = kept
        self._tasks = tasks
        self._waiting: dict[str, deque[PushNotificationEvent]] = {}
        self._posting: set[asyncio.Task[None]] = set()

    async def send_notification(self, task_id: str, event: PushNotificationEvent) -> None:
        """Queue `event`, in its present state, for posting."""
        waiting = self._waiting.get(task_id)
        if waiting is None:
            waiting = self._waiting[task_id] = deque(maxlen=KEPT)
            posting = asyncio.ensure_future(self._post_in_order(task_id, waiting))
            self._posting.add(posting)
            posting.add_done_callback(self._posting.discard)
        waiting.append(copy.deepcopy(event))

    async def aclose(self) -> None:
        """Post queued notifications, for a moment at most, and close the connections."""
        if self._posting:
            _, late = await asyncio.wait(self._posting, timeout=LAST)
            for posting in late:
                posting.cancel()
        await self._client.aclose()

    async def _post_in_order(self, task_id: str, waiting: deque[PushNotificationEvent]) -> None:
        known: Task | None = None
        try:
            while waiting:
                event = waiting.popleft()
                try:
                    known = await self._post_event(task_id, event, known)
                except Exception:
                    logger.exception("a notification for task %s could not be posted", task_id)
        finally:
            del self._waiting[task_id]

    async def _post_event(
        self, task_id: str, event: PushNotificationEvent, before: Task | None
    ) -> Task | None:
        """Post one event of a task; returns the task as a 0.3 receiver knows it now, `before` until
        then."""
        addresses = await self._kept.addresses(task_id)
        old = [address for address in addresses if address.speaks_0_3]
        new = [address for address in addresses if not address.speaks_0_3]
        task = await self._task(task_id, old[0].owner) if old else None
        body = MessageToDict(to_stream_response(event)) if new else {}
        posts = [self._post(address.config, body) for address in new]
        if task is not None and task != before:
            whole = to_compat_task(task)
            body = whole.model_dump(mode="json", by_alias=True, exclude_none=True)
            posts += [self._post(address.config, body) for address in old]
        await asyncio.gather(*posts)
        return task

    async def _task(self, task_id: str, owner: str) -> Task | None:
        context = ServerCallContext(user=Principal(principal_of(owner)))
        task: Task | None = await self._tasks.get(task_id, context)
        return task

    async def _post(self, config: TaskPushNotificationConfig, body: dict[str, Any]) -> None:
        try:
            if await self._screening.allows(config.url):
                content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
                headers = _headers(config)
                if "Authorization" not in headers and self._signer is not None:
                    token = self._signer.token(content, config.url)
                    headers["Authorization"] = f"Bearer {token}"
                answer = await self._client.post(config.url, content=content, headers=headers)
                answer.raise_for_status()
        except Exception as error:
            what = type(error).__name__, error
            logger.warning("a notification for task %s failed: %s: %s", config.task_id, *what)


def _headers(config: TaskPushNotificationConfig) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if config.token:
        headers["X-A2A-Notification-Token"] = config.token
    auth = config.authentication
    if auth.scheme and auth.credentials:
        headers["Authorization"] = f"{auth.scheme} {auth.credentials}"
    return headers


class ScreenedTransport(httpx.AsyncHTTPTransport):
    """Connects to the very address that was checked: the name might resolve to another one by
    then."""

    def __init__(self, screening: Screening) -> None:
        super().__init__(trust_env=False)
        self._screening = screening

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request and return its status. Raises ConnectError for a host that is not
        public, TimeoutError for a slow one."""
        async with asyncio.timeout(LONGEST):
            response = await self._sent(request)
            try:
                await _read(response)
            finally:
                await response.aclose()
        return httpx.Response(response.status_code)

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        try:
            await self._screening.pin(request)
        except ConnectionError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        return await super().handle_async_request(request)


async def _read(response: httpx.Response) -> None:
    """Read a short body to its end, so that the connection can be reused; a long one is
    abandoned."""
    size = 0
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for piece in response.stream:
        size += len(piece)
        if size > _READ:
            return


def notifying_client(screening: Screening) -> httpx.AsyncClient:
    """The client that posts notifications; it follows no redirect and asks no proxy."""
    transport = ScreenedTransport(screening)
    return httpx.AsyncClient(
        transport=transport, timeout=10.0, follow_redirects=False, trust_env=False
    )
