"""The inbox of a running service, as the command line asks it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from sayso.errors import ConfigError, SaysoError

Command = TypeVar("Command", bound=Callable[..., Any])
Json = Any
_SECONDS = 30.0
_MOST = 64 * 2**20
_PAGE = 100


def service_options(command: Command) -> Command:
    """The options that name a running service in place of the store."""
    token = click.option(
        "--token",
        envvar="SAYSO_TOKEN",
        metavar="TOKEN",
        help="Bearer token; better in the environment, as SAYSO_TOKEN, where others do not see it.",
    )
    url = click.option(
        "--url",
        metavar="URL",
        help="Ask the inbox of the service at this address (plugin approvals), and do not read the "
        "store.",
    )
    return url(token(command))


class Refused(SaysoError):
    """The service refuses a request; the text is its own."""


class Service:
    """The inbox of the service at `url`; every method raises SaysoError."""

    def __init__(self, url: str, token: str | None) -> None:
        given = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = given.port
        except ValueError:
            port = 0
        if given.scheme not in ("http", "https") or not given.hostname or port == 0:
            raise ConfigError(f"{url!r} is no address of a service, such as http://127.0.0.1:8000")
        self._given, self._port, self._token = given, port, token
        self.name = f"{given.scheme}://{given.hostname}{f':{port}' if port else ''}"

    def calls(self, state: str | None, limit: int, filters: Mapping[str, str]) -> list[Json]:
        """The newest calls in this state that fit the filters, the newest first."""
        query = {"state": state or "ALL", "sort": "created", **filters}
        found: list[Json] = []
        cursor: str | None = None
        while len(found) < limit:
            more = {"cursor": cursor} if cursor else {}
            size = str(min(_PAGE, limit - len(found)))
            page = self._ask("GET", f"?{urlencode({**query, 'limit': size, **more})}")
            found += page["approvals"]
            if (cursor := page["next"]) is None:
                break
        return found[:limit]

    def call(self, id: str) -> Json:
        """One call, whole."""
        return self._ask("GET", f"/{quote(id, safe='')}")

    def decide(self, id: str, body: Mapping[str, Any]) -> Json:
        """The call after the decision."""
        return self._ask("POST", f"/{quote(id, safe='')}/decision", body)

    def grants(self) -> list[Json]:
        """The standing grants, the newest first."""
        found: list[Json] = self._ask("GET", "/grants")["grants"]
        return found

    def grant(self, body: Mapping[str, Any]) -> Json:
        """The new standing grant."""
        return self._ask("POST", "/grants", body)

    def revoke(self, id: str) -> Json:
        """The standing grant that has ended now."""
        return self._ask("DELETE", f"/grants/{quote(id, safe='')}")

    def freeze(self, body: Mapping[str, Any]) -> None:
        """Stop all starts, or let calls start again."""
        self._ask("POST", "/freeze", body)

    def frozen(self) -> bool:
        """Whether all starts are stopped."""
        return self._ask("GET", "/summary")["frozen"] is not None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        sent = None if body is None else json.dumps(body)
        base = self._given.path.rstrip("/")
        try:
            with closing(self._connection()) as connection:
                connection.request(method, f"{base}/approvals{path}", sent, headers)
                answer = connection.getresponse()
                status, raw = answer.status, answer.read(_MOST)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
            raise SaysoError(f"{self.name} does not answer: {why}") from None
        return _read(self.name, status, raw)

    def _connection(self) -> http.client.HTTPConnection:
        secure = self._given.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self._given.hostname or "", self._port, timeout=_SECONDS)


def _read(name: str, status: int, raw: bytes) -> Json:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    if status == 200 and isinstance(found, dict):
        return found
    detail = found.get("detail") if isinstance(found, dict) else None
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        detail = detail[0].get("msg")
    if status == 401:
        detail = "it needs a token: set SAYSO_TOKEN, or see the line with the token at its start"
    elif status == 404 and not isinstance(found, dict):
        detail = "it has no inbox; name the plugin approvals in its configuration"
    elif status == 404 and detail in (None, "Not Found"):
        detail = "there is no such call, or the service has no inbox (plugin approvals)"
    raise Refused(f"{name} refuses, {status}: {detail or 'no reason was given'}")
