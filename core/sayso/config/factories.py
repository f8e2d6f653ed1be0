"""Models and ledgers of other distributions: factories by entry point, called or refused by
name."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from sayso.errors import ConfigError, named
from sayso.installing import install_line

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint


def installed(group: str) -> dict[str, list[EntryPoint]]:
    """The factories in `group` by name; several distributions may provide the same name."""
    from importlib_metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, []).append(entry)
    return found


def made(entries: list[EntryPoint], what: str, needed: Sequence[str], *arguments: Any) -> Any:
    """The result of the only factory in `entries` for `arguments`; it has the attributes `needed`.

    Raises ConfigError with the name of the `what` and of its distribution.
    """
    sources = sorted({_source(entry) for entry in entries})
    entry = entries[0]
    if len(sources) > 1:
        both = " and ".join(map(repr, sources))
        raise ConfigError(
            f"the distributions {both} both have a {what} {entry.name!r}; uninstall one of them"
        )
    failure = "cannot be imported"
    try:
        factory = entry.load()
        failure = "cannot be made"
        result = factory(*arguments)
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(
            f"the {what} {entry.name!r} {failure}: {named(error)}; {_way_out(entry)}"
        ) from error
    if missing := [repr(name) for name in needed if not hasattr(result, name)]:
        if isinstance(result, Coroutine):
            result.close()
        raise ConfigError(
            f"the {what} {entry.name!r} (distribution {sources[0]!r}) made "
            f"{type(result).__name__}, which is no {what}: it has no {', '.join(missing)}"
        )
    return result


def _way_out(entry: EntryPoint) -> str:
    if entry.dist is not None and entry.dist.name.startswith("sayso-"):
        extra = entry.dist.name.removeprefix("sayso-")
        return f"try: {install_line('--force-reinstall', f'sayso[{extra}]')}"
    return f"mend its distribution {_source(entry)!r}, or take it out of the configuration"


def _source(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "unknown"
