import json
from pathlib import Path
from typing import Any

from sayso import Agent, Call, tool
from sayso.testing import scripted, served, user


@tool(requires_approval=True)
def delete(name: str) -> str:
    if name == "b":
        raise OSError("it is in use")
    return f"deleted {name}"


def written(folder: Path, config: str = "") -> list[dict[str, Any]]:
    """The lines after three calls were proposed, two of them approved and one rejected."""
    (folder / "sayso.toml").write_text(f"[plugin.audit_log]\n{config}", "utf-8")
    calls = [Call(name, "delete", {"name": name}) for name in "abc"]
    agent = Agent(model=scripted(calls, "Two are gone."), tools=[delete])
    with served(agent, config=folder / "sayso.toml") as service:
        said = user("delete a, b and c", platform_context={"platform_token": "hunter22"})
        waiting = service.chat(said)
        decided = [
            {**c, "rejection_reason": "keep"}
            if c["input"]["name"] == "c"
            else {**c, "execute": True}
            for c in waiting["data"]["tool_calls"]
        ]
        history = {"role": "assistant", "content": "", "data": waiting["data"]}
        service.chat(said, history, user(data={"tool_calls": decided}))
    text = (folder / "audit.jsonl").read_text("utf-8")
    assert "hunter22" not in text
    return [json.loads(line) for line in text.splitlines()]


def test_decisions_and_outcomes_are_written(tmp_path: Path) -> None:
    lines = written(tmp_path)
    assert lines[0]["event_type"] == "ConversationStarted"
    kinds = sorted(line["event_type"] for line in lines[1:])
    assert kinds == [
        "ApprovalRequested",
        "ToolCallApproved",
        "ToolCallApproved",
        "ToolCallRejected",
        "ToolExecuted",
        "ToolExecutionFailed",
    ]
    assert all(line["timestamp"] for line in lines)
    (rejected,) = [line for line in lines if line["event_type"] == "ToolCallRejected"]
    assert (rejected["reason"], rejected["call"]["input"]) == ("keep", {"name": "c"})
    (ran,) = [line for line in lines if line["event_type"] == "ToolExecuted"]
    assert ran["output"] == "deleted a"


def test_messages_are_written_when_wanted(tmp_path: Path) -> None:
    said = [line for line in written(tmp_path, "messages = true") if "message" in line]
    assert said[0]["message"]["content"] == "delete a, b and c"
    assert said[-1]["message"]["content"] == "Two are gone."


def test_file_is_for_its_user_alone(tmp_path: Path) -> None:
    written(tmp_path)
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600
