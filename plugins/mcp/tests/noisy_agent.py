"""An agent whose module and tools write wherever they can, for the tests of stdio."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time

from sayso import Agent, tool

print("noise at import")


@tool
def prints() -> str:
    """Print, with and without flushing."""
    print("noise")
    print("flushed noise", flush=True)
    sys.stdout.write("unfinished noise")
    os.write(1, b"raw noise\n")
    return "printed"


@tool
def forks() -> str:
    """Leave children that write to stdout."""
    subprocess.run(["sh", "-c", 'echo noise of a child; echo \'{"jsonrpc":"2.0"}\''], check=True)
    if os.fork() == 0:
        os.write(1, b"noise of a fork\n")
        os._exit(0)
    os.wait()
    return "forked"


@tool
def ends_a_fork() -> str:
    """Start a child as `multiprocessing` does, and end it."""
    started, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begin, b".")
        time.sleep(30)
        os._exit(0)
    os.read(started, 1)
    os.kill(child, signal.SIGTERM)
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@tool
def leaves_a_fork() -> str:
    """Start a child that outlives the server."""
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        time.sleep(600)
        os._exit(0)
    return str(child)


@tool
async def forever() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return ""


@tool
def floods() -> str:
    """Write more than any pipe holds."""
    for _ in range(200):
        print("noise " * 1000)
    return "x" * 300_000


@tool
def reads() -> str:
    """Read from stdin, which is the client's."""
    return repr(sys.stdin.readline())


@tool
def misses() -> str:
    """Fail to open a file whose name is not UTF-8."""
    raise FileNotFoundError("no file \udcff")


@tool
def slow() -> str:
    """Take a moment, and warn in a log of its own."""
    logging.getLogger("noise").warning("noise in a log")
    time.sleep(0.5)
    return "slept"


@tool(requires_approval=True)
def gated(path: str) -> str:
    """Write a line into a file."""
    print("noise of a gated tool")
    with open(path, "a") as file:
        file.write("ran\n")
    return "written"


@tool(requires_approval=True)
def dies(path: str) -> str:
    """Write a line into a file, and end the process before anything is recorded."""
    gated(path)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


agent = Agent(
    name="noisy",
    model="offline",
    tools=[
        prints,
        forks,
        ends_a_fork,
        leaves_a_fork,
        forever,
        floods,
        reads,
        misses,
        slow,
        gated,
        dies,
    ],
)
