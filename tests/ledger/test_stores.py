"""One set of checks for every store, and the choice of a store by its URL."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from importlib_metadata import entry_points

from sayso.errors import ConfigError
from sayso.installing import install_line
from sayso.ledger.conformance import CHECKS
from sayso.ledger.conformance.samples import Check, Factory
from sayso.ledger.memory import MemoryStore
from sayso.ledger.sqlite import SqliteStore
from sayso.ledger.stores import open_store


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_store_conforms(check: Check, factory: Factory) -> None:
    asyncio.run(_bounded(check, factory))


async def _bounded(check: Check, factory: Factory) -> None:
    await asyncio.wait_for(check(factory), 120)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///ledger.db", "/base/ledger.db"),
        ("sqlite:///below/a%20b.db", "/base/below/a b.db"),
        ("sqlite:////var/lib/ledger.db", "/var/lib/ledger.db"),
        ("sqlite://", "/state/approvals.db"),
    ],
)
def test_sqlite_urls_name_files(url: str, path: str) -> None:
    store = open_store(url, Path("/base"), Path("/state"))
    assert isinstance(store, SqliteStore)
    assert store.path == Path(path)
    assert store.shared


def test_memory_is_not_shared() -> None:
    store = open_store("memory://", Path("/base"), Path("/state"))
    assert isinstance(store, MemoryStore)
    assert not store.shared


@pytest.mark.parametrize("url", ["memory://", "sqlite:///a.db", "postgresql://host/db"])
def test_stores_of_this_repository_are_factories_of_the_group_that_others_add_to(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    name = url.partition(":")[0]
    (entry,) = entry_points(group="sayso.ledgers", name=name)
    store = entry.load()(url)
    assert type(store) is type(open_store(url, tmp_path, tmp_path))
    assert store.url == url or store.path == tmp_path / "a.db"


@pytest.mark.parametrize("url", ["redis://host", "ledger.db", "", "sqlite://a.db", "sqlite:///"])
def test_a_wrong_url_says_what_to_write(url: str) -> None:
    with pytest.raises(ConfigError, match=r"'sqlite'|sqlite:///"):
        open_store(url, Path("/base"), Path("/state"))


def test_a_store_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: ())
    with pytest.raises(ConfigError, match=re.escape(install_line("sayso[postgres]"))) as caught:
        open_store("postgresql://me:secret@host/db", Path("/base"), Path("/state"))
    assert "secret" not in str(caught.value)


def test_a_driver_that_cannot_be_imported_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [n for n in sys.modules if n.startswith("sayso_postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    way = install_line("--force-reinstall", "sayso[postgres]")
    with pytest.raises(ConfigError, match=re.escape(way)):
        open_store("postgresql://host/db", Path("/base"), Path("/state"))


def test_other_packages_bring_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "strange-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[sayso.ledgers]\nstrange = strange:Strange\nbroken = strange_missing:X\n"
        "bare = strange:Bare\n"
    )
    (tmp_path / "strange.py").write_text(
        "from sayso.ledger.memory import MemoryStore\n"
        "class Bare:\n    def __init__(self, url):\n        self.url = url\n"
        "class Strange(Bare, MemoryStore): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    store = open_store("strange://there", Path("/base"), Path("/state"))
    assert store.url == "strange://there"
    with pytest.raises(ConfigError, match="'strange'"):
        open_store("stranger://there", Path("/base"), Path("/state"))
    with pytest.raises(ConfigError, match="'broken' cannot be imported"):
        open_store("broken://there", Path("/base"), Path("/state"))
    with pytest.raises(ConfigError, match="which is no ledger: it has no 'shared', 'open', "):
        open_store("bare://there", Path("/base"), Path("/state"))
