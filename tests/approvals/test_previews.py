"""A tool's preview is recorded with the proposal and shown to its approvers; it hinders nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from serving import Json, Serve, Service, said, user

from sayso import Agent, Call, Caller, RequestContext, tool
from sayso.testing import scripted


def diff(path: str, text: str) -> str:
    return f"--- {path}\n+++ {path}\n+{text}"


def broken(path: str, text: str) -> str:
    raise ValueError("the file is away")


def leaving(path: str, text: str) -> str:
    raise SystemExit(1)


def made(preview: Any) -> Agent:
    @tool(requires_approval=True, editable=True, preview=preview)
    def write(path: str, context: RequestContext, text: str = "nothing") -> str:
        """Write a file."""
        return f"wrote {text}"

    return Agent(model=scripted([Call("1", "write", {"path": "a"})], "Done."), tools=[write])


def shown(served: Serve, preview: Any) -> tuple[Service, Json]:
    service = served(made(preview))
    return service, service.chat(user("write a"))


def test_preview_of_the_input_that_runs_is_recorded_and_shown_on_v2(served: Serve) -> None:
    service, reply = shown(served, diff)
    (item,) = reply["data"]["approvals"]
    assert item["preview"] == "--- a\n+++ a\n+nothing"
    assert "preview" not in reply["data"]["tool_calls"][0]
    approved = user(data={"approvals": [{**item, "execute": True}]})
    again = service.chat(user("write a"), said(reply), approved)
    assert again["content"] == "Done."


def test_v1_shows_no_preview(served: Serve) -> None:
    service = served(made(diff))
    reply = service.chat(user("write a"), path="v1")
    assert "preview" not in reply["data"]["approvals"][0]


@pytest.mark.parametrize(
    ("preview", "expected"),
    [
        (broken, "The preview failed: ValueError."),
        (leaving, "The preview failed: SystemExit."),
        (lambda path, text: 5, "The preview failed: it gave int instead of a text."),
    ],
)
def test_preview_that_fails_says_so_and_the_call_is_proposed(
    served: Serve, preview: Any, expected: str
) -> None:
    _, reply = shown(served, preview)
    assert reply["data"]["approvals"][0]["preview"] == expected


def test_long_preview_is_truncated_with_a_word_of_it(served: Serve) -> None:
    _, reply = shown(served, lambda path, text: "x" * 30_000)
    assert reply["data"]["approvals"][0]["preview"].endswith("\n[10000 more characters]")


def test_preview_is_read_from_the_store_and_goes_with_an_edit(served: Serve) -> None:
    calls = served(made(diff), approvals__ledger="sqlite:///previews.db").app.host.calls

    async def steps() -> None:
        row = await calls.propose("write", {"path": "b"}, Caller("inbox"))
        found = await calls.look(row.id, Caller("inbox"))
        assert found is not None and found.preview == "--- b\n+++ b\n+nothing"
        edited = {"path": "b", "text": "more"}
        decide = calls.decide(row.id, Caller("inbox"), approved=True, edited=edited, run=False)
        assert (await decide).preview is None

    asyncio.run(steps())


def test_preview_is_a_plain_function() -> None:
    async def later(path: str) -> str:
        return path

    for wrong in (later, "a text"):
        with pytest.raises(TypeError, match="tool 'write': preview must be a plain function"):
            made(wrong)
    for unfit in (lambda path: path, lambda path, text, more: path):
        with pytest.raises(TypeError, match=r"the tool's own arguments \(path, text\): "):
            made(unfit)
