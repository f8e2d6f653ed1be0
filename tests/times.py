"""The time of each suite, and the slowest tests, from a run: `python tests/times.py junit.xml`.

`make test ARGS="--junit-xml=junit.xml"` writes the file. The seconds are those of the tests' own
process, added up: with JOBS processes side by side a run takes a part of them.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SLOWEST = 20


class Case(NamedTuple):
    """A test with its seconds, setup and teardown included."""

    suite: str
    name: str
    seconds: float


def cases(paths: Iterable[Path]) -> list[Case]:
    """The tests in the files."""
    found = []
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            module = case.get("classname", "")
            name = f"{module.rpartition('.')[2]}::{case.get('name')}"
            found.append(Case(suite_of(module or "tests.test_"), name, float(case.get("time", 0))))
    return found


def suite_of(module: str) -> str:
    """The folder of a module, as in `plugins/a2a` and `tests/contract`; of the others `tests`."""
    parts = module.split(".")
    of_root = parts[0] == "tests" and parts[1].startswith("test_")
    return "tests" if of_root else "/".join(parts[:2])


def table(found: Iterable[Case]) -> str:
    """The suites, the slowest first, as rows of Markdown."""
    by_suite: dict[str, list[float]] = defaultdict(list)
    for case in found:
        by_suite[case.suite].append(case.seconds)
    rows = sorted(by_suite.items(), key=lambda row: -sum(row[1]))
    lines = ["| suite | tests | seconds |", "| --- | --- | --- |"]
    lines += [f"| {name} | {len(times)} | {sum(times):.0f} |" for name, times in rows]
    return "\n".join(lines)


def main() -> None:
    """Print the table and the slowest tests."""
    found = cases(map(Path, sys.argv[1:]))
    print(table(found), end="\n\n")
    for case in sorted(found, key=lambda case: -case.seconds)[:SLOWEST]:
        print(f"{case.seconds:7.1f} s  {case.suite}  {case.name}")


if __name__ == "__main__":
    main()
