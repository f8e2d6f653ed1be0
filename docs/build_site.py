"""Builds the site from the pages of the repository: `make site`, or this script with a folder.

The pages, and the files that they link to, are copied as they lie in the repository, so that their
links hold in both places. Links and anchors that lead nowhere fail the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "docs" / "zensical.toml"
PAGES = ("*.md", "docs/*.md", "deploy/**/*.md", "examples/*.md", "plugins/*/README.md")
_LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)|src=\"([^\":]+)\"")
_FENCE = re.compile(r"^( *```)(\w+) ([^\n`]+)$", re.MULTILINE)
_FILE = re.compile(r"[\w./-]+\.\w+")


def pages() -> list[Path]:
    """The pages of the site."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def linked(page: Path) -> set[Path]:
    """The files, and the files of the folders, that a page links to."""
    targets = [one or other for one, other in _LINK.findall(page.read_text("utf-8"))]
    found = {(page.parent / target).resolve() for target in targets}
    inside = {file for path in found if path.is_dir() for file in path.rglob("*")}
    return {path for path in found | inside if path.is_file() and ROOT in path.parents}


def with_titles(text: str) -> str:
    """The page with the word behind a fence's language as the title, if it names a file.

    The words are for the tests of the pages, and not of Markdown.
    """

    def fence(found: re.Match[str]) -> str:
        names = [word for word in found[3].split() if _FILE.fullmatch(word)]
        return f"{found[1]}{found[2]}" + (f' title="{names[0]}"' if names else "")

    return _FENCE.sub(fence, text)


def gather(folder: Path) -> None:
    """Copy the pages and the files that they link to into `folder`."""
    chosen = pages()
    for path in {*chosen, *(file for page in chosen for file in linked(page))}:
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            copy.write_text(with_titles(path.read_text("utf-8")), "utf-8")
        else:
            shutil.copyfile(path, copy)


def build(target: Path) -> None:
    """Write the site into `target`; exits with what is wrong."""
    program = Path(sys.executable).with_name("zensical")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        gather(folder / "pages")
        (folder / SETTINGS.name).write_text(SETTINGS.read_text("utf-8"), "utf-8")
        done = subprocess.run(
            [str(program), "build", "--strict", "-f", str(folder / SETTINGS.name)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            # Its own trace says no more than that there are warnings.
            sys.exit((done.stdout + done.stderr).partition("Traceback")[0])
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder / "site", target)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist" / "site"))
