"""The attempts of one model call, as all adapters make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sayso.errors import ModelError
from sayso.models import Ask
from sayso.models.connection import Connection
from sayso.models.keys import Key
from sayso.models.learning import Learned


class Adapter(Protocol):
    """The parts of a model that its attempts use; `learned` is by the name of the model asked."""

    name: str
    key: Key
    connection: Connection
    learned: dict[str, Learned]


M = TypeVar("M", bound=Adapter)


class Attempts(Generic[M]):
    """One call of `model`. An adapter adds its `events`, one attempt, and `failure`, as `retried`
    takes them; `optional` and `limits` are those of `Learned`."""

    def __init__(self, model: M, ask: Ask, optional: Iterable[str], limits: Sequence[str]) -> None:
        self._model = model
        self._ask = ask
        self.name = ask.model or model.name
        new = Learned(self.name, optional, limits=limits, omit=model.connection.omit)
        self._learned = model.learned.setdefault(self.name, new)
        self._sent: Mapping[str, Any] = {}
        """The body of the latest attempt."""
        self._key = ""
        """The key of the latest attempt."""

    async def mended(self, error: ModelError) -> bool:
        """Whether the next attempt will differ: by a renewed key, or without what was refused."""
        if error.kind == "auth" and not self._ask.key:
            return await self._model.key.renewed(self._key)
        return self._learned.learns(error, self._sent)
