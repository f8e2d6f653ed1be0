"""The lowest versions that the distributions declare, as constraints for pip.

    python tests/lowest.py > constraints.txt

`make test-lowest` installs them and runs the tests, so that no declared range promises untested
versions. A bound that cannot be installed beside the others stops it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, Version]:
    """The lowest version of each requirement, the highest one where several declare it."""
    found: dict[str, Version] = {}
    for file in (ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")):
        for name, version in bounds(tomllib.loads(file.read_text("utf-8"))["project"]):
            found[name] = max(version, found.get(name, version))
    return found


def bounds(project: Mapping[str, Any]) -> Iterator[tuple[str, Version]]:
    """Each bound in a `[project]` table; raises ValueError for a requirement without one."""
    extras = project.get("optional-dependencies", {}).values()
    for line in (*project["dependencies"], *(line for extra in extras for line in extra)):
        requirement = Requirement(line)
        if requirement.name.startswith("sayso"):
            continue
        least = [s.version for s in requirement.specifier if s.operator == ">="]
        if len(least) != 1:
            raise ValueError(f"{line!r} has no lowest version; write NAME>=VERSION")
        yield requirement.name, Version(least[0])


if __name__ == "__main__":
    for name, version in sorted(versions().items()):
        print(f"{name}=={version}")
