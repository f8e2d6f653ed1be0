"""Forks services quickly: imports once, then forks one process for each line of standard input.

A line is `{"folder": str, "said": str, "environ": {...}}`; the answer is the process id, and after
one more line the child begins. A child is a process of its own that runs `acting.main()` in its
folder, with its output in the file `said`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback

import acting

# Modules that a service imports at its start, so that children need not.
for module in (
    "sayso.app",
    "sayso.listener.listener",
    "sayso.ledger.sqlite",
    "sayso_v1",
    "sayso_v2",
    "uvloop",
    "httptools",
    "uvicorn.protocols.http.httptools_impl",
):
    importlib.import_module(module)


def live(folder: str, said: str, environ: dict[str, str]) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(folder)
    output = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(environ)
    acting.main()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while line := sys.stdin.readline():
        order = json.loads(line)
        begin, started = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 0
            try:
                os.close(started)
                os.read(begin, 1)
                os.close(begin)
                live(**order)
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 1
            except BaseException:
                traceback.print_exc()
                status = 70
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)
        os.close(begin)
        sys.stdin.readline()
        os.close(started)


if __name__ == "__main__":
    main()
