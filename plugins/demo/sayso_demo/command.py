"""`sayso demo`."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path

import click
from importlib_metadata import entry_points

from sayso.cli import config_option

_ALONE = {"server.host": "127.0.0.1", "server.workers": 1, "server.reload": False}
_DEFAULT_URL = "http://127.0.0.1:8000"
_PATHS = {"v2": "/api/chat", "v1": "/api/sendMessage"}


@click.command("demo", short_help="Serve an agent with real tools; no key needed.")
@config_option
@click.option(
    "--port", type=click.IntRange(0, 65535), help="TCP port; 0 takes a free one.  [default: 8000]"
)
@click.option("--model", metavar="NAME", help='"provider:id" instead of the offline model.')
def command(config_file: Path | None, port: int | None, model: str | None) -> None:
    """Serve the demo agent on 127.0.0.1: it looks at this machine, and asks before it acts.

    It shows disk usage, largest files, processes, memory and the tail of a log at once. Deleting a
    file of its own folder and running a shell command wait until you approve them.

    Without --model the offline model answers: it needs no key and no network, and matches your
    words to tools. It is no language model.

    \b
    Examples:
      sayso demo
      sayso demo --port 8001
      ANTHROPIC_API_KEY=... sayso demo --model anthropic:claude-sonnet-5-5
    """
    from sayso import serve
    from sayso.cli import configuration
    from sayso_demo.machine import demo_agent

    given = {**_ALONE, "model.name": model or "offline"}
    if port is not None:
        given["server.port"] = port
    installed = {entry.name for entry in entry_points(group="sayso")}
    console = ("console",) if "console" in installed else ()
    config = configuration(config_file, overrides=given, activate=console)
    active = installed if config.plugins is None else config.plugins
    path = next((_PATHS[name] for name in _PATHS if name in active), None)
    serve(demo_agent(), config=config, on_ready=partial(_what_next, path, bool(console)))


def _what_next(path: str | None, page: bool, url: str) -> None:
    # Without a protocol the start has named the one to install, and there is nothing to try.
    click.echo(("" if path is None else _steps(path, page, url)) + "Ctrl-C ends the service.\n")


def _steps(path: str, page: bool, url: str) -> str:
    chat = f"{_program()} chat" + ("" if url == _DEFAULT_URL else f" {url}")
    body = '{"messages": [{"role": "user", "content": "what fills the disk under /usr?"}]}'
    return (
        f"\nTry it, in another terminal:\n\n"
        f"  curl -s {url}{path} -H 'Content-Type: application/json' \\\n"
        f"    -d '{body}'\n\n"
        f"  {chat}\n"
        f"    > what fills the disk under /usr?\n"
        f"    > delete notes.txt          waits until you approve it\n\n"
        + ("  Or in a browser, at the address of the console above.\n\n" if page else "")
    )


def _program() -> str:
    """The way to call this program from the shell: `sayso` if that is on the path."""
    started = Path(sys.argv[0])
    if started.name == "sayso":
        return _callable(started)
    return f"{_callable(Path(sys.executable))} -m sayso"


def _callable(program: Path) -> str:
    found = shutil.which(program.name)
    if found and os.path.samefile(found, program):
        return program.name
    relative = os.path.relpath(program)
    return str(program) if relative.startswith("..") else relative
