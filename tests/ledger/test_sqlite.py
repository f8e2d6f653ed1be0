"""The SQLite store under faults: killed processes, broken files, full disks, foreign locks."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from sayso.errors import ConfigError, LedgerUnavailable
from sayso.ledger import Owner, Reading, Store, Transaction, log
from sayso.ledger.conformance.samples import get, opened, proposal, put
from sayso.ledger.owners import boot_id
from sayso.ledger.sqlite import SqliteStore
from sayso.ledger.tables import SCHEMA

T = TypeVar("T")

PRELUDE = """
import asyncio, os, signal, sys, threading, time
from pathlib import Path
from sayso.errors import ConfigError, LedgerUnavailable
from sayso.ledger import Owner, Reading, log
from sayso.ledger.conformance.samples import get, opened, proposal, put
from sayso.ledger.owners import boot_id
from sayso.ledger.sqlite import SqliteStore
path = Path(sys.argv[1])
"""


def process(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process that runs `code` after the prelude, with its output captured."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )


def output(child: subprocess.Popen[str]) -> str:
    """The output of the process until it ended."""
    return child.communicate(timeout=120)[0]


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work(), 120)

    return asyncio.run(bounded())


def made(path: Path, *names: str) -> None:
    """Make a store at `path` with proposals of these names."""

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await put(store, *(proposal(name) for name in names))

    run(work)


async def refused(store: Store) -> LedgerUnavailable:
    with pytest.raises(LedgerUnavailable) as caught:
        await put(store, proposal("refused"))
    return caught.value


def test_sqlite_files_are_private(path: Path) -> None:
    before = os.umask(0)
    try:
        made(path, "a")

        async def work() -> None:
            async with opened(lambda: SqliteStore(path)) as store:
                store.hold("me")
                await put(store, proposal("b"))
                files = [p for p in path.parent.rglob("*") if p.is_file()]
                assert len(files) >= 4
                assert {p.stat().st_mode & 0o777 for p in files} == {0o600}
                folders = {path.parent, *(p.parent for p in files)}
                assert {p.stat().st_mode & 0o777 for p in folders} == {0o700}

        run(work)
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open a store of somebody else")
def test_what_root_makes_beside_a_store_belongs_to_the_stores_owner(path: Path) -> None:
    made(path, "a")
    for beside in path.parent.iterdir():
        if beside.is_dir():
            beside.rmdir()
        elif beside != path:
            beside.unlink()
    os.chown(path, 65534, 65534)

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await get(store, "a")
            owners = {beside.name: beside.stat().st_uid for beside in path.parent.iterdir()}
            assert len(owners) == 5
            assert set(owners.values()) == {65534}, owners

    run(work)


CLAIMS = """
def claim(name):
    def work(tx):
        row = tx.proposals([name])[name]
        if row.state != "PENDING":
            return False
        row.state = "EXECUTING"
        tx.put(row)
        log.append(tx, {"event": "claimed", "by": os.getpid(), "id": name})
        return True
    return work

async def main():
    async with opened(lambda: SqliteStore(path)) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        won = [n for n in range(100) if await store.run(claim(f"p{n}"))]
        print(*won)

asyncio.run(main())
"""


def test_of_two_processes_one_wins_each_claim(path: Path) -> None:
    made(path, *(f"p{n}" for n in range(100)))
    children = [process(CLAIMS, path) for _ in range(2)]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    won = [[int(n) for n in output(child).split()] for child in children]
    assert sorted(won[0] + won[1]) == list(range(100))

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await log.verify_store(store) is None
            heads = await store.run(lambda tx: tx.heads())
            assert sum(head.seq for head in heads.values()) == 100

    run(work)


@pytest.mark.parametrize("flushed", [True, False])
def test_what_run_returned_survives_a_kill(path: Path, flushed: bool) -> None:
    child = process(
        """
async def main():
    async with opened(lambda: SqliteStore(path)) as store:
        os.fdatasync = lambda log: time.sleep(600)
        work = Reading(lambda tx: tx.put(proposal("a")), flushed=sys.argv[2] == "True")
        await store.run(work)
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
""",
        path,
        flushed,
    )
    output(child)
    assert child.returncode == -signal.SIGKILL

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await get(store, "a") == proposal("a")

    run(work)


def synchronous(tx: Transaction) -> int:
    """SQLite's setting of that name: 1 writes, 2 also waits for the disk."""
    return int(tx._db.read("PRAGMA synchronous")[0][0])  # type: ignore[attr-defined]


def test_only_work_that_says_so_is_committed_without_waiting_for_the_disk(path: Path) -> None:
    started, free = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        started.set()
        free.wait(120)

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await store.run(synchronous) == 2
            assert await store.run(Reading(synchronous)) == 2
            assert await store.run(Reading(synchronous, flushed=False)) == 1
            assert await store.run(synchronous) == 2
            holding = asyncio.create_task(store.run(Reading(hold, flushed=False)))
            await asyncio.to_thread(started.wait)
            works = [Reading(synchronous, flushed=False), synchronous]
            group = asyncio.gather(*(store.run(each) for each in works))
            await asyncio.sleep(0)
            free.set()
            await holding
            assert await group == [2, 2], "one work that waits has its whole group wait"

    run(work)


def test_work_that_did_not_wait_for_the_disk_is_there_directly_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushing, free, flushed = threading.Event(), threading.Event(), []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        flushing.set()
        free.wait(120)
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr("os.fdatasync", fdatasync)

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await store.run(Reading(lambda tx: tx.put(proposal("a")), flushed=False))
            await asyncio.to_thread(flushing.wait, 120)
            assert flushed == [], "the result came before the disk had it"
            free.set()
            await put(store, proposal("b"))
            assert flushed == [f"{path}-wal"]

    run(work)


def test_disk_that_does_not_take_what_was_answered_ends_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fdatasync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fdatasync)

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await store.run(Reading(lambda tx: tx.put(proposal("a")), flushed=False))
            assert "cannot be flushed to disk; check the disk, restart" in str(await refused(store))

    run(work)
    assert "cannot be flushed to disk; check the disk, restart the service" in caplog.text


def test_store_behind_a_link_takes_work_that_does_not_wait_for_the_disk(path: Path) -> None:
    path.parent.joinpath("volume").mkdir(parents=True)
    path.symlink_to(path.parent / "volume" / "real.db")

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await store.run(Reading(lambda tx: tx.put(proposal("a")), flushed=False))
            await put(store, proposal("b"))

    run(work)


def test_process_out_of_descriptors_still_flushes_its_store(path: Path) -> None:
    child = process(
        """
import resource
async def main():
    async with opened(lambda: SqliteStore(path)) as store:
        flushed, real = [], os.fdatasync
        os.fdatasync = lambda log: flushed.append(real(log))
        await put(store, proposal("a"))
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
        await store.run(Reading(lambda tx: tx.put(proposal("b")), flushed=False))
        await put(store, proposal("c"))
        print(len(flushed))
asyncio.run(main())
""",
        path,
    )
    assert output(child) == "1\n"


def test_work_never_passes_for_flushed_where_sqlite_did_not_take_the_setting(path: Path) -> None:
    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert await store.run(Reading(synchronous, flushed=False)) == 1
            assert store._db is not None
            store._db.raw.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
            await refused(store)
            store._db.raw.set_authorizer(None)
            assert await store.run(synchronous) == 2

    run(work)


HOLDS = """
async def main():
    async with opened(lambda: SqliteStore(path)) as store:
        store.hold("other")
        print("held", flush=True)
        sys.stdin.readline()
asyncio.run(main())
"""


@pytest.mark.skipif(not boot_id(), reason="this kernel tells no boot id")
def test_a_killed_owner_is_dead_at_once(path: Path) -> None:
    made(path)
    child = process(HOLDS, path)
    assert child.stdout
    assert child.stdout.readline() == "held\n"
    store = SqliteStore(path)
    other = Owner("other", boot_id(), 1, time.time() + 3600)
    assert not store.dead(other)
    os.kill(child.pid, signal.SIGSTOP)
    assert not store.dead(other)
    child.kill()
    output(child)
    assert store.dead(other)
    assert not store.dead(Owner("other", "another boot", 1, 0.0))
    assert store.dead(Owner("never-seen", boot_id(), 1, 0.0))
    assert not store.dead(Owner("../ledger.db", boot_id(), 1, 0.0))


FORKS = """
async def main():
    store = SqliteStore(path)
    await store.open()
    store.hold("other")

    def work(tx):
        child = os.fork()
        if child == 0:
            os.close(0)
            os.close(1)
            os.close(2)
            time.sleep(600)
            os._exit(0)
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    await store.run(work)

asyncio.run(main())
"""


OPENS = """
async def main():
    async with opened(lambda: SqliteStore(path)) as store:
        await put(store, proposal("a"))
        print(store.dead(Owner("other", boot_id(), 1, time.time() + 3600)))

asyncio.run(main())
"""


@pytest.mark.skipif(not boot_id(), reason="this kernel tells no boot id")
def test_process_that_was_forked_keeps_no_lock_of_its_dead_parent(path: Path) -> None:
    made(path)
    # From Python 3.12 on a warning about forking beside threads comes before it.
    forked = int(output(process(FORKS, path)).split()[-1])
    try:
        assert output(process(OPENS, path)) == "True\n"
    finally:
        os.kill(forked, signal.SIGKILL)


def test_hold_removes_stale_files_and_close_its_own(path: Path) -> None:
    made(path)
    child = process(HOLDS, path)
    assert child.stdout
    assert child.stdout.readline() == "held\n"
    folder = path.with_name("ledger.db.owners")

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            store.hold("first")
            assert sorted(p.name for p in folder.iterdir()) == ["first", "other"]
        child.kill()
        output(child)
        async with opened(lambda: SqliteStore(path)) as store:
            store.hold("second")
            assert [p.name for p in folder.iterdir()] == ["second"]
        assert list(folder.iterdir()) == []

    run(work)


def stopped(path: Path) -> str:
    """The message of the ConfigError with which the store at `path` stops the start."""
    store = SqliteStore(path, busy=0.2)
    with pytest.raises(ConfigError) as caught:
        run(store.open)
    assert repr(str(path)) in str(caught.value)
    run(store.close)
    return str(caught.value)


@pytest.mark.parametrize("below", ["approvals.db", "state/approvals.db"])
def test_a_file_in_the_place_of_the_folder_is_named_as_the_cause(
    tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").touch()
    assert "a file stands where its folder should be" in stopped(tmp_path / "file" / below)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_stops_the_start_and_nothing_is_made_beside_it(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "store"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(os.devnull)
    assert f"is a {kind}, no file; choose another" in stopped(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_newer_schema_stops_the_start(path: Path) -> None:
    made(path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    assert f"schema {SCHEMA + 1}" in stopped(path)


def test_a_file_that_is_no_database_stops_the_start(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all, but long enough to have a header" * 100)
    assert "is no approvals store" in stopped(path)


def test_a_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    assert "is no approvals store" in stopped(path)
    assert path.read_bytes() == before


def damage(path: Path) -> None:
    """Overwrite the middle of the file, where its trees are."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 8192))


def test_a_damaged_file_stops_the_start(path: Path) -> None:
    made(path, *(f"p{n}" for n in range(50)))
    damage(path)
    assert "is damaged" in stopped(path)


def test_a_file_damaged_while_it_is_open_refuses_the_work(path: Path) -> None:
    made(path, *(f"p{n}" for n in range(50)))

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert isinstance(store, SqliteStore)
            assert store._db
            store._db.read("PRAGMA shrink_memory")
            damage(path)
            with pytest.raises(LedgerUnavailable):
                await store.run(lambda tx: tx.find())

    run(work)


def test_a_file_removed_while_it_is_open_takes_no_work(path: Path) -> None:
    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await put(store, proposal("a"))
            os.rename(path, path.with_name("elsewhere.db"))
            assert "moved or removed" in str(await refused(store))
            with pytest.raises(LedgerUnavailable):
                store.renew("me", 10, ["a"])
            os.rename(path.with_name("elsewhere.db"), path)
            await put(store, proposal("b"))

    run(work)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_file_beside_the_store_removed_while_it_is_open_takes_no_work(
    path: Path, suffix: str
) -> None:
    beside = path.with_name(path.name + suffix)

    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            await put(store, proposal("a"))
            beside.unlink()
            assert "moved or removed" in str(await refused(store))
        async with opened(lambda: SqliteStore(path)) as store:
            assert await get(store, "a") == proposal("a")
            assert await get(store, "refused") is None

    run(work)


READ_ONLY = """
asyncio.run(asyncio.to_thread(int))  # imports what the user below may not read
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
async def main():
    try:
        await SqliteStore(path).open()
    except ConfigError as error:
        print(error)
asyncio.run(main())
"""


@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_that_cannot_be_written_stops_the_start(path: Path, mode: int) -> None:
    made(path, "a")
    path.chmod(mode)
    for folder in [path.parent, *path.parents][:4]:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    said = output(process(READ_ONLY, path))
    assert "check the permissions" in said
    assert repr(str(path)) in said


def test_a_full_disk_refuses_the_work_and_recovers(path: Path) -> None:
    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            assert isinstance(store, SqliteStore)
            assert store._db
            await put(store, proposal("a"))
            [(pages,)] = store._db.read("PRAGMA page_count")
            store._db.read(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(LedgerUnavailable):
                await put(store, proposal("b", output="x" * 100_000))
            both = await asyncio.gather(
                put(store, proposal("b", output="x" * 100_000)),
                get(store, "a"),
                return_exceptions=True,
            )
            assert isinstance(both[0], LedgerUnavailable)
            assert both[1] == proposal("a")
            assert await get(store, "b") is None
            store._db.read("PRAGMA max_page_count = 100000")
            await put(store, proposal("b", output="x" * 100_000))

    run(work)


def test_a_full_disk_stops_the_start(path: Path) -> None:
    path.parent.mkdir()
    said = output(
        process(
            """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
async def main():
    try:
        await SqliteStore(path).open()
    except ConfigError as error:
        print(error)
asyncio.run(main())
""",
            path,
        )
    )
    assert repr(str(path)) in said
    assert "free" in said


def test_process_out_of_descriptors_is_told_so_at_the_start(path: Path) -> None:
    said = output(
        process(
            """
import resource
async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    try:
        await SqliteStore(path).open()
    except ConfigError as error:
        print(error)
asyncio.run(main())
""",
            path,
        )
    )
    assert "Too many open files; raise the limit of open files (ulimit -n)" in said
    assert "permissions" not in said


def test_a_foreign_lock_refuses_the_work_and_recovers(path: Path) -> None:
    made(path)

    async def work() -> None:
        async with opened(lambda: SqliteStore(path, busy=0.2)) as store:
            with sqlite3.connect(path, isolation_level=None) as foreign:
                foreign.execute("BEGIN IMMEDIATE")
                await refused(store)
                foreign.execute("ROLLBACK")
            foreign.close()
            await put(store, proposal("a"))

    run(work)


def test_a_locked_file_stops_the_start(path: Path) -> None:
    made(path)
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    assert "is locked by another process" in stopped(path)
    foreign.close()


GATED = """
import fcntl

async def main():
    store = SqliteStore(path, busy=0.2)
    with path.with_name("ledger.db.lock").open() as gate:
        if sys.argv[2] == "start":
            fcntl.flock(gate, fcntl.LOCK_EX)
        try:
            await store.open()
        except ConfigError as error:
            print(error)
            return
        await asyncio.to_thread(store.renew, "me", 10.0, ["a"])
        fcntl.flock(gate, fcntl.LOCK_EX)
        threading.Thread(target=store.renew, args=("me", 10.0, ["a"]), daemon=True).start()
        while not store._renewing.locked():
            await asyncio.sleep(0.01)
        await store.close()
        print("closed")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("when", "reported"), [("start", "is locked by another process"), ("later", "closed")]
)
def test_a_process_that_keeps_the_gate_holds_up_neither_start_nor_end(
    path: Path, when: str, reported: str
) -> None:
    made(path)
    assert reported in output(process(GATED, path, when))


async def settled(store: Store) -> None:
    """Wait until the store accepts works again."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(LedgerUnavailable):
            return await put(store, proposal("settled"))
    raise AssertionError("the store did not recover")


def test_a_stuck_writer_gives_its_callers_an_error_in_time(path: Path) -> None:
    started, free = threading.Event(), threading.Event()

    def stick(tx: object) -> None:
        started.set()
        free.wait(120)

    async def work() -> None:
        async with opened(lambda: SqliteStore(path, patience=1)) as store:
            stuck = asyncio.create_task(store.run(stick))
            await asyncio.to_thread(started.wait)
            waiting = await refused(store)
            assert "in time" in str(waiting)
            with pytest.raises(LedgerUnavailable):
                await stuck
            free.set()
            await settled(store)
            assert await get(store, "refused") is None

    run(work)


def test_leases_are_renewed_while_the_writer_is_busy(path: Path) -> None:
    async def work() -> None:
        async with opened(lambda: SqliteStore(path)) as store:
            owner = Owner("me", "boot", 1, 5.0)
            await put(store, proposal("a", state="EXECUTING", owner=owner))
            flood = asyncio.gather(
                *(put(store, proposal(f"p{n}", output="x" * 10_000)) for n in range(1_000))
            )
            await asyncio.to_thread(store.renew, "me", 3600.0, ["a"])
            await flood
            row = await get(store, "a")
            assert row
            assert row.owner
            assert row.owner.lease > time.time() + 3000

    run(work)
