"""An agent served in this process, for `sayso chat TARGET`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import click

from sayso import install_line
from sayso_chat.client import ChatError

_ALONE = {"server.host": "127.0.0.1", "server.workers": 1, "server.reload": False}
_SILENT = 1.5
"""Seconds that the end may take before a message is printed."""


@contextmanager
def serving(target: str, config_file: Path | None) -> Iterator[str]:
    """Serve `target` on a free port of 127.0.0.1 within the block, and give its address.

    It is configured as `sayso serve TARGET` would be. Raises StartupError.
    """
    from sayso import create_app, load_agent, running
    from sayso.cli import configuration

    config = configuration(
        config_file, overrides={**_ALONE, "server.drain_timeout": 0.0, "agent": target}
    )
    # A person or a script reads the output, so log only problems.
    logging.getLogger("sayso").setLevel(logging.WARNING)
    app = create_app(load_agent(target, Path.cwd()), config=config)
    if not any(name in app.host.plugins.names for name in ("v1", "v2")):
        raise ChatError(f"chat needs a protocol plugin; try: {install_line('sayso[v2]')}")
    words = "waiting for what still runs; Ctrl-C leaves at once"
    note = Timer(_SILENT, click.echo, [words], {"err": True})
    note.daemon = True
    try:
        with running(app, app.host.config) as port:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                note.start()
    finally:
        note.cancel()
