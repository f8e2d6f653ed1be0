"""The demo agent: tools that look at this machine, and two that wait for a person's say-so.

`sayso_demo.machine:agent` is a target like any other.
"""

from __future__ import annotations

import heapq
import os
import shutil
import stat
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from sayso import Agent, LocalShell, RequestContext, Tool, tool
from sayso.commands.folders import PathRefused, folder_inside, private_folder, relative_parts

Count = Annotated[int, Field(ge=1, le=100)]

SCAN_SECONDS = 20.0
SCAN_ENTRIES = 1_000_000
_UPDATE_SECONDS = 1.0
_SAMPLE_SECONDS = 0.3
_TAIL_BYTES = 1 << 20
_TAIL_BLOCK = 1 << 16

SAMPLES = {
    "notes.txt": "Remember to water the plants.\nAsk Kim about the invoice.\n",
    "todo.txt": "1. Try the demo agent\n2. Approve a call\n3. Reject one, with a reason\n",
    "report.csv": "month,visitors\n2026-08,1204\n2026-09,1377\n2026-10,1512\n",
    "logs/app.log": "".join(
        f"2026-11-21T08:{minute:02}:00Z INFO request {minute} answered\n" for minute in range(40)
    ),
}
"""The files of the workspace; deleted ones are restored when the agent is made."""

SYSTEM_PROMPT = (
    "You look after this machine. Look before you answer: the reading tools run at once. "
    "delete_file and shell commands wait until a person approves them; say why you want them."
)


@tool(read_only=True)
def disk_usage(path: str = "/") -> str:
    """How full a disk is: free space, used space and size of the file system that holds a path.

    Args:
        path: A path on the disk or file system, such as / or /home.
    """
    usage = shutil.disk_usage(_existing(path))
    # Like df: space that only root may use counts as neither used nor free.
    percent = 100 * usage.used / max(usage.used + usage.free, 1)
    return (
        f"The file system of {path} is {percent:.0f} % full: {_size(usage.used)} of "
        f"{_size(usage.total)} used, {_size(usage.free)} free."
    )


@tool(read_only=True)
def largest_files(path: str, context: RequestContext, count: Count = 10) -> str:
    """List what fills the disk under a folder: the largest, biggest files and folders, big first.

    Args:
        path: The folder to look in, such as /usr or /var/log.
        count: How many of the largest files to list.
    """
    root = _existing(path)
    if not root.is_dir():
        raise ValueError(f"{path!r} is not a folder")
    scan = _Scan(root, count)
    for text in scan.run():
        context.update(text)
    return scan.report()


@tool(read_only=True)
def processes(sort_by: Literal["cpu", "memory"] = "cpu", count: Count = 10) -> str:
    """Running processes (programs) that use the most CPU or the most memory.

    Args:
        sort_by: Whether the busiest (cpu) or the biggest in memory (memory) come first.
        count: How many processes to list.
    """
    _need_proc()
    before, started = _processes(), time.monotonic()
    time.sleep(_SAMPLE_SECONDS)
    after, seconds = _processes(), time.monotonic() - started
    ticks = os.sysconf("SC_CLK_TCK") * seconds
    rows = [
        (100 * (found.ticks - before[pid].ticks) / ticks if pid in before else 0.0, found, pid)
        for pid, found in after.items()
    ]
    rows.sort(key=lambda row: row[0] if sort_by == "cpu" else row[1].memory, reverse=True)
    lines = [f"{'pid':>8}  {'cpu %':>6}  {'memory':>9}  command"]
    lines += [
        f"{pid:>8}  {cpu:>6.1f}  {_size(found.memory):>9}  {found.name}"
        for cpu, found, pid in rows[:count]
    ]
    return f"{len(rows)} processes run, the first by {sort_by}:\n" + "\n".join(lines)


@tool(read_only=True)
def memory() -> str:
    """How much memory (RAM) and swap this machine has, uses and has free."""
    _need_proc()
    stated: dict[str, int] = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith("kB"):
            stated[name] = int(value.split()[0]) * 1024
    total, available = stated["MemTotal"], stated.get("MemAvailable", stated["MemFree"])
    swap = stated.get("SwapTotal", 0)
    swapped = swap - stated.get("SwapFree", 0)
    return (
        f"Memory: {_size(total - available)} of {_size(total)} used, {_size(available)} available. "
        + (f"Swap: {_size(swapped)} of {_size(swap)} used." if swap else "There is no swap.")
    )


@tool(read_only=True)
def tail_log(path: str, lines: Annotated[int, Field(ge=1, le=1000)] = 20) -> str:
    """Show the end (tail), the last lines, of a log or text file.

    Args:
        path: The file, such as /var/log/syslog.
        lines: How many lines to show.
    """
    # Without O_NONBLOCK, opening a named pipe waits for its writer.
    descriptor = os.open(_existing(path), os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path!r} is not a regular file")
        text = _end_of(file, lines).decode("utf-8", "replace")
    return text or f"{path} is empty."


class Workspace:
    """The only folder in which the demo agent deletes files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        private_folder(folder)
        for name, content in SAMPLES.items():
            self._fill(name, content)

    def _fill(self, name: str, content: str) -> None:
        *folders, last = relative_parts(name)
        with folder_inside(self.folder, folders, create=True) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            try:
                descriptor = os.open(last, flags, 0o600, dir_fd=folder)
            except FileExistsError:
                return
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(content)

    @tool(requires_approval=True, destructive=True)
    def delete_file(self, path: str) -> str:
        """Delete (remove) a file of the demo workspace, for good.

        Args:
            path: The file, relative to the workspace, such as notes.txt.
        """
        *folders, name = relative_parts(self._relative(path))
        try:
            with folder_inside(self.folder, folders) as folder:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode):
                    raise PathRefused(f"{path!r} is a folder or a link, not a file")
                os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            raise ValueError(f"there is no file {path!r}; {self._contents()}") from None
        return f"Deleted {path} ({_size(found.st_size)})."

    def _relative(self, path: str) -> str:
        whole = f"{self.folder}/"
        return path.removeprefix(whole) if path.startswith(whole) else path

    def _contents(self) -> str:
        names = sorted(
            os.path.relpath(os.path.join(folder, name), self.folder)
            for folder, _, files in os.walk(self.folder)
            for name in files
        )
        return f"the files there are: {', '.join(names[:20])}" if names else "the folder is empty"


def demo_agent(workspace: Path | None = None) -> Agent:
    """The agent of `sayso demo`; `workspace` is the folder in which it may delete files."""
    place = Workspace((workspace or _default_workspace()).absolute())
    tools: list[Tool] = [disk_usage, largest_files, processes, memory, tail_log, place.delete_file]
    return Agent(
        name="demo",
        description="Looks after this machine: disk, memory, processes, logs, files",
        model="offline",
        tools=tools,
        system_prompt=f"{SYSTEM_PROMPT} The workspace is {place.folder}.",
        commands=LocalShell(env={"WORKSPACE": str(place.folder)}),
    )


def __getattr__(name: str) -> Any:
    if name != "agent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["agent"] = demo_agent()
    return made


def _default_workspace() -> Path:
    # One place for all processes of this user, so that reload and workers share it.
    return Path(tempfile.gettempdir()) / f"sayso-demo-{os.geteuid()}"


def _existing(path: str) -> Path:
    if "\0" in path:
        raise ValueError(f"{path!r} is no path")
    found = Path(path).expanduser()
    if not found.exists():
        raise ValueError(f"there is no {path!r} on this machine")
    return found


def _need_proc() -> None:
    if sys.platform != "linux":
        raise RuntimeError(f"this reads /proc of Linux, and this machine runs {sys.platform}")


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@dataclass
class _Scan:
    """A walk below `root` on one file system, bounded in time and entries; follows no link."""

    root: Path
    count: int
    files: list[tuple[int, str]] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    total: int = 0
    skipped: int = 0
    cut: bool = False

    def run(self) -> Iterator[str]:
        """Walk, yielding a line of progress each second."""
        device = self.root.stat().st_dev
        linked: set[int] = set()
        waiting = deque([(str(self.root), "")])
        started = shown = time.monotonic()
        while waiting and not self.cut:
            folder, top = waiting.pop()
            for entry in self._entries(folder):
                self._take(entry, top, device, linked, waiting)
                now = time.monotonic()
                if now - shown >= _UPDATE_SECONDS:
                    shown = now
                    yield f"{self.entries} entries, {_size(self.total)} so far, in {folder}"
                self.cut = now - started > SCAN_SECONDS or self.entries >= SCAN_ENTRIES
                if self.cut:
                    break

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                yield from found
        except OSError:
            self.skipped += 1

    def _take(
        self,
        entry: os.DirEntry[str],
        top: str,
        device: int,
        linked: set[int],
        waiting: deque[tuple[str, str]],
    ) -> None:
        self.entries += 1
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            self.skipped += 1
            return
        if found.st_dev != device:
            return
        if stat.S_ISDIR(found.st_mode):
            waiting.append((entry.path, top or entry.path))
        elif stat.S_ISREG(found.st_mode) and found.st_ino not in linked:
            if found.st_nlink > 1:
                linked.add(found.st_ino)
            self._count(entry.path, top, found.st_blocks * 512)

    def _count(self, path: str, top: str, size: int) -> None:
        self.total += size
        if top:
            self.folders[top] = self.folders.get(top, 0) + size
        keep = heapq.heappush if len(self.files) < self.count else heapq.heappushpop
        keep(self.files, (size, path))

    def report(self) -> str:
        lines = [f"{_size(self.total)} on disk under {self.root} in {self.entries} entries."]
        if self.cut:
            lines[0] += " There are more: the search was stopped at its limit."
        if self.skipped:
            lines[0] += f" {self.skipped} could not be read."
        folders = heapq.nlargest(self.count, ((s, p) for p, s in self.folders.items()))
        lines += _table("Largest folders:", folders)
        lines += _table("Largest files:", sorted(self.files, reverse=True))
        return "\n".join(lines)


def _table(title: str, rows: list[tuple[int, str]]) -> list[str]:
    return [title, *(f"{_size(size):>10}  {path}" for size, path in rows)] if rows else []


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    ticks: int
    memory: int


def _processes() -> dict[int, _Process]:
    page = os.sysconf("SC_PAGE_SIZE")
    found: dict[int, _Process] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 1 :].split()
        found[int(pid)] = _Process(name, int(fields[11]) + int(fields[12]), int(fields[21]) * page)
    return found


def _end_of(file: Any, lines: int) -> bytes:
    position = file.seek(0, os.SEEK_END)
    end = b""
    while position > 0 and end.count(b"\n") <= lines and len(end) < _TAIL_BYTES:
        step = min(_TAIL_BLOCK, position)
        position = file.seek(position - step)
        end = file.read(step) + end
    return b"".join(end.splitlines(keepends=True)[-lines:])
