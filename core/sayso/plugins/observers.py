"""The observers of a service: those of its plugins, and the log's own."""

from __future__ import annotations

from sayso.errors import PluginError
from sayso.hosting import Host
from sayso.observing import Observer
from sayso.observing.lines import LogLines, RefusedLines
from sayso.observing.observers import Named, Observers
from sayso.plugins import Plugins


def observers_of(plugins: Plugins, host: Host) -> Observers:
    """All observers; raises PluginError for a hook that fails, or returns something else."""
    found = []
    for impl in plugins.implementations("observe"):
        given = impl.at_start(plugins.start_timeout, host=host)
        for each in given if isinstance(given, list | tuple) else filter(None, [given]):
            if not isinstance(each, Observer):
                raise PluginError(
                    f"{impl.described}: observe returned {type(each).__name__}; return an instance "
                    "of a subclass of sayso.Observer, a list of them, or None"
                )
            found.append(Named(impl.plugin, each))
    # The last one begins last and ends first, while the span of a turn is still the current one.
    return Observers([*found, *LogLines.wanted(), *RefusedLines.wanted()])
