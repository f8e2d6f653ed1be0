"""The parameters that a model refuses: learnt from its refusals, remembered by the process.

For most models the accepted parameters are known by the model's name. If a refusal names another
one, the same call is made without it, and from then on the parameter is left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sayso.errors import ModelError
from sayso.models.refusals import room_left

log = logging.getLogger("sayso.models")

_LEAST_ANSWER = 1024
"""If a provider leaves fewer tokens than this for an answer, the conversation is too long."""


class Learned:
    """The parameters that one model refuses. `optional` are the keys of its requests that can be
    left out, with dots for nested ones; `limits` are those of them that limit the answer."""

    def __init__(
        self,
        model: str,
        optional: Iterable[str],
        *,
        limits: Sequence[str] = (),
        omit: Iterable[str] = (),
    ) -> None:
        self.left_out = set(omit)
        """The keys that are not sent."""
        self.limit: int | None = None
        """The largest answer that it allows, in tokens, if a refusal stated one."""
        self._model = model
        self._optional = tuple(optional)
        self._limits = limits

    def fitted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`body` without the parameters that the model refuses."""
        fitted = dict(body)
        for name in self.left_out:
            _drop(fitted, name.split("."))
        return fitted

    def bounded(self, wished: int | None) -> int | None:
        """The limit of an answer: the smaller one of `wished` and the learnt one."""
        bounds = [bound for bound in (wished, self.limit) if bound is not None]
        return min(bounds, default=None)

    def learns(self, error: ModelError, sent: Mapping[str, Any]) -> bool:
        """Learn from `error`; returns whether the refused call can be made again, changed."""
        if error.kind in ("bad_request", "context") and self._shortens(error, sent):
            return True
        if error.kind != "bad_request":
            return False
        named = [name for name in self._optional if _holds(sent, name) and _names(error, name)]
        # "reasoning.effort" says more than "reasoning".
        found = max(named, key=len, default=None)
        if found is None:
            return False
        self.left_out.add(found)
        log.info("model %r refused %r, which is left out from now on", self._model, found)
        return True

    def _shortens(self, error: ModelError, sent: Mapping[str, Any]) -> bool:
        """Learn the limit of an answer, if the refusal says that the sent one is too large."""
        name = next((name for name in self._limits if _holds(sent, name)), None)
        wished = _value(sent, name) if name else None
        if name is None or not isinstance(wished, int):
            return False
        found = room_left(error.reason)
        if found is None and error.kind == "bad_request" and _names(error, name):
            numbers = [int(n) for n in re.findall(r"(?<![\w.-])\d{3,9}(?![\w.-]*\w)", error.reason)]
            found = max((n for n in numbers if n < wished), default=None)
        if found is None or not _LEAST_ANSWER <= found < wished:
            return False
        self.limit = found
        log.info("model %r takes %r of at most %d from now on", self._model, name, found)
        return True


def _names(error: ModelError, name: str) -> bool:
    if error.parameter:
        return error.parameter == name or error.parameter.startswith(f"{name}.")
    # Also by its last part: some refusals name a nested parameter without its parents.
    forms = "|".join(re.escape(form) for form in {name, name.rpartition(".")[2], _camel(name)})
    return bool(re.search(rf"(?<![\w.])(?:{forms})(?!\w)", error.reason))


def _camel(name: str) -> str:
    first, *rest = name.rpartition(".")[2].split("_")
    return first + "".join(part.title() for part in rest)


def _holds(body: Mapping[str, Any], name: str) -> bool:
    return _value(body, name) is not None


def _value(body: Mapping[str, Any], name: str) -> Any:
    found: Any = body
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _drop(body: dict[str, Any], parts: Sequence[str]) -> None:
    first, *rest = parts
    if not rest:
        body.pop(first, None)
    elif isinstance(inner := body.get(first), Mapping):
        body[first] = inner = dict(inner)
        _drop(inner, rest)
        if not inner:
            del body[first]
