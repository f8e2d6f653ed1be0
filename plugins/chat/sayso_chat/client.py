"""A client of the chat streams, using only the standard library.

Speaks `/api/chat-stream`, or `/api/sendMessageStream` if the service has only V1 (interface.md,
"Endpoints").
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

from sayso import SaysoError, install_line

Json = dict[str, Any]

PATHS = ("/api/chat-stream", "/api/sendMessageStream")
CONNECT_SECONDS = 10.0
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d+(?:/.*)?")


class ChatError(SaysoError):
    """The service cannot be reached, or is no chat service."""


class Lost(ChatError):
    """The connection was lost after the request had been sent: it may have been carried out."""


def as_url(given: str) -> str | None:
    """`given` as an address with its scheme, or None when it is no address."""
    if "://" in given:
        return given.rstrip("/")
    return f"http://{given.rstrip('/')}" if _ADDRESS.fullmatch(given) else None


def _place(url: str) -> tuple[bool, str, int | None, str]:
    """Whether it is TLS, the host, the port and the path of `url`; raises ChatError."""
    try:
        parts = urlsplit(url)
        host, port, path = parts.hostname or "", parts.port, parts.path.rstrip("/")
        if (
            parts.scheme in ("http", "https")
            and host.encode("idna")
            and path.isascii()
            and not re.search(r"[\x00-\x20\x7f]", host + path)
        ):
            return parts.scheme == "https", host, port, path
    except ValueError:  # invalid brackets, port or name
        pass
    raise ChatError(f"{url!r} is no address; write http://HOST:PORT")


class Client:
    """One service; `token` is sent as a bearer token and is in no message and no repr."""

    def __init__(self, url: str, token: str | None = None) -> None:
        if token is not None and not re.fullmatch(r"[\x20-\x7e]+", token):
            raise ChatError("the token is empty, or holds a character that no HTTP header may have")
        self.url = url
        self._secure, self._host, self._port, self._prefix = _place(url)
        self._headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._path: str | None = None

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def turn(
        self, messages: Sequence[Json], fields: Mapping[str, Any]
    ) -> Generator[Json, None, None]:
        """The events of one turn, the terminal one last; a refusal is an `error` event too.

        Closing the iterator closes the connection, which cancels the turn. Raises ChatError if the
        service cannot be reached or is no chat service, and Lost before the turn ended.
        """
        body = json.dumps({**fields, "messages": list(messages)}).encode()
        with closing(self._connection()) as connection:
            yield from self._events(connection, body)

    def reach(self) -> None:
        """Raise ChatError unless something listens at the address."""
        with closing(self._connection()) as connection:
            self._open(connection)

    def _open(self, connection: http.client.HTTPConnection) -> None:
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            raise ChatError(self._unreached(error)) from error

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._host,
                self._port,
                timeout=CONNECT_SECONDS,
                context=ssl.create_default_context(),
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)

    def _events(self, connection: http.client.HTTPConnection, body: bytes) -> Iterator[Json]:
        answer = self._post(connection, body)
        if answer.status != 200:
            yield self._refused(answer)
            return
        started = False
        for line in self._lines(answer):
            event = _object(line)
            if event is None and line.startswith(b"{") and not line.endswith(b"\n"):
                break
            if event is None or "type" not in event:
                what = "sent a line that is no event"
                stranger = "answers, but not as a Sayso service does; check the address"
                raise ChatError(f"{self.url} {what if started else stranger}")
            started = True
            yield event
            if event.get("type") in ("done", "error"):
                return
        raise Lost(f"{self.url} ended the stream before the turn was done; ask again")

    def _post(
        self, connection: http.client.HTTPConnection, body: bytes
    ) -> http.client.HTTPResponse:
        for path in (self._path,) if self._path else PATHS:
            self._open(connection)
            # A turn may be silent for as long as its tools run.
            connection.sock.settimeout(None)
            try:
                connection.request("POST", self._prefix + path, body, self._headers)
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise Lost(self._unreached(error)) from error
            if answer.status != 404:
                self._path = path
                return answer
            connection.close()
        root = self.url.removesuffix(self._prefix)
        raise ChatError(
            f"{self.url} answers, but has no chat endpoint; "
            + f"try {root}, or " * bool(self._prefix)
            + f"if it is a Sayso service, install one there, as here: {install_line('sayso[v2]')}"
        )

    def _lines(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while line := answer.readline():
                if line.strip():
                    yield line
        except (OSError, http.client.HTTPException) as error:
            raise Lost(f"the connection to {self.url} was lost: {_cause(error)}") from error

    def _refused(self, answer: http.client.HTTPResponse) -> Json:
        """An `error` event for an answer that is no stream."""
        location = answer.getheader("Location")
        if 300 <= answer.status < 400 and location:
            raise ChatError(f"{self.url} has moved to {location}; give that address")
        body: Json = {}
        with suppress(OSError, http.client.HTTPException):
            body = _object(answer.read(1 << 20)) or {}
        event = {**body, "type": "error", "error": _sentence(body, answer.status)}
        if answer.status == 401:
            event["error"] += "; give the token in SAYSO_TOKEN, or with --token"
        return event

    def _unreached(self, error: Exception) -> str:
        if isinstance(error, ConnectionRefusedError):
            return (
                f"nothing listens at {self.url}; start a service with: sayso demo, "
                "or sayso serve FILE.py; or chat with an agent at once: sayso chat FILE.py"
            )
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
            return f"{self.url} answers, but not in HTTP; check the address"
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            plain = self.url.partition("://")[2]
            return f"{self.url} answers, but not in TLS; try http://{plain}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"{self.url} is not trusted: {error.verify_message}; "
                "set SSL_CERT_FILE to a file of the certificates that are"
            )
        if isinstance(error, TimeoutError):
            return f"{self.url} did not answer within {CONNECT_SECONDS:g} seconds"
        return f"{self.url} cannot be reached: {_cause(error)}"


def _object(text: bytes) -> Json | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _sentence(body: Mapping[str, Any], status: int) -> str:
    for name in ("error", "detail"):
        if isinstance(body.get(name), str):
            return str(body[name])
    return f"the service answered with status {status}"


def _cause(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    return str(strerror or error or type(error).__name__)
