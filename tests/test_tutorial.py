"""The tutorial can be followed from top to bottom, and says what happens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from newcomer import Newcomer, blocks, following

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"
# One reader starts three services.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with following(PAGE, tmp_path_factory.mktemp("tutorial")) as one:
        yield one


def said_after(newcomer: Newcomer, text: str) -> str:
    """The output of the block that contains `text`."""
    (block,) = [b for b in blocks(PAGE) if text in b.text and b.line in newcomer.said]
    return newcomer.said[block.line]


def test_one_person_decides_by_the_chat(newcomer: Newcomer) -> None:
    said = said_after(newcomer, "not before noon")
    assert "web-1 was restarted" in said and "billing-1 (1 running)" in said


def test_the_rules_say_what_the_cases_expect(newcomer: Newcomer) -> None:
    assert "2" in said_after(newcomer, "sayso approvals test")


def test_an_approval_of_another_person_runs_the_call(newcomer: Newcomer) -> None:
    said = said_after(newcomer, "?wait=10")
    _, end = json.JSONDecoder().raw_decode(said)
    last = json.loads(said[end:])
    assert last["state"] == "DONE" and last["output"] == "web-1 was restarted"


def test_two_people_decide_on_billing(newcomer: Newcomer) -> None:
    refused = said_after(newcomer, "Bearer token-of-the-desk")
    assert json.loads(refused.strip().splitlines()[-1])["code"] == "NOT_AN_APPROVER"
    said = said_after(newcomer, "for who in ann bob")
    assert '"votes":{"needed":2,"given":1}' in said and '"state":"APPROVED"' in said


def test_the_production_service_is_ready_and_counts(newcomer: Newcomer) -> None:
    said = said_after(newcomer, "sayso backup")
    assert "sayso_turns_total" in said
    assert (newcomer.folder / "ledger.backup").is_file()
