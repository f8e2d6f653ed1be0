"""The stores that `sayso approvals` reads: the configured one, or those of all agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import click

from sayso.cli.group import configuration
from sayso.config import Config, state_dir
from sayso.errors import ConfigError
from sayso.ledger.keeping import Keepable, keepable
from sayso.ledger.record import Ledger
from sayso.ledger.stores import ledger_of

T = TypeVar("T")


def in_each(
    config_file: Path | None, work: Callable[[Ledger], Awaitable[T]]
) -> list[tuple[str, T]]:
    """The results of `work` for each store, with the store's name."""
    return [asyncio.run(_opened(one, work)) for one in _meant(configuration(config_file))]


def in_all(config_file: Path | None, work: Callable[[Ledger], Awaitable[T]]) -> list[T]:
    """The results of `work` for all stores, which it reads at the same time."""

    async def all_at_once() -> list[T]:
        opened = (_opened(one, work) for one in _meant(configuration(config_file)))
        return [found for _, found in await asyncio.gather(*opened)]

    return asyncio.run(all_at_once())


def in_that_of(config_file: Path | None, id: str, work: Callable[[Ledger], Awaitable[T]]) -> T:
    """The result of `work` for the store with the proposal `id`; raises ConfigError."""

    async def looked(ledger: Ledger) -> list[T]:
        return [await work(ledger)] if await ledger.settle([id]) else []

    for _, found in in_each(config_file, looked):
        for one in found:
            return one
    raise ConfigError(f"there is no proposal {id!r}; see: sayso approvals list")


def kept(config_file: Path | None) -> Keepable:
    """The one configured store, for a backup or its return. Raises ConfigError."""
    meant = _meant(configuration(config_file))
    if len(meant) > 1:
        urls = ", ".join(ledger_of(one).store.url for one in meant)
        raise ConfigError(
            f"there are several stores, one for each agent; name one by 'approvals.ledger' "
            f"or SAYSO_APPROVALS__LEDGER: {urls}"
        )
    return keepable(ledger_of(meant[0]).store)


def folders_of(ledger: Ledger, config_file: Path | None) -> list[Path]:
    """The state folders of the services that may use this store, on this machine."""
    config = configuration(config_file)
    for one in _meant(config):
        # Without a setting each agent has a store in its folder.
        if one is not config and ledger_of(one).store.url == ledger.store.url:
            return [state_dir(one)]
    root = state_dir(config)
    return [root] if config.server.state_dir else [root, *filter(Path.is_dir, root.glob("*"))]


def headed(found: Sequence[tuple[str, T]]) -> Iterator[T]:
    """The results of each store; if there are several stores, its name is printed first."""
    for url, one in found:
        if len(found) > 1:
            click.echo(f"in {url}:")
        yield one


def _meant(config: Config) -> list[Config]:
    """The configuration, once for each store that it may refer to.

    Without a ledger or a state folder of its own, each agent of this user has a store.
    """
    if config.approvals.ledger not in (None, "", "sqlite://") or config.server.state_dir:
        return [config]
    root = state_dir(config)
    files = [*root.glob("approvals.db"), *sorted(root.glob("*/approvals.db"))]
    return [_in_folder(config, file.parent) for file in files] or [config]


def _in_folder(config: Config, folder: Path) -> Config:
    one = config.model_copy(deep=True)
    one.server.state_dir = folder
    return one


async def _opened(config: Config, work: Callable[[Ledger], Awaitable[T]]) -> tuple[str, T]:
    ledger = ledger_of(config)
    store = ledger.store
    if not store.shared:
        raise ConfigError(
            f"the ledger {store.url!r} lives in the service's process; nothing else can read it"
        )
    # Stores of others need not have this method.
    exists = getattr(store, "exists", None)
    if exists is not None and not await exists():
        raise ConfigError(
            f"there is no approvals store {store.url!r}; a service makes it when it "
            "starts: check 'approvals.ledger' and --config"
        )
    await ledger.open()
    try:
        return store.url, await work(ledger)
    finally:
        await ledger.close()
