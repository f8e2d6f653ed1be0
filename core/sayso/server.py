"""`serve`: one agent on a port, in one process or several."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from sayso.addresses import hide_credentials
from sayso.agent import as_agent
from sayso.config import Config
from sayso.config.files import PIPE, no_file
from sayso.config.options import Extras, Options, configured
from sayso.config.targets import load_agent, loading
from sayso.errors import ConfigError, StartupError
from sayso.garbage import THRESHOLD, keep_all, no_collecting
from sayso.service.place import Place, take_place
from sayso.service.ports import bind
from sayso.service.signals import answered, nothing
from sayso.service.stderr import StandardError, say
from sayso.workers import new_event_loop

if TYPE_CHECKING:
    from sayso.listener.listener import Listener

logger = logging.getLogger("sayso.server")


def serve(
    agent: object | str | None = None,
    *,
    config: Config | None = None,
    on_ready: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> None:
    """Serve `agent` until SIGTERM or SIGINT; returns when every turn has ended.

    `agent` is an Agent, a callable `(messages, context) -> result`, or a name such as
    "module:object"; without it, the configuration names the agent. Options are the keys of
    `[server]` (`port=8000`, `host="0.0.0.0"`, `reload=False`, `workers=1`, …) and a few more; they
    win over `config`, or, without `config`, over the configuration file and environment.
    `on_ready` is called with the service's address, such as "http://127.0.0.1:8000", once it
    listens there.

    With `reload` or `workers` above 1 the same command line runs again in each child process, and
    its call of `serve` becomes the child's: code before that call runs there too.

    Raises ConfigError, a ValueError, for wrong options, and StartupError inside a running event
    loop or in a module that is imported for its agent; prints one line and raises SystemExit(1)
    when the service cannot start; raises it also if a lifespan ends before the service does.
    """
    _refuse_running_loop()
    _refuse_import()
    settings, extras = configured(options, config)
    place = take_place()
    _have_standard_files()
    _configure_logging(settings.server.log_level, settings.server.log_format == "json")
    try:
        if agent is None and settings.agent is None:
            raise ConfigError(
                "there is no agent; name one as 'path/to/file.py:object' or 'module:object', or "
                "set agent in sayso.toml"
            )
        if place is None and (settings.server.reload or settings.server.workers > 1):
            _supervise(settings)
        elif place is not None and place.role == "plugins":
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(_run_plugins(_agent(agent, settings), settings, extras, place))
        else:
            served = _agent(agent, settings)
            # Set already here: the objects made by a start stay, and examining them takes time.
            gc.set_threshold(THRESHOLD)
            _run(served, settings, extras, place, on_ready)
    except StartupError as error:
        if settings.server.debug:
            logger.debug("the start failed", exc_info=True)
        say(str(error))
        if place is not None:
            place.report_failed(str(error))
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        if place is not None:
            place.close()


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise StartupError(
        "serve() runs an event loop of its own, and here one is running already; call it outside "
        "of async code, or give create_app(agent) to a server of yours, such as "
        "await uvicorn.Server(uvicorn.Config(create_app(agent))).serve()"
    )


def _refuse_import() -> None:
    if loading.get():
        raise StartupError(
            "serve() was called in a module that is imported for its agent; "
            "put the call under if __name__ == '__main__'"
        )


def _supervise(config: Config) -> None:
    from sayso.service.supervisor import Supervisor

    server = config.server
    if server.workers > 1 and (config.approvals.ledger or "").startswith("memory:"):
        raise ConfigError(
            "approvals.ledger 'memory://' cannot be shared by several processes; "
            "use sqlite:/// or postgresql://, or workers = 1"
        )
    tokens = config.auth.tokens_file
    if tokens is not None and no_file(config.path("auth.tokens_file", tokens)) == PIPE:
        raise ConfigError(
            f"auth.tokens_file {str(tokens)!r} is a pipe, which only one process can read; "
            "write the tokens into a file, or set workers = 1 and reload = false"
        )
    status = Supervisor(
        bind(server.host, server.port, server.workers),
        workers=server.workers,
        reload=server.reload,
        patience=0.0 if server.reload else server.lame_duck + server.drain_timeout,
        watched=[config.file] if config.file else [],
    ).run()
    if status:
        raise SystemExit(status)


def _have_standard_files() -> None:
    """Open those of 0, 1 and 2 that are closed.

    A socket in the place of one would become the output of children, and uvloop aborts when it
    closes it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)


def _run(
    agent: object,
    config: Config,
    extras: Extras,
    place: Place | None,
    on_ready: Callable[[str], None] | None,
) -> None:
    server = config.server
    # Bind before the app is built: a busy port is reported at once, by the process that binds.
    with ExitStack() as stack:
        sockets = place.listening if place else bind(server.host, server.port)
        for each in sockets:
            stack.enter_context(each)
        with no_collecting():
            _import_uvicorn()
            from sayso.app import app_to_serve

            app = app_to_serve(agent, config, extras)
            if place is not None:
                place.check(app.host)
                app.host.start_token = place.token
            listener = _listener(app, config, place, sockets, on_ready)
            keep_all()
        listener.run()
        if listener.broke_off:
            raise SystemExit(1)


def _import_uvicorn() -> None:
    """Import uvicorn's server without its command line, which takes as long and imports click.

    Other parts of the package, such as `uvicorn.run`, are imported on demand.
    """
    if "uvicorn" in sys.modules:
        return
    spec = importlib.util.find_spec("uvicorn")
    assert spec is not None and spec.loader is not None
    package: Any = importlib.util.module_from_spec(spec)
    execute = spec.loader.exec_module

    def rest(name: str) -> Any:
        execute(package)
        package.__dict__.pop("__getattr__", None)
        return getattr(package, name)

    sys.modules["uvicorn"] = package
    package.Config = importlib.import_module("uvicorn.config").Config
    package.Server = importlib.import_module("uvicorn.server").Server
    package.__getattr__ = rest


def _listener(
    app: Any,
    config: Config,
    place: Place | None,
    sockets: list[socket.socket],
    on_ready: Callable[[str], None] | None,
) -> Listener:
    from sayso.http.access import entrance
    from sayso.listener.listener import Listener, uvicorn_config

    def ready() -> None:
        if place is None or place.first:
            url = _url(sockets[0])
            say(f"listening on {url}", *app.host.describe(), *entrance(app.host, url))
            if on_ready is not None:
                on_ready(url)
        if place is not None:
            place.report(app)

    return Listener(
        uvicorn_config(app, config),
        sockets,
        drain_timeout=1.0 if place and place.reload else config.server.drain_timeout,
        lame_duck=0.0 if place and place.reload else config.server.lame_duck,
        on_ready=ready,
        place=place,
    )


async def _run_plugins(agent: object, config: Config, extras: Extras, place: Place) -> None:
    """Run the plugins that want a process of their own in this one."""
    from sayso.app import run_own_process

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_reader(place.link, stop.set)
    calls = {signal.SIGTERM: stop.set, signal.SIGINT: nothing, signal.SIGHUP: nothing}
    with answered(calls):
        async with run_own_process(agent, config, extras, place.check):
            place.report(None)
            await stop.wait()
            loop.remove_reader(place.link)


def _agent(agent: object | str | None, config: Config) -> object:
    if agent is not None and not isinstance(agent, str):
        return agent
    target, base = (agent, Path.cwd()) if agent else (config.agent, config.path("agent", "."))
    assert target is not None
    try:
        return as_agent(load_agent(target, base))
    except TypeError as error:
        raise ConfigError(f"{target}: {error}") from None


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _configure_logging(level: str, as_json: bool) -> None:
    hide_credentials()
    number = logging.getLevelNamesMapping()[level.upper()]
    # At its debug level it logs every WebSocket frame, and each bearer token.
    quiet = logging.INFO if level == "debug" else max(number, logging.WARNING)
    for name, least in (
        ("sayso", number),
        ("uvicorn", quiet),
        ("uvicorn.error", quiet),
        ("uvicorn.access", quiet),
    ):
        logging.getLogger(name).setLevel(least)
    if logging.getLogger().handlers:
        return
    # The agent is loaded later, and may configure logging for the whole program.
    handler = StandardError(named=True, as_json=as_json, alone=True)
    for name in ("sayso", "uvicorn"):
        target = logging.getLogger(name)
        if not target.handlers:
            target.addHandler(handler)
    # Python's handler of last resort prints the warnings of all other libraries.
    logging.lastResort = StandardError(logging.WARNING, as_json=as_json)
