"""Discovery of the installed plugins, and the configuration's choice among them (design, section
3).

Entry points are listed without importing their modules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sayso._version import __version__
from sayso.config import Config
from sayso.config.layers import canonical, dotted
from sayso.errors import ConfigError, PluginError, nearest
from sayso.installing import install_line
from sayso.plugins.versions import admits

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

GROUP = "sayso"
AGENT = "agent"
"""The name of the plugin made from an agent's own interceptors and handlers."""

BUILT_IN: Mapping[str, bool] = {
    "v1": True,
    "v2": True,
    "a2a": False,
    "mcp": False,
    "router": False,
    "console": False,
    "approvals": False,
    "jwt": False,
    "oidc": False,
    "notify": False,
    "slack": False,
    "limits": False,
    "metrics": False,
    "telemetry": False,
    "openai_api": False,
    "ui_stream": False,
    "agui": False,
    "resume": False,
    "idempotency": False,
    "chat": False,
    "demo": False,
}
"""The plugins of this repository, and whether each is active as soon as it is installed."""

COMMANDS_ALONE = ("chat", "demo")
"""The plugins that add nothing to a service: their sub-command runs without being active."""

SWITCHES = ("a2a", "mcp")
"""The plugins that `[server]`, a keyword or a flag switches on or off."""


SCHEMES = ("jwt",)
"""The plugins whose name is a value of `auth.scheme`."""


class Installed(NamedTuple):
    """An entry point in the group `sayso`, not imported; `problem` says why it cannot be used.

    The name of a `contested` one is also claimed by another distribution; it is unclear which is
    meant.
    """

    name: str
    distribution: str
    version: str
    entry_point: EntryPoint
    problem: str | None = None
    contested: bool = False


class Choice(NamedTuple):
    """A plugin to load: `named` if somebody asked for it, otherwise merely installed."""

    name: str
    installed: Installed | None
    named: bool
    why: str


@dataclass(slots=True)
class Selection:
    """The chosen plugins in the configured order, and why the other installed ones were not
    chosen."""

    chosen: list[Choice] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def discover() -> dict[str, Installed]:
    """The installed plugins by name, in the order of their names."""
    from importlib_metadata import entry_points

    found: dict[str, Installed] = {}
    for entry_point in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        plugin = _installed(entry_point)
        other = found.get(_spelt(plugin.name, found))
        if other is not None and other[:2] != plugin[:2]:
            contested = other.contested or other.distribution != plugin.distribution
            plugin = other._replace(problem=_one_name(other, plugin), contested=contested)
        found[plugin.name] = plugin
    return found


def _one_name(one: Installed, other: Installed) -> str:
    if one.distribution == other.distribution:
        return f"{one.name!r} and {other.name!r} are one name; rename one of its entry points"
    return (
        f"the distributions {one.distribution!r} and {other.distribution!r} "
        "both have a plugin of this name; uninstall one of them"
    )


def _installed(entry_point: EntryPoint) -> Installed:
    distribution = entry_point.dist
    if distribution is None:
        return Installed(entry_point.name, "unknown", "unknown", entry_point)
    # Read once: each access to a distribution's name or version parses its metadata again.
    metadata = distribution.metadata
    name, problem = metadata["Name"], None
    for requirement in metadata.get_all("Requires-Dist") or ():
        try:
            admitted = admits(requirement, "sayso", __version__)
        except ValueError:
            problem = f"its requirement {requirement!r} cannot be read; correct it"
            continue
        if not admitted:
            problem = (
                f"it requires {requirement!r}, but this is sayso {__version__}; "
                f"try: {install_line('--upgrade', name)}"
            )
    if not entry_point.pattern.match(entry_point.value):
        problem = f"its entry point is {entry_point.value!r}, which is no 'module:object'; mend it"
    if canonical(entry_point.name) == AGENT:
        problem = "this name is that of the agent's own interceptors; rename its entry point"
    return Installed(entry_point.name, name, metadata["Version"], entry_point, problem)


def select(
    config: Config, known: Mapping[str, Installed], given: Collection[str] = ()
) -> Selection:
    """The plugins among `known` that `config` chooses, in its order, without importing any.

    `given` are names of plugins that the caller has as objects. Raises PluginError for a plugin
    that is named and neither installed nor given, and for one that two distributions claim,
    ConfigError for a file whose `plugins` list disagrees with its own switches or tables.
    """
    _refuse_disagreement(config)
    _refuse_unknown_tables(config, {*known, *given, *BUILT_IN})
    off = {canonical(n): w for n, w in _switched(config, False).items()}
    reasons = _reasons(config, known)
    selection = Selection()
    for name, (named, why) in reasons.items():
        if canonical(name) in off:
            selection.left_out[name] = off[canonical(name)]
        else:
            selection.chosen.append(_choice(name, named, why, known, given))
    chosen = {canonical(choice.name) for choice in selection.chosen}
    for name, installed in known.items():
        if canonical(name) not in chosen and name not in selection.left_out:
            selection.left_out[name] = off.get(canonical(name)) or _why_not(config, installed)
    return selection


def _reasons(config: Config, known: Mapping[str, Installed]) -> dict[str, tuple[bool, str]]:
    """Each wanted plugin in order: whether somebody named it, and why it is wanted."""
    added = dict.fromkeys(config.activated, "switched on")
    added |= _switched(config, True, in_file=False) | _of_scheme(config)
    if config.plugins is not None:
        origin = f"named in plugins, {config.origin('plugins').text}"
        wanted = dict.fromkeys(config.plugins, (True, origin))
        listed = {canonical(name) for name in wanted}
        extra = {n: (True, why) for n, why in sorted(added.items()) if canonical(n) not in listed}
        return wanted | extra
    named = dict.fromkeys(config.tables, f"has a table in {config.file and config.file.name}")
    named |= _switched(config, True, in_file=True) | added
    wanted = {_spelt(name, known): (True, why) for name, why in named.items()}
    for name in known:
        if BUILT_IN.get(name, canonical(name) != AGENT):
            wanted.setdefault(name, (False, "installed"))
    return dict(sorted(wanted.items()))


def _switched(config: Config, value: bool, in_file: bool | None = None) -> dict[str, str]:
    """The plugins whose switch has `value`, each with the place where it was set."""
    switched = {}
    for name in SWITCHES:
        origin = config.origin(f"server.{name}")
        if getattr(config.server, name) is value and in_file in (None, origin.kind == "file"):
            verb = "on" if value else "off"
            switched[name] = f"switched {verb} by server.{name}, {origin.text}"
    return switched


def _of_scheme(config: Config) -> dict[str, str]:
    """The plugin for `auth.scheme`, which is active in any case."""
    if config.auth.scheme not in SCHEMES:
        return {}
    origin = config.origin("auth.scheme").text
    return {config.auth.scheme: f"auth.scheme is {config.auth.scheme!r}, {origin}"}


def _why_not(config: Config, installed: Installed) -> str:
    if config.plugins is not None:
        return f"not named in plugins, {config.origin('plugins').text}"
    if installed.problem is not None:
        return f"cannot be used: {installed.problem}"
    if installed.name in COMMANDS_ALONE:
        return f"only needed for: sayso {installed.name}"
    table = f"[plugin.{installed.name}]"
    return f"not active by default; name it in plugins, or give it a {table} table"


def _spelt(name: str, known: Iterable[str]) -> str:
    return next((n for n in known if canonical(n) == canonical(name)), name)


def _choice(
    name: str, named: bool, why: str, known: Mapping[str, Installed], given: Collection[str]
) -> Choice:
    name = _spelt(name, [*given, *known])
    if name in given:
        return Choice(name, None, True, why)
    if name not in known:
        raise PluginError(
            f"plugin {name!r} ({why}) is not installed; {way_out(name)}" + _nearest(name, known)
        )
    if known[name].contested:
        # If it were only left out with a warning, a foreign distribution could take over
        # `/api/chat`.
        raise PluginError(f"plugin {name!r} ({why}): {known[name].problem}")
    return Choice(name, known[name], named, why)


def way_out(name: str) -> str:
    """How to install the plugin `name`."""
    if name in BUILT_IN:
        return f"try: {install_line(f'sayso[{name}]')}"
    return "install the distribution that provides it, or take it out of the configuration"


def _nearest(name: str, known: Iterable[str]) -> str:
    close = nearest(name, [*known, *BUILT_IN])
    return f"; did you mean {close!r}?" if close and close != name else ""


def _refuse_disagreement(config: Config) -> None:
    origin = config.origin("plugins")
    if config.plugins is None or origin.kind != "file":
        return
    listed = {canonical(name) for name in config.plugins}
    for name in SCHEMES:
        if name in listed and config.auth.scheme != name:
            raise ConfigError(
                f"{origin.text} names {name!r} in its plugins list, but auth.scheme is "
                f"{config.auth.scheme!r}; change one of the two"
            )
    claims = [(name, f"server.{name} = true", True) for name in _switched(config, True, True)]
    claims += [(name, f"server.{name} = false", False) for name in _switched(config, False, True)]
    claims += [(name, f"[plugin.{name}]", True) for name in sorted(config.tables)]
    for name, claim, wanted in claims:
        if (canonical(name) in listed) is not wanted:
            verb = "does not name" if wanted else "names"
            raise ConfigError(
                f"{origin.text} has {claim}, but its plugins list {verb} {name!r}; "
                "change one of the two"
            )


def _refuse_unknown_tables(config: Config, names: Iterable[str]) -> None:
    known = {canonical(name): name for name in names}
    for name in config.plugin:
        if canonical(name) in known or name in config.tables:
            continue
        keys = [key for key in config.origins if key.startswith(dotted(("plugin", name, "")))]
        where = config.origin(keys[0]).text if keys else "given in code"
        raise ConfigError(f"there is no plugin {name!r} ({where})" + _nearest(name, known.values()))
