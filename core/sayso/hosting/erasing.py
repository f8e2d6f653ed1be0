"""Erasure by plugins: the store and the folders that `sayso erase` hands to `erase_subject`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from sayso.config import Config
from sayso.hosting.record import Notes

T = TypeVar("T")


class Removed(NamedTuple):
    """The number of removed things of one kind, such as "session", and of those that stay, since
    they are in use: the command then ends with exit code 1, and is to be run again."""

    noun: str
    number: int
    left: int = 0


class KeptBeside(Protocol):
    """The store of an erasure, and what services on it may keep beside it.

    `folders` are the state folders of the services that may use the store, on this machine; some
    may not exist.
    """

    @property
    def config(self) -> Config:
        """The configuration."""
        ...

    @property
    def folders(self) -> Sequence[Path]:
        """The state folders of services."""
        ...

    async def notes(self, work: Callable[[Notes], T]) -> T:
        """The result of `work` on the notes of plugins, in one transaction, as by
        `host.record.notes`."""
        ...
