"""Stores by their URL: the built-in ones, and those of other distributions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from sayso.config import Config, state_dir
from sayso.config.factories import installed, made
from sayso.errors import ConfigError, nearest
from sayso.installing import install_line
from sayso.ledger import Store
from sayso.ledger.record import Ledger

_BUILT_IN = ("memory", "sqlite")
_EXTRAS = {"postgresql": "postgres"}
"""The schemes provided by other distributions of this repository, and the extra of each."""
_MEMBERS = ("url", "shared", "open", "close", "run", "check", "renew", "hold", "dead")


def open_store(url: str, base: Path, folder: Path) -> Store:
    """The store that `url` names, not yet open.

    `memory://`; `sqlite:///name.db` relative to the folder `base`, `sqlite:////absolute.db`, and
    `sqlite://` for `approvals.db` in `folder`; any other scheme, `postgresql://` among them, by
    entry point. Raises ConfigError for an unknown scheme or one that is not installed.
    """
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            from sayso.ledger.memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            return _sqlite(rest, base, folder)
    return _installed(scheme, url)


def _sqlite(rest: str, base: Path, folder: Path) -> Store:
    from sayso.ledger.sqlite import SqliteStore

    if rest and not rest.strip("/"):
        raise ConfigError("'approvals.ledger' names no file; try: sqlite:///approvals.db")
    if not rest.startswith("/") and rest:
        raise ConfigError(
            "'approvals.ledger' has too few slashes; try: sqlite:///relative.db or "
            "sqlite:////absolute.db"
        )
    return SqliteStore(base / unquote(rest[1:]) if rest else folder / "approvals.db")


def _installed(scheme: str, url: str) -> Store:
    found = installed("sayso.ledgers")
    if scheme not in found and scheme in _EXTRAS:
        way = install_line(f"sayso[{_EXTRAS[scheme]}]")
        raise ConfigError(f"the ledger {scheme}:// is not installed; try: {way}")
    if scheme not in found:
        names = sorted({*_BUILT_IN, *_EXTRAS, *found})
        # The part after the scheme's first word may be a password.
        shown = re.split(r"[^\w.+-]", scheme, maxsplit=1)[0][:20]
        close = nearest(shown, names)
        meant = f"; did you mean {close!r}?" if close else ""
        if "://" not in url and "." in shown:
            meant = "; a file is written sqlite:///NAME.db"
        raise ConfigError(
            f"'approvals.ledger' has the unknown scheme {shown!r}; "
            f"known: {', '.join(map(repr, names))}{meant}"
        )
    store: Store = made(found[scheme], "ledger", _MEMBERS, url)
    return store


def connect(url: str) -> Store:
    """A built-in store, made as by a factory of the entry-point group: a relative path begins at
    the working directory, and `sqlite://` is in the state folder of a service without settings."""
    return open_store(url, Path.cwd(), state_dir(Config()))


def ledger_of(
    config: Config,
    agent: str | None = None,
    *,
    for_callable: bool = False,
    seen: Callable[[Store], Store] | None = None,
) -> Ledger:
    """The ledger that `[approvals]` configures, not yet open; of all agents if none is named.

    It uses what `seen` makes of the store. Raises ConfigError.
    """
    given = config.approvals
    url = given.ledger or "sqlite://"
    base = config.path("approvals.ledger", ".")
    needs_state = url == "sqlite://"
    store = open_store(url, base, state_dir(config, agent=agent) if needs_state else base)
    if config.server.workers > 1 and not store.shared:
        raise ConfigError(
            f"the ledger {store.url!r} holds for one process, but server.workers is "
            f"{config.server.workers}; use 'sqlite://' or 'postgresql://...'"
        )
    return Ledger(
        store if seen is None else seen(store),
        ttl=given.ttl,
        lease=given.lease,
        deciders=given.deciders,
        accept_unissued=given.accept_unissued,
        for_callable=for_callable,
        agent=agent,
    )
