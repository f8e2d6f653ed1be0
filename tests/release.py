"""The reasons that keep a release back: `make release-check`, for the owner who publishes.

    python tests/release.py dist

It reads the wheels that `make build` has written, and the checkout. Exit code 1 if there is a
reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PASSED = ROOT / ".ci" / "pythons"
"""The Python versions on which a run of all tests has passed, one a line."""
_PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)$")


def problems(dist: Path, root: Path = ROOT) -> list[str]:
    """The reasons, one a line."""
    return [*_of_wheels(dist, root), *_of_pythons(dist), *_of_constraints(dist), *_of_words(root)]


def version_of(root: Path = ROOT) -> str:
    """The version in the checkout."""
    found = re.search(r'= "(.+)"', (root / "core" / "sayso" / "_version.py").read_text())
    assert found is not None
    return found[1]


def _wheels(dist: Path) -> dict[str, tuple[Path, dict[str, list[str]]]]:
    """Each wheel with its metadata, by the name of its distribution."""
    found = {}
    for wheel in sorted(dist.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            said = HeaderParser().parsestr(archive.read(name).decode())
        fields: dict[str, list[str]] = {}
        for key, value in said.items():
            fields.setdefault(key, []).append(value)
        found[canonicalize_name(fields["Name"][0])] = wheel, fields
    return found


def _of_wheels(dist: Path, root: Path) -> Iterator[str]:
    version, wheels = version_of(root), _wheels(dist)
    projects = [root / "pyproject.toml", *sorted(root.glob("plugins/*/pyproject.toml"))]
    names = [canonicalize_name(tomllib.loads(p.read_text())["project"]["name"]) for p in projects]
    yield from (f"{name} has no wheel in {dist}: run make build" for name in {*names} - {*wheels})
    yield from (f"{name} is in {dist} and not in the checkout" for name in {*wheels} - {*names})
    for name, (_, said) in wheels.items():
        if said["Version"] != [version]:
            yield f"{name} has version {said['Version'][0]}, and the checkout {version}"
        for key in ("Summary", "Requires-Python", "Description-Content-Type", "Classifier"):
            if not said.get(key):
                yield f"{name} has no {key}"
        if "None has been chosen" in "".join(said.get("License", ["None has been chosen"])):
            yield f"{name} has no licence: choose one, and put its text into LICENSE"
        for line in said.get("Requires-Dist", []):
            asked = Requirement(line)
            ours = canonicalize_name(asked.name) in names
            if ours and asked.specifier and not asked.specifier.contains(version):
                yield f"{name} asks for {line}, which does not admit {version}"
            if asked.url:
                yield f"{name} asks for {line} by an address, which no index takes"


def _of_pythons(dist: Path) -> Iterator[str]:
    passed = set(PASSED.read_text().split())
    for name, (_, said) in _wheels(dist).items():
        named = {m[1] for line in said.get("Classifier", []) if (m := _PYTHON.match(line))}
        if untried := named - passed:
            yield f"{name} names Python {', '.join(sorted(untried))}, on which no run has passed"


def _of_constraints(dist: Path) -> Iterator[str]:
    file = dist / "constraints.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    named = {line.rpartition("/")[2] for line in lines}
    for _, (wheel, _) in _wheels(dist).items():
        if wheel.name not in named:
            yield f"{file.name} does not name {wheel.name}: run make build"


def _of_words(root: Path) -> Iterator[str]:
    version = version_of(root)
    if not re.search(rf"^## {re.escape(version)}\b", (root / "CHANGELOG.md").read_text(), re.M):
        yield f"CHANGELOG.md has no heading for {version}"
    if not [*root.glob("LICENSE*")]:
        yield "there is no LICENSE"
    done = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=False
    )
    if done.stdout.strip():
        yield "the checkout has changes that are not committed"


def main() -> int:
    """Print the reasons; 1 if there are any."""
    found = problems(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
    for line in found:
        print(line)
    if not found:
        print(f"version {version_of()} can be released")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
