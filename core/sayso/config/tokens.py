"""The tokens of `[auth]` with their principals, from the file, the environment and the table."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import SecretStr

from sayso.config import Config
from sayso.config.files import PIPE, no_file, refuse_open
from sayso.errors import ConfigError

logger = logging.getLogger("sayso.config")
_WITH_GROUPS = re.compile(r"(.*\S)\s*\[(.*)\]")


class Token(NamedTuple):
    """A token, and the groups that the tokens file gives to its principal."""

    secret: SecretStr
    groups: tuple[str, ...] = ()

    @property
    def encoded(self) -> bytes:
        """The token as a header carries it."""
        return self.secret.get_secret_value().encode()


def bearer_tokens(config: Config, environ: Mapping[str, str] = os.environ) -> dict[str, Token]:
    """The tokens of `[auth]` by principal, from the file, the environment and the configuration.

    Raises ConfigError for an unreadable file, a missing variable, an empty name or token, a token
    that is not ASCII, one that two principals share, and if there is no token at all.
    """
    said, groups = _tokens_of_file(config)
    said |= {name: secret.get_secret_value() for name, secret in config.auth.tokens.items()}
    # A header cannot carry the line break that a variable filled from a file may end with.
    tokens = {name: _token(name, text, environ).strip() for name, text in said.items()}
    if not tokens:
        raise ConfigError(
            "auth.scheme is 'bearer' but there is no token; set auth.tokens_file, or "
            "SAYSO_AUTH__TOKENS__<NAME> in the environment"
        )
    _check(tokens)
    return {name: Token(SecretStr(token), groups.get(name, ())) for name, token in tokens.items()}


def _check(tokens: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for name, token in tokens.items():
        if not name.strip():
            raise ConfigError("auth.tokens has a token without a name; name its principal")
        if not token:
            raise ConfigError(f"auth.tokens.{name} is empty")
        if not (token.isascii() and token.isprintable()):
            raise ConfigError(
                f"auth.tokens.{name} has a character that no header carries as it is; "
                "make tokens of ASCII letters, digits and punctuation"
            )
        if (other := seen.setdefault(token, name)) != name:
            raise ConfigError(f"the principals {other!r} and {name!r} have the same token")


def _token(name: str, text: str, environ: Mapping[str, str]) -> str:
    if not text.startswith("env:"):
        return text
    variable = text.removeprefix("env:")
    if variable not in environ:
        raise ConfigError(
            f"auth.tokens.{name} names the environment variable {variable!r}, which is not set"
        )
    return environ[variable]


_Tokens = tuple[dict[str, str], dict[str, tuple[str, ...]]]
"""Texts of tokens and lists of groups, each by the name of the principal."""


def _tokens_of_file(config: Config) -> _Tokens:
    if config.auth.tokens_file is None:
        return {}, {}
    path = config.path("auth.tokens_file", config.auth.tokens_file)
    kind = no_file(path)
    if kind == PIPE:
        logger.warning(
            "auth.tokens_file is the pipe %r: the start waits until its writer has ended", str(path)
        )
    elif kind is not None:
        raise ConfigError(
            f"auth.tokens_file cannot be read: {str(path)!r}: it is {kind}, no file; "
            "write the tokens into a file"
        )
    refuse_open(path, "auth.tokens_file", "set auth.tokens_file to another")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"auth.tokens_file cannot be read: {str(path)!r}: {reason}") from None
    return _tokens_of_lines(lines, path.name)


def _tokens_of_lines(lines: Sequence[str], file: str) -> _Tokens:
    tokens: dict[str, str] = {}
    groups: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines, 1):
        said = re.split(r"(?:^|\s)#", line, maxsplit=1)[0]
        if not said.strip():
            continue
        name, equals, token = (part.strip() for part in said.partition("="))
        if not equals or not name:
            raise ConfigError(f"{file}, line {number}: expected 'name = token'")
        if found := _WITH_GROUPS.fullmatch(name):
            name = found[1]
            groups[name] = tuple(part.strip() for part in found[2].split(",") if part.strip())
        if name in tokens:
            raise ConfigError(f"{file}, line {number}: the name {name!r} was there before")
        if re.fullmatch(r"\".*\"|'.*'", token):
            raise ConfigError(f"{file}, line {number}: write the token of {name!r} without quotes")
        tokens[name] = token
    return tokens, groups
