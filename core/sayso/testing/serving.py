"""A real service on a free port of 127.0.0.1, for the length of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sayso.testing.client import Service

if TYPE_CHECKING:
    from sayso.config import Config


@contextmanager
def served(
    agent: object | None = None,
    plugins: Sequence[object] = (),
    *,
    config: str | Path = "",
    **options: Any,
) -> Iterator[Service]:
    """Serve `agent` over HTTP and return a client of it; everything ends with the block.

    `plugins` are plugins as objects or classes, beside the installed ones. `config` is the text of
    a sayso.toml, or the path of one; without `agent` it names the agent. `options` are those of
    `serve`. The environment is not read; the ledger is `memory://` and the state folder a temporary
    one unless `config` says otherwise. Raises StartupError with the text that `serve` would print.
    """
    from sayso.app import create_app
    from sayso.plugins.routes import claims
    from sayso.threaded import running

    with TemporaryDirectory(prefix="sayso-", ignore_cleanup_errors=True) as folder:
        loaded = _config(config, Path(folder))
        if agent is None:
            agent = _agent(loaded)
        app = create_app(agent, config=loaded, plugins=plugins, **options)
        with running(app, app.host.config) as port:
            routes = [f"{method} {path}" for method, path in claims(app.router)]
            yield Service(app.host, port, routes)


class Served:
    """`served` without the `with`: each service lives until `close`, or the end of the test."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __call__(
        self,
        agent: object | None = None,
        plugins: Sequence[object] = (),
        *,
        config: str | Path = "",
        **options: Any,
    ) -> Service:
        return self._stack.enter_context(served(agent, plugins, config=config, **options))

    def close(self) -> None:
        """End the services, the last one first."""
        self._stack.close()


def _config(given: str | Path, folder: Path) -> Config:
    from sayso.config import load_config

    file = given if isinstance(given, Path) else folder / "sayso.toml"
    if isinstance(given, str):
        file.write_text(given, encoding="utf-8")
    said = load_config(file.resolve(), environ={})
    defaults = {
        "approvals.ledger": "memory://",
        "server.state_dir": str(folder / "state"),
        "server.host": "127.0.0.1",
    }
    overrides = {k: v for k, v in defaults.items() if said.origin(k).kind == "default"}
    return load_config(file.resolve(), environ={}, overrides=overrides)


def _agent(config: Config) -> object:
    from sayso.config.targets import load_agent
    from sayso.errors import ConfigError

    if config.agent is None:
        raise ConfigError("there is no agent; give one to served(), or name one in its config")
    return load_agent(config.agent, config.path("agent", "."))
