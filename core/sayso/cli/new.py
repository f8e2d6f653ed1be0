"""`sayso new plugin NAME` and `sayso new agent DIR`, in short `sayso new DIR`."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from shlex import quote
from string import Template

import click

from sayso.errors import ConfigError, nearest
from sayso.installing import install_line
from sayso.plugins.discovery import AGENT, BUILT_IN

FILES: Mapping[str, Mapping[str, str]] = {
    "plugin": {
        "pyproject.toml": "pyproject.txt",
        "README.md": "readme.txt",
        "sayso_$module/__init__.py": "module.txt",
        "sayso_$module/py.typed": "",
        "tests/test_$module.py": "test.txt",
    },
    "agent": {
        "pyproject.toml": "pyproject.txt",
        "README.md": "readme.txt",
        "sayso.toml": "sayso.txt",
        "$program.py": "module.txt",
        "tests/test_$program.py": "test.txt",
    },
}
"""The files of each kind, with the template of each; "" is an empty file."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


class _Kinds(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            close = nearest(args[0], self.commands) if len(args) > 1 else None
            if close is not None:
                message = f"No such command {args[0]!r}; did you mean {close!r}?"
                raise click.UsageError(message, ctx)
            args = ["agent", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Kinds, short_help="Write a new plugin or agent that runs at once.")
def command() -> None:
    """Write a folder with a new plugin or agent; it installs, runs and passes its own tests.

    \b
    Examples:
      sayso new order-desk            an agent, as sayso new agent order-desk
      sayso new plugin shout
    """


@command.command()
@click.argument("name")
def plugin(name: str) -> None:
    """Write a plugin into the folder NAME.

    It is an interceptor with a setting, and has tests.

    \b
    Example:
      sayso new plugin shout
    """
    if name in (*BUILT_IN, AGENT):
        raise ConfigError(f"{name!r} is a plugin of sayso itself; choose another name")
    written("plugin", name, Path.cwd())
    module = name.replace("-", "_")
    way = install_line(Path(f"{name}[test]"), "sayso[v2]")
    _say(name, way, f"pytest {name}", f"sayso plugins check {module}")


@command.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def agent(folder: Path) -> None:
    """Write an agent into the folder DIR.

    It has two tools, one of them gated, and tests.

    \b
    Example:
      sayso new agent order-desk
    """
    whole = Path(os.path.abspath(folder))  # "." has no name of its own
    written("agent", whole.name, whole.parent)
    way = install_line(folder, "sayso[v1,v2]", "pytest")
    _say(str(folder), way, f"cd {quote(str(folder))}", "pytest", "sayso serve")


def written(kind: str, name: str, directory: Path) -> Path:
    """The new folder `name` in `directory`, with the files of a `kind`; raises ConfigError."""
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(module) or module in sys.stdlib_module_names:
        raise ConfigError(
            f"{name!r} is no name for a package; write small letters, digits, '-' and '_', "
            "beginning with a letter, and no name of a module of Python"
        )
    folder = directory / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{str(folder)!r} is there already; choose another name, or remove it")
    words = {"name": name, "module": module, "title": _title(module), "program": _program(module)}
    for path, template in FILES[kind].items():
        file = folder / Template(path).substitute(words)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_filled(kind, template, words), encoding="utf-8")
    return folder


def _title(module: str) -> str:
    return "".join(part.capitalize() for part in module.split("_"))


def _program(module: str) -> str:
    return module if module.endswith("agent") else f"{module}_agent"


def _filled(kind: str, template: str, words: Mapping[str, str]) -> str:
    if not template:
        return ""
    source = resources.files("sayso.cli") / "templates" / kind / template
    return Template(source.read_text(encoding="utf-8")).substitute(words)


def _say(name: str, *steps: str) -> None:
    click.echo(f"{name}/ is written. Next:")
    for step in steps:
        click.echo(f"  {step}")
