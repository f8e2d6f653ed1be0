"""The protocol's official programs from npm and PyPI, outside the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from npm import installed, node, placed
from pips import python_with

PACKAGES = (
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)
CONFORMANCE = "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
FILESYSTEM = "@modelcontextprotocol/server-filesystem/dist/index.js"


def program(script: str) -> list[str]:
    """The command that runs `script`, a path in `node_modules`."""
    folder = installed("node", *PACKAGES)
    return [node(folder), str(folder / "node_modules" / script)]


def script(file: Path, *arguments: str) -> list[str]:
    """The command that runs a script of the tests with the packages."""
    return [*placed(file, installed("node", *PACKAGES)), *arguments]


def git_server(repository: Path) -> list[str]:
    """The command of the git reference server for `repository`."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    python = python_with("mcp-server-git", "mcp-server-git==2026.10.19")
    return [str(python), "-m", "mcp_server_git", "--repository", str(repository)]


def old_client(*arguments: str) -> list[str]:
    """The command of a client of the official SDK of 1.x."""
    python = python_with("mcp", "mcp==1.30.0")
    return [str(python), str(Path(__file__).with_name("old_client.py")), *arguments]
