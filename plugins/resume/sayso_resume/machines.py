"""The other machines that serve the same agent: where they are, and that they have the same key.

Each machine answers on a port of a private network. The first line of a connection proves that its
sender has the key and is not repeated later; the streams themselves are not encrypted.
"""

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from sayso import ConfigError

logger = logging.getLogger("sayso.resume")
_PATIENCE = 5.0
"""Seconds for another machine to connect, and to prove that it has the key."""
_FRESH = 60.0
"""Seconds by which the clocks of two machines may differ."""
_REMEMBERED = 10_000
"""Proofs that are remembered, so that none is accepted twice."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Machines:
    """This machine, which listens on `listen`, and the others at `peers`, each `HOST:PORT`."""

    def __init__(self, listen: str, peers: Sequence[str], key: str) -> None:
        self._listen = listen
        self._peers = peers
        self._key = key.encode()
        self._seen: deque[bytes] = deque(maxlen=_REMEMBERED)

    @asynccontextmanager
    async def answering(self, answer: Answer) -> AsyncIterator[None]:
        """Within the block, `answer` the connections of machines with the key."""
        host, port = _split(self._listen)
        try:
            # All processes of this machine listen there, and each finds the others' streams.
            server = await asyncio.start_server(
                partial(self._admit, answer), host, port, reuse_port=True
            )
        except (OSError, ValueError) as error:
            # A system without shared ports raises ValueError.
            raise ConfigError(f"plugin.resume.listen = {self._listen!r}: {error}") from None
        try:
            yield
        finally:
            server.close()

    async def connections(self) -> list[Callable[[], Awaitable[Streams]]]:
        """How to reach each machine; a name stands for all of its addresses."""
        loop = asyncio.get_running_loop()
        found: dict[tuple[str, int], None] = {}
        for peer in self._peers:
            host, port = _split(peer)
            try:
                for *_, address in await loop.getaddrinfo(host, port, type=1):
                    found[str(address[0]), port] = None
            except OSError as error:
                logger.warning("the machine %s is not found: %s", peer, error)
        return [partial(self._connected, *each) for each in found]

    async def _connected(self, host: str, port: int) -> Streams:
        reader, writer = await asyncio.open_connection(host, port)
        stated = json.dumps({"at": time.time(), "once": secrets.token_hex(16)}).encode()
        writer.write(self._proof(stated) + b" " + stated + b"\n")
        return reader, writer

    async def _admit(
        self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                proof, _, stated = (await reader.readline()).rstrip(b"\n").partition(b" ")
        except (OSError, ValueError):
            writer.close()
            return
        if not self._holds(proof, stated):
            logger.warning("a connection without the key of plugin.resume was closed")
            writer.close()
            return
        await answer(reader, writer)

    def _holds(self, proof: bytes, stated: bytes) -> bool:
        if not hmac.compare_digest(proof, self._proof(stated)) or proof in self._seen:
            return False
        self._seen.append(proof)
        at: float = json.loads(stated)["at"]
        return abs(time.time() - at) < _FRESH

    def _proof(self, stated: bytes) -> bytes:
        return hmac.digest(self._key, stated, "sha256").hex().encode()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
