"""A primary and a standby of PostgreSQL for one test alone."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from ports import quiet_port

_USER = "postgres"
_QUICK = "fsync = off\nfull_page_writes = off\nshared_buffers = 16MB\nmax_connections = 40\n"


def programs() -> Path | None:
    """The folder of the newest server's programs."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    given = shutil.which("initdb")
    return Path(found[-1] if found else given).parent if found or given else None


class Server:
    """A server with its data in `folder`."""

    def __init__(self, bin: Path, folder: Path) -> None:
        self._bin = bin
        self.folder = folder
        self.port = quiet_port()

    def make(self) -> None:
        """An empty cluster."""
        self._run("initdb", "-D", self.folder, "-U", _USER, "-A", "trust", "-E", "UTF8")
        self._configure()

    def copy(self, primary: Server) -> None:
        """A standby of the running primary."""
        source = f"host=127.0.0.1 port={primary.port} user={_USER}"
        self._run("pg_basebackup", "-D", self.folder, "-d", source, "-R", "-X", "stream")
        self._configure()

    def start(self) -> None:
        """Start it; returns when it takes connections."""
        log = self.folder.parent / f"{self.folder.name}.log"
        self._run("pg_ctl", "-D", self.folder, "-l", log, "-w", "-t", "120", "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it: by default at once, as in a crash."""
        with suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-D", self.folder, "-m", how, "-w", "stop")

    def promote(self) -> None:
        """Promote this standby to primary."""
        self._run("pg_ctl", "-D", self.folder, "-w", "promote")

    def _configure(self) -> None:
        socket = self.folder.parent
        own = f"port = {self.port}\nlisten_addresses = '127.0.0.1'\n"
        own += f"unix_socket_directories = '{socket}'\n{_QUICK}"
        with (self.folder / "postgresql.conf").open("a") as file:
            file.write(own)

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._bin / program), *map(str, arguments)]
        own = {"user": _USER, "group": _USER} if os.geteuid() == 0 else {}
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **own,  # type: ignore[call-overload]
        )


def usable_by_server(folder: Path) -> None:
    """Let the server's own user reach the folder, where the tests are root."""
    if os.geteuid() != 0:
        return
    owner = pwd.getpwnam(_USER)
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    for parent in folder.parents:
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
