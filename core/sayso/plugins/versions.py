"""Whether a distribution's requirement admits a version (Python packaging, version specifiers).

Only as much as a requirement on Sayso itself needs: release numbers, pre-releases, and all
operators.
"""

from __future__ import annotations

import re

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_CLAUSE = re.compile(r"\s*(~=|===|==|!=|<=|>=|<|>)\s*([^\s,]+)\s*")
_VERSION = re.compile(
    r"v?(?:\d+!)?(\d+(?:\.\d+)*)[._-]?(?:(a|b|rc|alpha|beta|c|pre|preview)[._-]?(\d*))?"
    r"(?:[._-]?post[._-]?(\d*))?(?:[._-]?(dev)[._-]?(\d*))?(?:\+.*)?",
    re.IGNORECASE,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_RELEASE = 3

Key = tuple[tuple[int, ...], int, int, int, int]


def names(requirement: str, name: str) -> bool:
    """Whether `requirement` is on the distribution `name`."""
    match = _REQUIREMENT.fullmatch(requirement)
    return match is not None and _normal(match[1]) == _normal(name)


def admits(requirement: str, name: str, version: str) -> bool:
    """Whether `requirement` lets the distribution `name` have `version`.

    True for a requirement on another distribution, or of an extra only.
    """
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None or not names(requirement, name) or "extra" in (match[3] or ""):
        return True
    return all(_holds(op, bound, version) for op, bound in _CLAUSE.findall(match[2]))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _holds(operator: str, bound: str, version: str) -> bool:
    if bound.endswith(".*"):
        release = _key(bound[:-2])[0]
        same = _padded(_key(version)[0], len(release))[: len(release)] == release
        return same if operator == "==" else not same
    ours, theirs = _key(version), _key(bound)
    width = max(len(ours[0]), len(theirs[0]))
    a = (_padded(ours[0], width), *ours[1:])
    b = (_padded(theirs[0], width), *theirs[1:])
    match operator:
        case "==" | "===":
            return a == b
        case "!=":
            return a != b
        case "<=":
            return a <= b
        case ">=":
            return a >= b
        case "<":
            # A pre-release of the bound itself is not below it: "<2" does not admit 2.0rc1.
            return a < b and (a[0] != b[0] or b[1] < _RELEASE or a[1] == _RELEASE or b[3] > 0)
        case ">":
            # A post-release of the bound is not above it.
            return a > b and (a[0] != b[0] or a[3] == 0 or b[3] > 0)
        case _:
            prefix = theirs[0][:-1]
            return a >= b and _padded(ours[0], len(prefix))[: len(prefix)] == prefix


def _key(version: str) -> Key:
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ValueError(f"{version!r} is not a version")
    release = tuple(int(part) for part in match[1].split("."))
    stage = _STAGES[match[2].lower()] if match[2] else _RELEASE
    if match[5] and not match[2]:
        stage = -1
    post = int(match[4] or 0) + 1 if match[4] is not None else 0
    # A development version comes before the one it leads to.
    dev = -1 if match[5] else 0
    return release, stage, int(match[3] or 0), post, dev if dev == 0 else int(match[6] or 0) - 10**9


def _padded(release: tuple[int, ...], width: int) -> tuple[int, ...]:
    return release + (0,) * (width - len(release))
