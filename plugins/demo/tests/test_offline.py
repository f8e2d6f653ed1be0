from __future__ import annotations

import json
from typing import Any

import pytest
from asking import asked, assistant, calls_of, reply_of, said, text_of, user
from hypothesis import given
from hypothesis import strategies as st

from sayso import Call, ModelError, Reply, Result, Text, ToolDefinition, Turn
from sayso_demo.offline import Offline

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}


def tool(name: str, about: str, /, *needed: str, **inputs: Any) -> ToolDefinition:
    return ToolDefinition(
        name, about, {"type": "object", "properties": inputs, "required": list(needed)}
    )


MACHINE = (
    tool("disk_usage", "Show how full the disk is.", path={**STRING, "default": "/"}),
    tool(
        "largest_files",
        "List the largest files under a directory.",
        "path",
        path=STRING,
        count={**INTEGER, "default": 10},
    ),
    tool(
        "processes",
        "List the running processes that use most memory or CPU.",
        count=INTEGER,
        sort={"type": "string", "enum": ["cpu", "memory"]},
    ),
    tool("memory", "Show how much memory is used."),
    tool("tail_log", "Show the last lines of a log file.", "path", path=STRING, lines=INTEGER),
    tool("delete_file", "Delete a file inside the workspace.", "path", path=STRING),
    tool(
        "suggest_commands",
        "Suggest terminal commands.",
        "commands",
        commands={"type": "array", "items": {"type": "object"}},
    ),
)
CLUSTER = (
    tool("list_pods", "List the pods of a namespace.", namespace={**STRING, "default": "default"}),
    tool("delete_pod", "Delete a pod.", "name", "namespace", name=STRING, namespace=STRING),
    tool(
        "scale_deployment", "Scale a deployment.", "name", "replicas", name=STRING, replicas=INTEGER
    ),
    tool(
        "get_weather",
        "Get the weather of a city.",
        "city",
        city=STRING,
        unit={"anyOf": [{"type": "string", "enum": ["celsius", "fahrenheit"]}, {"type": "null"}]},
    ),
    tool(
        "create_ticket",
        "Create a ticket.",
        "title",
        title=STRING,
        priority={"enum": ["low", "high"]},
        urgent={"type": "boolean"},
    ),
    tool(
        "restart_service",
        "Restart a service.",
        "service",
        service=STRING,
        force={"type": "boolean"},
    ),
    tool(
        "send_report",
        "Send a report by mail.",
        "to",
        to={**STRING, "format": "email"},
        pages={"type": "array", "items": INTEGER},
    ),
)


def reply(*texts: str, tools: Any = MACHINE, **fields: Any) -> Reply:
    """The last reply of a conversation in which the user says `texts`, one after another."""
    turns: list[Turn] = []
    for text in texts:
        turns.append(user(text))
        turns.append(reply_of(asked(Offline(), *turns, tools=tools, **fields)).turn)
    return reply_of(asked(Offline(), *turns[:-1], tools=tools, **fields))


def made(*texts: str, tools: Any = MACHINE) -> list[tuple[str, dict[str, Any]]]:
    return [(c.name, dict(c.input)) for c in calls_of(reply(*texts, tools=tools).turn)]


def reported(*texts: str, tools: Any = MACHINE) -> str:
    answer = reply(*texts, tools=tools)
    assert calls_of(answer.turn) == [] and answer.stop == "end_turn"
    return text_of(answer.turn)


def commands(*lines: str) -> list[tuple[str, dict[str, Any]]]:
    return [("suggest_commands", {"commands": [{"command": line} for line in lines]})]


@pytest.mark.parametrize(
    ("words", "name", "values"),
    [
        ("what fills the disk under /usr?", "disk_usage", {"path": "/usr"}),
        ("how full is the disk?", "disk_usage", {}),
        ("show the 5 largest files in /var/log", "largest_files", {"path": "/var/log", "count": 5}),
        ("What's the biggest file under /tmp", "largest_files", {"path": "/tmp"}),
        ("which processes use the most memory?", "processes", {"sort": "memory"}),
        ("what is running?", "processes", {}),
        ("how much memory is used?", "memory", {}),
        ("tail logs/app.log", "tail_log", {"path": "logs/app.log"}),
        ("tail /var/log/syslog", "tail_log", {"path": "/var/log/syslog"}),
        (
            "show me the last 50 lines of /var/log/syslog",
            "tail_log",
            {"path": "/var/log/syslog", "lines": 50},
        ),
        ("delete notes.txt", "delete_file", {"path": "notes.txt"}),
        ('Could you please remove "my notes.txt"?', "delete_file", {"path": "my notes.txt"}),
        ("I want to delete notes.txt", "delete_file", {"path": "notes.txt"}),
    ],
)
def test_sentence_about_the_machine_picks_a_tool(words: str, name: str, values: Any) -> None:
    assert made(words) == [(name, values)]


def test_description_with_the_users_own_words_wins() -> None:
    about = "What fills the disk under a folder: the largest files and folders."
    tools = [
        t if t.name != "largest_files" else ToolDefinition(t.name, about, t.input_schema)
        for t in MACHINE
    ]
    assert made("what fills the disk under /usr?", tools=tools) == [
        ("largest_files", {"path": "/usr"})
    ]


def test_filling_disk_is_understood_without_a_tool_named_for_the_disk() -> None:
    tools = [t for t in MACHINE if t.name != "disk_usage"]
    assert made("what fills the disk under /usr?", tools=tools) == [
        ("largest_files", {"path": "/usr"})
    ]


@pytest.mark.parametrize(
    ("words", "name", "values"),
    [
        ("list pods in namespace staging", "list_pods", {"namespace": "staging"}),
        ("list pods", "list_pods", {}),
        ("Can you list the pods in the staging namespace?", "list_pods", {"namespace": "staging"}),
        ("list pods in staging", "list_pods", {"namespace": "staging"}),
        (
            "delete pod web-1 in namespace staging",
            "delete_pod",
            {"name": "web-1", "namespace": "staging"},
        ),
        (
            "delete pod name=web-1 namespace: prod",
            "delete_pod",
            {"name": "web-1", "namespace": "prod"},
        ),
        ("scale deployment web to 3", "scale_deployment", {"name": "web", "replicas": 3}),
        ("what's the weather in Paris", "get_weather", {"city": "Paris"}),
        ("weather in New York in celsius", "get_weather", {"city": "New York", "unit": "celsius"}),
        (
            'create a ticket "Printer broken" with high priority',
            "create_ticket",
            {"title": "Printer broken", "priority": "high"},
        ),
        (
            "create an urgent ticket 'No paper'",
            "create_ticket",
            {"title": "No paper", "urgent": True},
        ),
        ("restart nginx", "restart_service", {"service": "nginx"}),
        ("restart nginx without force", "restart_service", {"service": "nginx", "force": False}),
        (
            "send the report to ann@example.org with pages 1, 2 and 5",
            "send_report",
            {"to": "ann@example.org", "pages": [1, 2, 5]},
        ),
    ],
)
def test_sentence_fills_the_arguments(words: str, name: str, values: Any) -> None:
    assert made(words, tools=CLUSTER) == [(name, values)]


@pytest.mark.parametrize(
    "words",
    [
        'largest_files {"path": "/usr", "count": 3}',
        "largest_files(path='/usr', count=3)",
        'largest_files("/usr", 3)',
        "largest_files(path=/usr, count=3)",
        "/largest_files path=/usr count=3",
        "/largest_files /usr 3",
        'please use `largest_files` with {"path": "/usr", "count": 3}',
    ],
)
def test_explicit_forms_are_taken_as_written(words: str) -> None:
    assert made(words) == [("largest_files", {"path": "/usr", "count": 3})]


def test_broken_json_is_told_with_its_place() -> None:
    assert "not valid JSON at character" in reported('largest_files {"path":')
    assert made('largest_files {"path":', 'largest_files {"path": "/usr"}') == [
        ("largest_files", {"path": "/usr"})
    ]


def test_unknown_tool_name_is_told() -> None:
    assert "no tool `largest`" in reported("/largest /usr")


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("run `df -h`", ["df -h"]),
        ("run df -h", ["df -h"]),
        ("please execute ls -la /tmp", ["ls -la /tmp"]),
        ("run `ls -la` and `df -h && du`", ["ls -la", "df -h && du"]),
        ("$ uname -a", ["uname -a"]),
        ("run this:\n```sh\nls\ndf -h\n```", ["ls", "df -h"]),
    ],
)
def test_commands_are_suggested(words: str, lines: list[str]) -> None:
    assert made(words) == commands(*lines)


def test_no_command_is_suggested_where_the_agent_has_none() -> None:
    assert "language model" in reported("run df -h", tools=CLUSTER)


@pytest.mark.parametrize(
    ("words", "tools"),
    [
        ("don't delete notes.txt", MACHINE),
        ("please do not list the pods", CLUSTER),
        ("never restart nginx", CLUSTER),
    ],
)
def test_negation_blocks_the_call(words: str, tools: Any) -> None:
    assert "did nothing" in reported(words, tools=tools)


@pytest.mark.parametrize(
    ("words", "tools"),
    [
        ("list pods", [t for t in CLUSTER if t.name == "delete_pod"]),
        ("which pods were deleted?", [t for t in CLUSTER if t.name == "delete_pod"]),
        ("delete pod web-1", [t for t in CLUSTER if t.name == "list_pods"]),
        ("make me coffee", MACHINE),
        ("read notes.txt", MACHINE),
        ("run the tests", MACHINE),
    ],
)
def test_another_kind_of_action_is_no_match(words: str, tools: Any) -> None:
    assert "no language model" in reported(
        words, tools=tools
    ) or "not a language model" in reported(words, tools=tools)


def test_several_actions_become_several_calls() -> None:
    assert made("list pods in namespace staging and restart nginx", tools=CLUSTER) == [
        ("list_pods", {"namespace": "staging"}),
        ("restart_service", {"service": "nginx"}),
    ]
    assert made("delete a.txt, b.txt and c.txt") == [
        ("delete_file", {"path": name}) for name in ("a.txt", "b.txt", "c.txt")
    ]
    assert made("list pods but don't restart nginx", tools=CLUSTER) == [("list_pods", {})]


def test_what_comes_after_then_has_to_be_asked_for_again() -> None:
    turns = [user("show the memory, then delete notes.txt")]
    first = reply_of(asked(Offline(), *turns, tools=MACHINE))
    [call] = calls_of(first.turn)
    assert call.name == "memory"
    assert text_of(first.turn).endswith('when it is done, say "delete notes.txt".')
    turns += [first.turn, user(Result(call.id, "4 GiB of 8"))]
    last = reply_of(asked(Offline(), *turns, tools=MACHINE))
    assert text_of(last.turn) == "`memory` returned 4 GiB of 8." and last.stop == "end_turn"
    assert calls_of(last.turn) == []


def test_missing_argument_is_asked_for_and_never_made_up() -> None:
    assert reported("delete the file") == (
        'To use `delete_file` I still need `path`. For example: `delete_file(path="…")`.'
    )
    assert made("delete the file", 'delete_file(path="notes.txt")') == [
        ("delete_file", {"path": "notes.txt"})
    ]
    assert "`namespace`" in reported("delete pod web-1", tools=CLUSTER)
    assert "`name`" in reported("delete a pod", tools=CLUSTER)
    assert "`name`" in reported("delete the old pod", tools=CLUSTER)
    assert "`replicas`" in reported("scale deployment web", tools=CLUSTER)
    assert "`path`" in reported("show the memory and delete the file")


def test_each_message_is_read_by_itself() -> None:
    assert made("delete the file", "show the memory") == [("memory", {})]
    assert "found no tool" in reported("delete the file", "notes.txt")


def test_close_tools_are_named() -> None:
    tools = (
        tool("list_pods", "List pods."),
        tool("list_nodes", "List nodes."),
        tool("pods_report", "Make a report of pods."),
        tool("pods_summary", "Sum pods up."),
    )
    assert reported("pods please", tools=tools) == (
        "I could use `list_pods`, `pods_report` or `pods_summary`. Write its name to call it."
    )
    assert made("pods please", "pods_summary", tools=tools) == [("pods_summary", {})]
    assert made("pods please", "list nodes", tools=tools) == [("list_nodes", {})]


@pytest.mark.parametrize("words", ["hello", "Good morning!", "make me coffee", "???"])
def test_it_says_what_it_is_and_what_it_can_do(words: str) -> None:
    text = reported(words)
    assert "offline responder, not a language model" in text
    for each in MACHINE:
        assert f"`{each.name}`" in text
    assert '`largest_files(path="…")`' in text and "run `df -h`" in text


def test_its_examples_are_understood() -> None:
    assert made('disk_usage(path="/")') == [("disk_usage", {"path": "/"})]


def test_tool_with_a_choice_of_nothing_is_told_like_any_other() -> None:
    # A server's list of projects may be empty at first.
    schema = {"type": "object", "properties": {"project": {"enum": []}}, "required": ["project"]}
    text = reported("what can you do?", tools=(ToolDefinition("drop", "Drop a project.", schema),))
    assert '`drop(project="…")`' in text


def test_agent_without_tools_is_told() -> None:
    assert "no tools" in reported("hello", tools=())


def result_text(*results: Result, said_too: str = "") -> str:
    calls = [Call(r.call_id, "delete_file", {"path": "a"}) for r in results]
    last = user(*results, *([said_too] if said_too else []))
    answer = reply_of(asked(Offline(), user("go"), assistant(*calls), last, tools=MACHINE))
    assert calls_of(answer.turn) == []
    return text_of(answer.turn)


def test_outcomes_are_told_with_their_output_and_reason() -> None:
    assert result_text(Result("1", "a\nb")) == "`delete_file` returned this:\n\na\nb"
    assert result_text(Result("1", "Error: no such file", is_error=True)) == (
        "`delete_file` failed: no such file"
    )
    assert result_text(Result("1", "Rejected by the user: too risky", is_error=True)) == (
        "`delete_file` was not run: Rejected by the user: too risky"
    )
    lost = result_text(Result("1", "Outcome unknown: the service stopped", is_error=True))
    assert "failed" not in lost and lost.endswith("Outcome unknown: the service stopped")
    assert result_text(Result("1", "one"), Result("2", "Error: two", is_error=True)) == (
        "`delete_file` returned one.\n\n`delete_file` failed: two"
    )


def test_what_the_service_notes_beside_the_users_words_asks_for_nothing() -> None:
    note = Text('The earlier call delete_file {"path": "a"} has now ended: deleted', note=True)
    for words in ("", "yes, go ahead"):
        turn = user(note, words) if words else user(note)
        reply = reply_of(asked(Offline(), turn, tools=MACHINE)).turn
        assert (text_of(reply), calls_of(reply)) == (note.text, [])
    reply = reply_of(asked(Offline(), user(note, "show the processes"), tools=MACHINE)).turn
    assert [call.name for call in calls_of(reply)] == ["processes"]


def test_words_that_go_with_a_decision_ask_for_nothing_more() -> None:
    assert result_text(Result("1", "done"), said_too="yes, go ahead please") == (
        "`delete_file` returned done."
    )


ROUTER = {
    "type": "object",
    "properties": {"should_respond": {"type": "boolean"}, "reasoning": {"type": "string"}},
    "required": ["should_respond", "reasoning"],
}


@pytest.mark.parametrize(
    ("words", "tools", "decision"),
    [
        ("ann: kube, are you there", (), True),
        ("What is wrong here?", (), True),
        ("list pods in staging", CLUSTER, True),
        ("@bob can you look at this?", (), False),
        ("Lunch was good today.", (), False),
        ("bob: are you coming?\nann: on my way", (), False),
        ("kubernetes is fine", (), False),
    ],
)
def test_router_is_answered_by_rules(words: str, tools: Any, decision: bool) -> None:
    system = "Decide whether the agent speaks.\nAgent: kube\nDescription: Looks after a cluster"
    found = asked(Offline(), user(words), schema=ROUTER, system=system, tools=tools)
    document = json.loads(said(found))
    assert document["should_respond"] is decision
    assert document["reasoning"]
    assert reply_of(found).stop == "end_turn"


def test_document_of_another_schema_is_refused() -> None:
    schema = {"type": "object", "properties": {"kind": {"enum": ["bug", "wish"]}}}
    with pytest.raises(ModelError, match="writes no documents of this schema"):
        asked(Offline(), user("a wish for 7 things"), schema=schema)


def test_the_same_ask_has_the_same_answer() -> None:
    first, second = reply("delete notes.txt"), reply("delete notes.txt")
    assert first == second
    [call] = calls_of(first.turn)
    again = asked(
        Offline(), user("go"), first.turn, user(Result(call.id, "x"), "delete a.txt"), tools=MACHINE
    )
    assert calls_of(reply_of(again).turn)[0].id != call.id


@given(st.text(alphabet=st.sampled_from("delete notes.txt run `'\"(){}[]=:,;and then /a1-?\n")))
def test_no_text_breaks_it(text: str) -> None:
    reply_of(asked(Offline(), user(text or "x"), tools=MACHINE))


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_number_that_nobody_can_read_is_asked_for_again(kind: str) -> None:
    tools = [tool("scale", "Scale a deployment.", "replicas", replicas={"type": kind})]
    for words in ("scale replicas={}", "scale(replicas={})", "scale to {} replicas"):
        reply = reply_of(asked(Offline(), user(words.format("9" * 5000)), tools=tools))
        assert not calls_of(reply.turn)
        assert "replicas" in text_of(reply.turn)
