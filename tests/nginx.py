"""The real nginx before services of a test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from programs import DEADLINE, until

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIGURATION = Path(__file__).parent.parent / "deploy" / "nginx.conf"
AROUND = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/sayso.conf;
}}
"""

needs_nginx = pytest.mark.skipif(
    NGINX is None and "CI" not in os.environ, reason="needs nginx; on Debian: nginx-light"
)


@contextmanager
def fronted(folder: Path, text: str, answers: Callable[[], object]) -> Iterator[None]:
    """nginx with `text` in its `http` block, from when `answers` is true."""
    (folder / "sayso.conf").write_text(text)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
    assert NGINX is not None, "nginx is missing; on Debian: apt-get install nginx-light"
    process = subprocess.Popen([NGINX, "-p", folder, "-c", folder / "nginx.conf"])
    try:
        until(answers)
        yield
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(DEADLINE)
