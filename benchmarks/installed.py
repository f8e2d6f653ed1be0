"""The size of an installation: distributions and megabytes, in empty environments."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import environments
from benchmarks.measure import Found, Run
from benchmarks.process import ROOT

PLAIN = ("fastapi", "uvicorn[standard]")


def installed(run: Run, quick: bool) -> Found:
    """Sayso with V1 and V2 from built wheels, beside plain FastAPI; without bytecode."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return {
            "sayso[v1,v2]": amounts(Path(folder) / "sayso", wheels(Path(folder) / "dist")),
            "plain FastAPI": amounts(Path(folder) / "plain", PLAIN),
        }


def amounts(folder: Path, requirements: Sequence[str]) -> Found:
    """Distributions and MB of an environment in `folder` with only these requirements."""
    python = environments.make(folder, requirements)
    names = environments.installed(python)
    sizes = environments.megabytes(python)
    largest = sorted(sizes, key=lambda name: -sizes[name])[:6]
    return {
        "distributions": len(names),
        "MB": round(sum(sizes.values()), 1),
        "largest": " ".join(f"{name} {sizes[name]:.1f}" for name in largest),
        "names": " ".join(names),
    }


def wheels(out: Path) -> list[str]:
    """The wheels of Sayso, V1 and V2, as they are in the checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    for folder in (ROOT, ROOT / "plugins" / "v1", ROOT / "plugins" / "v2"):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"no wheel of {folder.name}: {done.stderr[-300:]}")
    return [str(path) for path in sorted(out.glob("*.whl"))]
