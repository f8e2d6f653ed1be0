"""The implementations of agent-to-agent, by name."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from importlib_metadata import entry_points
from starlette.routing import Router

from sayso import ConfigError, Host, PluginError, StartupError
from sayso_a2a.settings import Settings

GROUP = "sayso.a2a_adapters"


class Adapter(Protocol):
    """An implementation; its factory `(host, settings) -> Adapter` is named by an entry point."""

    def router(self) -> Router:
        """The routes; called once while the application is built."""
        ...

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """A context manager around the service's life, on the server's loop, in each process."""
        ...


def load_adapter(host: Host, settings: Settings) -> Adapter:
    """The adapter that `settings` name, imported now.

    Raises ConfigError for an unknown name, PluginError for one that cannot be made.
    """
    name = settings.adapter
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found))
        raise ConfigError(f"there is no A2A adapter {name!r}; there are: {known}")
    entry = found[name]
    try:
        adapter: Adapter = entry.load()(host, settings)
    except StartupError:
        raise
    except Exception as error:
        raise PluginError(
            f"the A2A adapter {name!r} ({entry.value}) cannot be made: "
            f"{type(error).__name__}: {error}"
        ) from error
    return adapter


class Both:
    """`simple` and `a2a` side by side; their paths and cards differ."""

    def __init__(self, host: Host, settings: Settings) -> None:
        from sayso_a2a.official import Official
        from sayso_a2a.simple import Simple

        self._parts: list[Adapter] = [Simple(host, settings), Official(host, settings)]

    def router(self) -> Router:
        """The routes of both."""
        router = Router()
        for part in self._parts:
            router.routes.extend(part.router().routes)
        return router

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run the lifespans of both."""
        async with AsyncExitStack() as stack:
            for part in self._parts:
                await stack.enter_async_context(part.lifespan())
            yield
