"""`sayso health`."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import click

from sayso.cli.group import config_option, configuration

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""The loopback address of a service that listens on every address."""
LONGEST = 4096
"""Most bytes of an answer that are read; a cause is shorter."""


@click.command(short_help="Ask a running service how it is; for health checks.")
@config_option
@click.option(
    "--ready", is_flag=True, help="Ask whether it takes new turns (/ready); else: whether it lives."
)
@click.option("--host", help="Address of the service; default: that of the configuration.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of the service; default: that of the configuration.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, max=3600, min_open=True),
    default=3.0,
    show_default=True,
    help="Seconds to wait for the answer.",
)
def command(
    config_file: Path | None, ready: bool, host: str | None, port: int | None, timeout: float
) -> None:
    """Ask the service of this configuration whether it is well.

    The exit code is 0 if it answers 200, else 1 with the cause on standard error. Images without
    curl use it as their health check.

    \b
    Examples:
      sayso health                 does it live?
      sayso health --ready         does it accept new turns? (server.ready = true)
      sayso health --port 9000
    """
    server = configuration(config_file).server
    address, port = ANY.get(host or server.host, host or server.host), port or server.port
    if not port:
        raise click.UsageError("the configured port is 0, any free one; name it with --port")
    path = "/ready" if ready else "/health"
    status, body = _answer(address, port, path, timeout)
    if status == 404 and ready:
        body = "there is no /ready; set server.ready = true"
    if status != 200:
        raise click.ClickException(f"{address}:{port}{path} answers {status}: {body}")
    click.echo(f"{address}:{port}{path} answers 200")


def _answer(host: str, port: int, path: str, timeout: float) -> tuple[int, str]:
    """Status and cause from the service's answer; ClickException if there is none."""
    connection = HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, _cause(response.read(LONGEST))
    # ValueError: a name that cannot be encoded, or NaN as the timeout.
    except (OSError, HTTPException, ValueError) as error:
        raise click.ClickException(
            f"{host}:{port} does not answer: {error or type(error).__name__}"
        ) from None
    finally:
        connection.close()


def _cause(body: bytes) -> str:
    """The `detail` of an error, or the unchanged body, in one line."""
    text = body.decode(errors="replace")
    try:
        detail = json.loads(text)["detail"]
    except (ValueError, TypeError, KeyError):
        detail = text
    return " ".join((detail if isinstance(detail, str) else text).split())
