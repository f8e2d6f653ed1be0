"""Installation commands for missing parts, which work where this Sayso came from.

Nothing of Sayso is on a public index. If somebody published something there under one of its names,
the bare name would install that. Therefore each command says where our distributions are: in the
folders of a checkout, or in the wheels that `make build` wrote, which its `constraints.txt` names
file by file.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from shlex import join, quote
from urllib.parse import unquote, urlsplit

WHEELS = "dist"
"""The folder that `make build` fills."""
CONSTRAINTS = "constraints.txt"
"""The file in it that names the wheel of each distribution of Sayso."""

_NAME = re.compile(r"(sayso(?:-[\w-]+)?)(?:\[([\w,-]+)\])?")
Folders = Iterator[tuple[str, Collection[str]]]


def install_line(*wanted: str | Path) -> str:
    """The shell command that installs `wanted` beside the running Sayso.

    Requirements on Sayso (`"sayso[v2,postgres]"`, `"sayso-a2a[sqlite]"`) are found where it came
    from; others, and options of pip, stay unchanged. A Path is a project to install editable.
    """
    origin = _origin()
    if origin is not None and (origin / "plugins").is_dir():
        return _command(origin, _of_checkout(origin, wanted))
    built = origin is not None and origin.parent.name == WHEELS
    home = origin.parent.parent if origin is not None and built else None
    return _command(home, ["-c", f"{WHEELS}/{CONSTRAINTS}", *wanted])


def _origin() -> Path | None:
    """The folder or the wheel that this Sayso was installed from, as pip recorded it."""
    from importlib_metadata import PackageNotFoundError, distribution

    try:
        origin = distribution("sayso").origin
    except PackageNotFoundError:
        return None
    url = urlsplit(origin.url if origin is not None else "")
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _command(home: Path | None, words: Sequence[str | Path]) -> str:
    """The command for a shell in any folder; parts of Sayso in `words` are relative to `home`."""
    elsewhere = home is not None and home != Path.cwd()
    shown: list[str] = []
    for word in words:
        if isinstance(word, Path):
            shown += ["-e", str(word.absolute() if elsewhere else word)]
        else:
            shown.append(word)
    line = f"{_pip()} install {join(shown)}"
    return f"(cd {quote(str(home))} && {line})" if elsewhere else line


def _pip() -> str:
    """The command that calls the pip of this environment from a shell."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return "pip"
    return f"{quote(sys.executable)} -m pip"


def _of_checkout(checkout: Path, wanted: Sequence[str | Path]) -> list[str | Path]:
    """The words with each requirement on Sayso as folders of the checkout, including the core."""
    words: list[str | Path] = []
    folders: dict[str, set[str]] = {".": set()}
    for word in wanted:
        name = _NAME.fullmatch(word) if isinstance(word, str) else None
        if name is None or not _is_there(checkout, name[1]):
            words.append(word)
            continue
        for folder, extras in _folders(checkout, name[1], (name[2] or "").split(",")):
            folders.setdefault(folder, set()).update(filter(None, extras))
    for folder, added in folders.items():
        words += ["-e", folder + (f"[{','.join(sorted(added))}]" if added else "")]
    return words


def _is_there(checkout: Path, name: str) -> bool:
    return name == "sayso" or (checkout / _folder(name) / "pyproject.toml").is_file()


def _folder(name: str) -> str:
    return f"plugins/{name.removeprefix('sayso-').replace('-', '_')}"


def _folders(checkout: Path, name: str, extras: Collection[str]) -> Folders:
    """Each folder for a requirement on the distribution `name`, with its extras there."""
    if name != "sayso":
        yield _folder(name), extras
        for needed in _needed(checkout / _folder(name)):
            yield from _folders(checkout, needed, ())
        return
    # An extra of the core usually is the plugin of this name.
    plugins = sorted(file.parent.name for file in checkout.glob("plugins/*/pyproject.toml"))
    for plugin in plugins if "all" in extras else [one for one in extras if one in plugins]:
        yield from _folders(checkout, f"sayso-{plugin.replace('_', '-')}", ())
    yield ".", [extra for extra in extras if extra not in plugins]


def _needed(folder: Path) -> list[str]:
    """The other plugins that the one in `folder` requires."""
    import tomllib  # few messages need it

    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    names = [_NAME.match(line) for line in project["dependencies"]]
    return [name[1] for name in names if name is not None and name[1] != "sayso"]
