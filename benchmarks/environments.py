"""Virtual environments: for peers, and to measure installations."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

_VERSIONS = (
    "import json, sys\n"
    "from importlib.metadata import distributions\n"
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in distributions()}))\n"
)


class Failed(RuntimeError):
    """pip could not install the requirements."""


def make(folder: Path, requirements: Sequence[str]) -> Path:
    """A new environment in `folder` with these requirements; returns its Python. It has no pip of
    its own."""
    venv.create(folder, with_pip=False, symlinks=True, clear=True)
    python = folder / "bin" / "python"
    # Use the pip that runs this; Debian's venv would need another package for one inside.
    if find_spec("pip"):
        tool = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    elif uv := shutil.which("uv"):
        tool = [uv, "pip", "install", "--compile-bytecode", "--python", str(python)]
    else:
        raise Failed("neither pip nor uv is here; try: python -m ensurepip")
    command = [*tool, "--quiet", *requirements]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        raise Failed(done.stderr.decode(errors="replace")[-500:])
    return python


def installed(python: str | Path) -> dict[str, str]:
    """The version of each distribution of an environment, by its name in small letters."""
    # Isolated: packages in PYTHONPATH do not belong to the environment.
    reported = subprocess.run([str(python), "-I", "-c", _VERSIONS], capture_output=True, check=True)
    found: dict[str, str] = json.loads(reported.stdout)
    return dict(sorted(found.items()))


def megabytes(python: Path) -> dict[str, float]:
    """The sizes in `site-packages` of an environment, in MB, without compiled bytecode."""
    sizes: dict[str, float] = {}
    for site in python.parent.parent.glob("lib/python*/site-packages"):
        for path in site.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(site).parts[0]
                sizes[name] = sizes.get(name, 0.0) + path.lstat().st_size / 1e6
    return sizes
