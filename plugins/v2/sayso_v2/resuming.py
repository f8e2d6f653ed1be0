"""The frame by which a client asks for the rest of a lost stream."""

from typing import NamedTuple

from pydantic_core import from_json

from sayso import InvalidRequest

_LONGEST = 1000
"""Most bytes of such a frame; all longer ones are requests."""


class Resumed(NamedTuple):
    """The rest of the stream `id` after its first `after` lines."""

    id: str
    after: int


def resumed(frame: str | bytes) -> Resumed | None:
    """The request in a frame `{"resume": ID, "after": N}`; None for an ordinary request.

    Raises InvalidRequest for a wrong `after`.
    """
    if len(frame) > _LONGEST:
        return None
    try:
        said = from_json(frame)
    except ValueError:
        return None
    if not isinstance(said, dict) or "messages" in said or not isinstance(said.get("resume"), str):
        return None
    after = said.get("after", 0)
    if not isinstance(after, int) or isinstance(after, bool) or after < 0:
        raise InvalidRequest.at(["body", "after"], "int_type", "a number of lines, 0 or more")
    return Resumed(said["resume"], after)
