"""Files that others may write prove nothing: the start stops, with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sayso import ConfigError
from sayso.testing import served


async def words(messages: object, context: object) -> str:
    return "fine"


def started(text: str) -> None:
    with served(words, config=text):
        pass


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_state_folder_that_others_may_write_stops_the_start(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "the state"
    folder.mkdir()
    folder.chmod(mode)
    text = f"[server]\nstate_dir = {str(folder)!r}\n"
    text += "[approvals]\nledger = 'sqlite://'\n"
    with pytest.raises(ConfigError, match="state folder .*chmod go-w '.*the state'"):
        started(text)
    folder.chmod(0o755)
    started(text)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_ledger_that_others_may_write_stops_the_start(tmp_path: Path, mode: int) -> None:
    text = f"[approvals]\nledger = 'sqlite:///{tmp_path}/own.db'\n"
    started(text)
    (tmp_path / "own.db").chmod(mode)
    with pytest.raises(ConfigError, match=r"approvals store .*chmod go-w .*own\.db"):
        started(text)


def test_ledger_in_a_folder_that_everybody_may_write_stops_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    text = f"[approvals]\nledger = 'sqlite:///{folder}/own.db'\n"
    with pytest.raises(ConfigError, match="folder .*chmod go-w"):
        started(text)
    folder.chmod(0o1777)
    started(text)


def test_file_of_tokens_that_others_may_write_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("ann = a-token-of-anns\n")
    text = f"[auth]\nscheme = 'bearer'\ntokens_file = {str(file)!r}\n"
    file.chmod(0o644)
    started(text)
    file.chmod(0o664)
    with pytest.raises(ConfigError, match="tokens_file .*chmod go-w"):
        started(text)
