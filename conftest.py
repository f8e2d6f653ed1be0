"""Settings of every test run."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

# In a run that decides on a merge, no random example may fail that the last run did not have.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A shell starts its background jobs with interrupts ignored, which the programs under test would
# inherit, and never end by one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all` runs the tests marked `slow` as well."""
    parser.addoption("--all", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, unless all are wanted or the command names the very test.

    Tests that install packages come first, then the files with most tests, so that no long one is
    left for the end.
    """
    if not (config.getoption("--all") or config.getoption("markexpr")):
        named = tuple(argument for argument in config.args if "::" in argument)
        slow = [
            item
            for item in items
            if item.get_closest_marker("slow") and not item.nodeid.startswith(named)
        ]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (not item.get_closest_marker("packaging"), -sizes[item.path]))


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Undo the log settings of a command that ran in this process: the next test may look for a
    record."""
    logger = logging.getLogger("sayso")
    level, handlers, last = logger.level, list(logger.handlers), logging.lastResort
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers
    logging.lastResort = last
