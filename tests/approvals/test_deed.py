"""An approval is of the deed: the shown call is the one that runs, with its agent, input and
place."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from agents import scripted, suggest
from pydantic import BaseModel, Field
from serving import Json, Serve, Service, approved, folded, said, user

from sayso import (
    Agent,
    Call,
    Caller,
    Config,
    LocalShell,
    Message,
    RequestContext,
    ServiceHost,
    Tool,
    cli,
    tool,
)
from sayso.config.targets import load_agent
from sayso.decisions import deed
from sayso.ledger import Transaction
from sayso.ledger.log import chain_of
from sayso.ledger.sqlite import SqliteStore
from sayso.wire.messages import PlatformContext

SQLITE = {"approvals__ledger": "sqlite:///approvals.db"}
EVERY = pytest.mark.parametrize("way", ["v1", "v2", "v1-stream", "v2-stream", "ws"])


def events_by(service: Service, way: str, *messages: Json) -> list[Json]:
    if way == "ws":
        with service.ws() as ws:
            return ws.turn({"messages": list(messages)})
    return service.stream(*messages, path=way[:2])


def reply_by(service: Service, way: str, *messages: Json) -> Json:
    if way in ("v1", "v2"):
        return service.chat(*messages, path=way)
    return folded(events_by(service, way, *messages))


def refused(service: Service, way: str, *messages: Json) -> str:
    """The type of a request's refusal."""
    if way in ("v1", "v2"):
        answer = service.ask(*messages, path=way)
        assert answer.status == 422, answer.raw
        (kind,) = answer.types
        return kind
    last = events_by(service, way, *messages)[-1]
    assert last["type"] == "error", last
    return str(last["code"]).lower()


def restart_with(
    ran: list[Json], namespace: str = "dev", words: str = "Restart.", **options: Any
) -> Tool[..., Any]:
    def restart(service: str, namespace: str = namespace) -> str:
        ran.append({"service": service, "namespace": namespace})
        return f"restarted in {namespace}"

    return tool(restart, requires_approval=True, description=words, **options)


def agent_of(made: Tool[..., Any], sent: Json | None = None, **options: Any) -> Agent:
    call = Call("1", made.name, {"service": "db"} if sent is None else sent)
    script = [["I will.", call], "done", "done"]
    return scripted(script, [made], **{"name": "ops", **options})[0]


def deciding(reply: Json, *calls: Json, **fields: Any) -> list[Json]:
    decided = list(calls) or [approved(call) for call in reply["data"]["tool_calls"]]
    data = {"tool_calls": decided}
    return [user("go"), said(reply), user("", data=data, **fields)]


def in_store(folder: Path, work: Callable[[Transaction], Any]) -> Any:
    """The result of `work` in the store of the test."""

    async def read() -> Any:
        store = SqliteStore(folder / "approvals.db")
        await store.open()
        try:
            return await store.run(work)
        finally:
            await store.close()

    return asyncio.run(read())


# The tool


@EVERY
def test_a_redeploy_with_another_default_does_not_run_what_was_approved(
    served: Serve, tmp_path: Path, way: str
) -> None:
    ran: list[Json] = []
    before = served(agent_of(restart_with(ran, "dev")), **SQLITE)
    after = served(agent_of(restart_with(ran, "prod")), **SQLITE)
    reply = reply_by(before, way, user("go"))
    messages = deciding(reply)
    assert refused(after, way, *messages) == "approval_tool_changed"
    (row,) = in_store(tmp_path, lambda tx: tx.find())
    assert (ran, row.state) == ([], "PENDING")
    logged = in_store(tmp_path, lambda tx: tx.log({chain_of(row.id): 0}))
    entries = [entry for each in logged if (entry := each.entry)["id"] == row.id]
    (why,) = [entry["why"] for entry in entries if entry["event"] == "not_started"]
    assert why == "approval_tool_changed"
    assert reply_by(before, way, *messages)["content"] == "done", "the row was left alone"
    assert ran == [{"service": "db", "namespace": "dev"}]


@pytest.mark.parametrize(
    "change",
    [
        {"idempotent": True},
        {"destructive": True},
        {"read_only": True},
        {"origin": "mcp:other"},
        {"version": "2"},
        {"input_schema": {"properties": {"service": {}}, "required": ["service"]}},
    ],
)
def test_any_other_definition_is_another_tool(change: Json) -> None:
    assert restart_with([]).digest != restart_with([], **change).digest


def test_a_harmless_redeploy_kills_nothing(served: Serve) -> None:
    ran: list[Json] = []
    before = served(agent_of(restart_with(ran)), **SQLITE)
    later = restart_with(ran, words="Restart, as of Tuesday.", timeout=5, title="Restart it")
    after = served(scripted(["done"], [later], name="ops")[0], **SQLITE)
    assert after.chat(*deciding(before.chat(user("go"))))["content"] == "done"
    assert len(ran) == 1


def test_a_version_stands_in_for_the_definition() -> None:
    one, other = (restart_with([], name, version="7") for name in ("dev", "prod"))
    assert one.digest == other.digest != restart_with([], version="8").digest


def test_the_source_is_the_file_within_its_project_whatever_the_module_is_called(
    tmp_path: Any,
) -> None:
    code = "from sayso import tool\n@tool\ndef wipe(disk: str) -> str:\n    return disk\n"
    made = []
    for folder, module in (("one", "__main__"), ("other", "jobs")):
        place = tmp_path / folder / "src"
        place.mkdir(parents=True)
        (tmp_path / folder / "pyproject.toml").touch()
        (place / "jobs.py").write_text(code)
        names: Json = {"__name__": module}
        exec(compile(code, str(place / "jobs.py"), "exec"), names)
        made.append(names["wipe"])
    assert made[0].origin == made[1].origin == "src/jobs.py:wipe"
    assert made[0].digest == made[1].digest


def test_defaults_that_differ_from_process_to_process_are_left_out_and_said(served: Serve) -> None:
    @tool(requires_approval=True)
    def wipe(disk: str, client: Any = object(), names: frozenset[str] = frozenset("abc")) -> str:  # noqa: B008
        """Wipe."""
        return disk

    lines = served(agent_of(wipe, {"disk": "a"})).app.host.describe()
    (said_so,) = [line for line in lines if "from process to process" in line]
    assert "'client' of 'wipe'" in said_so
    assert "names" not in said_so


def test_a_tool_that_has_gone_leaves_the_row(served: Serve) -> None:
    ran: list[Json] = []
    before = served(agent_of(restart_with(ran)), **SQLITE)
    gone = served(scripted(["hm"], [], name="ops")[0], **SQLITE)
    messages = deciding(before.chat(user("go")))
    answer = gone.ask(*messages)
    assert answer.types == {"approval_tool_changed"}
    assert answer.json()["detail"][0]["msg"].endswith("ask for the call again")
    assert before.chat(*messages)["content"] == "done"


# The input


@EVERY
def test_defaults_are_shown_echoed_and_run(served: Serve, way: str) -> None:
    ran: list[Json] = []
    service = served(agent_of(restart_with(ran)))
    reply = reply_by(service, way, user("go"))
    (call,) = reply["data"]["tool_calls"]
    assert call["input"] == {"service": "db", "namespace": "dev"}
    bare = deciding(reply, approved(call, input={"service": "db"}))
    assert refused(service, way, *bare) == "approval_changed"
    assert reply_by(service, way, *deciding(reply))["content"] == "done"
    assert ran == [call["input"]]


def test_a_number_that_was_sent_as_text_is_shown_as_what_it_is(served: Serve) -> None:
    ran: list[int] = []

    @tool(requires_approval=True)
    def scale(count: int) -> str:
        """Scale."""
        ran.append(count)
        return str(count)

    service = served(agent_of(scale, {"count": "1_0"}))
    reply = service.chat(user("go"))
    (call,) = reply["data"]["tool_calls"]
    assert call["input"] == {"count": 10}
    assert service.ask(*deciding(reply, approved(call, input={"count": "1_0"}))).status == 422
    service.chat(*deciding(reply))
    assert ran == [10]


class Order(BaseModel):
    item: str
    count: int = 1


@pytest.mark.parametrize("key", ["dry_run", "Item"])
def test_a_key_that_the_tool_would_drop_is_told_to_the_model(served: Serve, key: str) -> None:
    ran: list[Order] = []

    @tool(requires_approval=True)
    def buy(order: Order) -> str:
        """Buy."""
        ran.append(order)
        return ""

    calls = [Call("1", "buy", {"item": "tea", key: True})]
    agent, model = scripted([calls, "sorry"], [buy])
    reply = served(agent).chat(user("go"))
    assert (reply["content"], reply["data"]["tool_calls"], ran) == ("sorry", [], [])
    reported = model.asks[-1].turns[-1].blocks[0]
    assert (reported.is_error, f"there is no parameter {key!r}" in reported.output) == (True, True)


@pytest.mark.parametrize(
    ("change", "gets"),
    [
        ({"item": "tea", "count": "1_0"}, Order(item="tea", count=10)),
        ({"item": "tea"}, Order(item="tea", count=1)),
        ({"item": "tea", "count": 2, "dry_run": True}, None),
    ],
)
def test_an_edit_is_recorded_as_what_the_tool_gets(
    served: Serve, change: Json, gets: Order | None
) -> None:
    ran: list[Order] = []

    @tool(requires_approval=True, editable=True)
    def buy(order: Order) -> str:
        """Buy."""
        ran.append(order)
        return ""

    service = served(agent_of(buy, {"item": "tea", "count": 3}))
    reply = service.chat(user("go"))
    messages = deciding(reply, approved(reply["data"]["tool_calls"][0], input=change))
    answer = service.ask(*messages)
    if gets is None:
        assert (answer.types, ran) == ({"approval_changed"}, [])
        return
    (done,) = answer.json()["data"]["executed_tool_calls"]
    assert (ran, done["input"]) == ([gets], gets.model_dump())
    assert service.ask(*messages).json() == answer.json(), "the same edit again is no other one"
    assert len(ran) == 1


def test_an_edit_may_leave_out_what_it_leaves_to_its_default(served: Serve) -> None:
    ran: list[Json] = []
    service = served(agent_of(restart_with(ran, editable=["service"])))
    reply = service.chat(user("go"))
    (call,) = reply["data"]["tool_calls"]
    service.chat(*deciding(reply, approved(call, input={"service": "web"})))
    assert ran == [{"service": "web", "namespace": "dev"}]


@pytest.mark.parametrize("other", ["place", "tool"])
def test_an_edit_is_refused_where_the_call_itself_would_be(served: Serve, other: str) -> None:
    ran: list[Json] = []
    first = served(agent_of(restart_with(ran, editable=True)), **SQLITE)
    there = {"platform_context": {"k8s_namespace": "dev"}}
    reply = first.chat(user("go", **there))
    edited = approved(reply["data"]["tool_calls"][0], input={"service": "web"})
    if other == "place":
        messages = deciding(reply, edited, platform_context={"k8s_namespace": "prod"})
        assert first.ask(*messages).types == {"approval_context_changed"}
    else:
        second = served(agent_of(restart_with(ran, "prod", editable=True)), **SQLITE)
        assert second.ask(*deciding(reply, edited, **there)).types == {"approval_tool_changed"}
    assert ran == []
    assert first.chat(*deciding(reply, **there))["content"] == "done"
    assert ran == [{"service": "db", "namespace": "dev"}]


def test_what_the_service_sets_is_marked_and_secrets_are_nowhere(served: Serve) -> None:
    @tool(requires_approval=True)
    def call(
        host: str, key: Annotated[str, Field(json_schema_extra={"writeOnly": True})] = "hush-hush"
    ) -> str:
        """Call."""
        return key.upper()

    service = served(agent_of(call, {"host": "a"}), **SQLITE)
    reply = service.chat(user("go"))
    (shown,) = reply["data"]["tool_calls"]
    assert shown["input"] == {"host": "a"}
    assert shown["input_description"]["key"]["set_by"] == "service"
    (item,) = reply["data"]["approvals"]
    assert item["input_description"] == shown["input_description"]
    assert "hush" not in json.dumps(reply)
    done = service.chat(*deciding(reply))["data"]["executed_tool_calls"]
    assert [one["output"] for one in done] == ["HUSH-HUSH"]


def test_what_a_partial_fixes_is_bound(served: Serve) -> None:
    def restart(service: str, namespace: str) -> str:
        return namespace

    one, other = (
        tool(functools.partial(restart, namespace=name), requires_approval=True)
        for name in ("dev", "prod")
    )
    before, after = served(agent_of(one), **SQLITE), served(agent_of(other), **SQLITE)
    reply = before.chat(user("go"))
    about = reply["data"]["tool_calls"][0]["input_description"]["namespace"]
    assert (about["set_by"], about["default"]) == ("service", "dev")
    assert after.ask(*deciding(reply)).types == {"approval_tool_changed"}


# The agent


@EVERY
def test_what_one_agent_proposed_does_not_exist_for_another(served: Serve, way: str) -> None:
    ran: list[Json] = []
    scratch = served(agent_of(restart_with(ran), name="scratch"), **SQLITE)
    prod = served(agent_of(restart_with(ran), name="prod"), **SQLITE)
    reply = reply_by(scratch, way, user("go"))
    assert refused(prod, way, *deciding(reply)) == "approval_not_issued"
    assert ran == []
    assert reply_by(scratch, way, *deciding(reply))["content"] == "done"


def test_the_identity_is_the_id_else_the_name_else_the_place() -> None:
    assert Agent(id="a", name="b").id == "a"
    assert Agent(name="b").id == "b"
    assert Agent().id == f"{__name__}:test_the_identity_is_the_id_else_the_name_else_the_place"
    assert HERE.id == f"{__name__}:HERE"
    assert Agent().name == "assistant"


HERE = Agent()


def test_agents_of_two_files_of_one_name_are_two(tmp_path: Any) -> None:
    ids = set()
    for folder in ("scratch", "prod"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "agent.py").write_text("from sayso import Agent\nagent = Agent()\n")
        ids.add(load_agent("agent.py", tmp_path / folder).id)
    assert ids == {f"{tmp_path}/{folder}/agent.py:agent" for folder in ("scratch", "prod")}


def test_each_agent_has_a_state_folder_and_the_command_line_lists_all(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    async def propose(name: str) -> str:
        agent = agent_of(restart_with([]), name=name)
        host = ServiceHost.create(agent, Config.model_validate({"plugins": []}))
        async with host.life(only=()):
            row = await host.calls.propose("restart", {"service": name}, Caller("test"))
        assert host.state_dir.parent == tmp_path / "sayso"
        return row.id

    ids = [asyncio.run(propose(name)) for name in ("scratch", "prod")]
    assert cli.run(["approvals", "list"]) == 0
    out = capsys.readouterr().out
    assert all(id_ in out for id_ in ids)
    assert out.count("in sqlite:") == 2
    assert cli.run(["approvals", "reject", ids[1]]) == 0
    assert "REJECTED" in capsys.readouterr().out
    assert cli.run(["approvals", "verify"]) == 0
    assert capsys.readouterr().out.count("the log is whole") == 2


# The context


def kubeconfig(server: str, token: str = "token-1-of-the-user", namespace: str = "") -> str:
    where = f"\n    namespace: {namespace}" if namespace else ""
    text = (
        f"clusters:\n- cluster:\n    server: {server}\n    certificate-authority-data: QUJD\n"
        f"  name: c\ncontexts:\n- context:\n    cluster: c{where}\n  name: c\n"
        f"current-context: c\nusers:\n- name: u\n  user:\n    token: {token}\n"
    )
    return base64.b64encode(text.encode()).decode()


TWO_CLUSTERS = """clusters:
- {name: a, cluster: {server: https://a}}
- name: b
  cluster:
    server: https://b
contexts:
- {name: work, context: {cluster: a, user: u}}
current-context: work
"""


TWO_PLACES = """clusters:
- cluster:
    server: https://a
  name: a
contexts:
- context:
    cluster: a
    namespace: dev
  name: x
- context:
    cluster: a
    namespace: prod
  name: y
current-context: x
"""


def seeing(seen: list[Any]) -> Tool[..., Any]:
    @tool(requires_approval=True)
    def act(service: str, context: RequestContext) -> str:
        """Act."""
        seen.append(context.platform)
        return "acted"

    return act


FIELDS = {
    "tenant_name": ("acme", "evil"),
    "k8s_namespace": ("dev", "prod"),
    "platform_base_url": ("https://dev.example", "https://prod.example"),
    "kubeconfig": (kubeconfig("https://dev:6443"), kubeconfig("https://prod:6443")),
    "aws_credentials": (
        {"aws_region": "eu-west-1", "aws_access_key_id": "key-1-of-the-user"},
        {"aws_region": "us-east-1", "aws_access_key_id": "key-1-of-the-user"},
    ),
}


def value_of(platform: PlatformContext, name: str) -> Any:
    value = getattr(platform, name)
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("before", [True, False], ids=["stated", "absent"])
@pytest.mark.parametrize("now", ["absent", "equal", "different"])
def test_a_call_acts_where_it_was_approved(
    served: Serve, name: str, before: bool, now: str
) -> None:
    seen: list[Any] = []
    service = served(agent_of(seeing(seen)))
    equal, different = FIELDS[name]
    first = user("go", platform_context={name: equal}) if before else user("go")
    reply = service.chat(first)
    context = {"absent": {}, "equal": {name: equal}, "different": {name: different}}[now]
    # A client that trims its history sends the decision alone.
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    answer = service.ask(user("", data=data, platform_context=context))
    if before and now == "different":
        kind = "approval_not_issued" if name == "tenant_name" else "approval_context_changed"
        assert (answer.types, seen) == ({kind}, [])
        return
    assert answer.status == 200, answer.raw
    if before and now == "absent" and name in deed.CREDENTIALS:
        assert (seen, answer.json()["data"]["tool_calls"][0]["execute"]) == ([], False)
        assert f"needs {name}" in answer.json()["content"]
        return
    assert value_of(seen[0], name) == (equal if before else None)


def test_an_approved_call_that_waits_for_a_credential_runs_when_it_comes(served: Serve) -> None:
    seen: list[Any] = []
    service = served(agent_of(seeing(seen)))
    reply = service.chat(user("go", platform_context={"platform_token": "token-1-of-the-user"}))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    waits = service.chat(user("", data=data))
    assert (seen, waits["data"]["executed_tool_calls"]) == ([], [])
    renewed = {"platform_token": "token-2-of-the-user"}
    assert service.chat(user("", data=data, platform_context=renewed))["content"] == "done"
    assert value_of(seen[0], "platform_token") == "token-2-of-the-user"


class Acting:
    """A callable that proposes `count` calls and carries them out; it notes where."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.acted: list[tuple[PlatformContext, list[PlatformContext | None]]] = []

    def __call__(self, messages: Sequence[Message], context: RequestContext) -> Any:
        if context.decisions:
            self.acted.append((context.platform, [c.platform for c in context.decisions]))
            return "done"
        calls = [{"id": f"c{n}", "name": "wipe", "input": {"n": n}} for n in range(self.count)]
        return {"data": {"tool_calls": calls}}


@pytest.mark.parametrize(
    ("proposed", "decided", "acts_in"),
    [
        ("dev", None, "dev"),
        ("dev", "dev", "dev"),
        (None, "prod", None),
        (None, None, None),
    ],
)
def test_callable_carries_out_what_was_approved_where_it_was_approved(
    served: Serve, proposed: str | None, decided: str | None, acts_in: str | None
) -> None:
    acting = Acting()
    service = served(acting)

    def place(namespace: str | None) -> Json:
        return {"platform_context": {"k8s_namespace": namespace}} if namespace else {}

    reply = service.chat(user("go", **place(proposed)))
    data = {"tool_calls": [approved(call) for call in reply["data"]["tool_calls"]]}
    service.chat(user("", data=data, **place(decided)))
    ((platform, (own,)),) = acting.acted
    assert own is not None
    assert (platform.k8s_namespace, own.k8s_namespace) == (acts_in, acts_in)


def test_callable_carries_nothing_out_in_another_place_than_was_approved(served: Serve) -> None:
    acting = Acting(2)
    service = served(acting)
    dev, prod = ({"platform_context": {"k8s_namespace": name}} for name in ("dev", "prod"))
    reply = service.chat(user("go", **dev))
    calls = reply["data"]["tool_calls"]
    data = {"tool_calls": [approved(call) for call in calls]}
    assert service.ask(user("", data=data, **prod)).types == {"approval_context_changed"}
    for call in calls:
        decide = service.app.host.calls.decide
        asyncio.run(decide(call["id"], Caller("console"), approved=True, run=False))
    # Approved elsewhere, and requested from another place: they wait, in either form.
    restated = service.chat(said(reply), user("", **prod))
    assert [c["id"] for c in restated["data"]["tool_calls"]] == [c["id"] for c in calls]
    assert acting.acted == []
    service.chat(said(reply), user("", data=data, **dev))
    assert len(acting.acted) == 1


def test_callable_that_reads_its_context_waits_for_a_credential_that_was_there(
    served: Serve,
) -> None:
    acting = Acting()
    service = served(acting)
    reply = service.chat(user("go", platform_context={"platform_token": "token-1-of-the-user"}))
    data = {"tool_calls": [approved(call) for call in reply["data"]["tool_calls"]]}
    waits = service.chat(said(reply), user("", data=data))
    assert "needs platform_token" in waits["content"]
    assert acting.acted == []
    renewed = {"platform_token": "token-2-of-the-user"}
    service.chat(said(reply), user("", data=data, platform_context=renewed))
    ((platform, _),) = acting.acted
    assert platform.platform_token is not None
    assert platform.platform_token.get_secret_value() == "token-2-of-the-user"


def test_tools_that_read_no_context_ask_for_no_credential(served: Serve) -> None:
    ran: list[Json] = []
    service = served(agent_of(restart_with(ran)))
    reply = service.chat(user("go", platform_context={"kubeconfig": FIELDS["kubeconfig"][0]}))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    assert service.chat(user("", data=data))["content"] == "done"
    assert len(ran) == 1


def test_credentials_may_be_renewed(served: Serve) -> None:
    seen: list[Any] = []
    service = served(agent_of(seeing(seen)))
    old, new = (kubeconfig("https://dev:6443", token=f"token-{n}-of-the-user") for n in (1, 2))
    reply = service.chat(user("go", platform_context={"kubeconfig": old}))
    data = {"tool_calls": [approved(reply["data"]["tool_calls"][0])]}
    assert service.ask(user("", data=data, platform_context={"kubeconfig": new})).status == 200
    assert value_of(seen[0], "kubeconfig") == new


def test_no_caller_sees_the_folder_of_an_agent_without_a_name(
    served: Serve, tmp_path: Path
) -> None:
    call = '{"id": "1", "name": "look", "input": {}}'
    body = f'return {{"content": "", "data": {{"tool_calls": [{call}]}}}}'
    (tmp_path / "asking.py").write_text(f"def answer(messages, context):\n    {body}\n")
    service = served(load_agent("asking.py:answer", tmp_path), **SQLITE)
    reply = service.chat(user("go"))
    assert reply["data"]["approvals"][0]["bound"]["agent"] == "asking.py:answer"
    decided = {"tool_calls": [approved(call) for call in reply["data"]["tool_calls"]]}
    assert service.ask(user("go"), said(reply), user("", data=decided)).status == 200


def test_the_place_is_shown_and_holds_no_credential(served: Serve) -> None:
    service = served(agent_of(seeing([])), **SQLITE)
    stated = {
        "k8s_namespace": "dev",
        "platform_base_url": "https://user:secret-of-url@dev.example/",
        "platform_token": "token-1-of-the-user",
        "kubeconfig": FIELDS["kubeconfig"][0],
    }
    reply = service.chat(user("go", platform_context=stated))
    bound = reply["data"]["approvals"][0]["bound"]
    assert bound["agent"] == "ops"
    assert bound["context"]["k8s_namespace"] == "dev"
    assert bound["context"]["platform_base_url"] == "https://dev.example/"
    assert bound["context"]["kubeconfig"]["server"] == "https://dev:6443"
    assert bound["context"]["platform_token"] == {}
    assert "of-the-user" not in json.dumps(bound)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("server: https://a", "server: https://b"),
        ("server: &x https://a\nu: *x", "server: &x https://b\nu: *x"),
        ('{"server": "https://a"}', '{"\\u0073erver": "https://a"}'),
        ("proxy-url: http://a", "proxy-url: http://b"),
        ("namespace: a", ""),
        ("insecure-skip-tls-verify: false", "insecure-skip-tls-verify: true"),
        (TWO_CLUSTERS, TWO_CLUSTERS.replace("cluster: a", "cluster: b")),
        (TWO_CLUSTERS, TWO_CLUSTERS.replace("name: a", "name: c").replace("name: b", "name: a")),
        (TWO_PLACES, TWO_PLACES.replace("name: x", "name: z").replace("name: y", "name: x")),
        ("server: https://a\n# server: https://b", "# server: https://a\nserver: https://b"),
        ("clusters: {server: b}\nnote: {server: c}", "note: {server: b}\nclusters: {server: c}"),
        ("server: a\nnamespace: b", "server: a\nnote: 'x\n  namespace: b'"),
        ("server: a\nn: [&b server]", "server: a\nn: [&b server]\nm: {*b : c}"),
        ("server: a", "server: a\n!!binary c2VydmVy: b"),
        ("server: a", 'server: a\n? "ser\\\nver"\n: b'),
        ('users: "\n- "\nserver: a', 'users: "\n- "\nserver: a\nn: "\nusers:\n - "'),
        ('{"clusters": [{"server": "a"}]}', '{"users": [{"server": "a"}]}'),
    ],
)
def test_what_a_kubeconfig_is_for_is_bound(one: str, other: str) -> None:
    found = [
        deed.place(
            PlatformContext.model_validate(
                {"kubeconfig": base64.b64encode(text.encode()).decode() or "IA=="}
            )
        )
        for text in (one, other)
    ]
    assert deed.differs(*found) == ["kubeconfig"]


RENEWED = [
    [
        f"apiVersion: v1\nclusters:\n- cluster:\n    server: https://a\n  name: c\nusers:{users}\n"
        "# the end\ncontexts: []\n"
        for users in (
            "\n- name: u\n  user:\n    token: token-1-of-the-user",
            '\n- name: v\n  user:\n    exec:\n      args:\n      - --role=x\n      - "y z"',
            " []",
        )
    ],
    [
        f'{{"clusters": [{{"cluster": {{"server": "https://a"}}}}], "users": {users}}}'
        for users in ('[{"user": {"token": "token-1-of-the-user"}}]', '[{"name": "x"}]', "null")
    ],
]


@pytest.mark.parametrize("texts", RENEWED, ids=["yaml", "json"])
def test_all_that_a_kubeconfig_says_of_its_users_may_be_renewed(texts: list[str]) -> None:
    first, *others = [
        deed.place(PlatformContext(kubeconfig=base64.b64encode(text.encode()).decode()))
        for text in texts
    ]
    assert first["kubeconfig"]["server"] == "https://a"
    assert others == [first, first]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"region": "a", "awsRegion": "c"}, {"region": "b", "awsRegion": "c"}),
        ({"region": "a", "awsRegion": "c"}, {"awsRegion": "a", "region": "c"}),
        ({"region": "a", "awsRegion": "c"}, {"awsRegion": "c"}),
    ],
)
def test_account_is_bound_under_every_name_that_a_request_gives_it(one: Json, other: Json) -> None:
    found = [deed.place(PlatformContext(aws_credentials=each)) for each in (one, other)]
    assert deed.differs(*found) == ["aws_credentials.region"]
    assert deed.restored(found[0], PlatformContext(aws_credentials={"key": "k"})) == (
        PlatformContext(aws_credentials={"key": "k", **one})
    )


# Commands


def shell_agent(shell: LocalShell, script: list[Any] | None = None, **options: Any) -> Agent:
    steps = [["t", suggest("echo $PLACE > ran")], "done"] if script is None else script
    return scripted(steps, [], commands=shell, name="ops", **options)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"env": {"PLACE": "prod"}},
        {"workdir": "other"},
        {"timeout": 5},
        {"env": lambda context: {"PLACE": "prod"}},
    ],
    ids=["environment", "folder", "timeout", "function"],
)
@pytest.mark.parametrize("with_id", [True, False])
def test_a_command_runs_only_in_the_shell_for_which_it_was_approved(
    served: Serve, tmp_path: Path, change: Json, with_id: bool
) -> None:
    settings = {"workdir": "work", "env": {"PLACE": "dev"}}
    one, other = (
        LocalShell(**{**given, "workdir": tmp_path / given["workdir"]})
        for given in (settings, {**settings, **change})
    )
    before = served(shell_agent(one), **SQLITE)
    after = served(shell_agent(other, ["done"]), **SQLITE)
    reply = before.chat(user("go"))
    (command,) = reply["data"]["cmds"]
    sent = approved(command) if with_id else {"command": command["command"], "execute": True}
    messages = [user("go"), said(reply), user("", data={"cmds": [sent]})]
    session = {"session": reply["data"]["session"]}
    messages[-1]["data"] |= session
    assert after.ask(*messages).types == {"approval_tool_changed"}
    assert not list(tmp_path.rglob("ran"))
    assert before.chat(*messages)["data"]["executed_cmds"]
    (ran,) = tmp_path.rglob("ran")
    assert ran.read_text().strip() == "dev"


def test_the_same_shell_after_a_restart_runs_the_command(served: Serve, tmp_path: Path) -> None:
    shells = [LocalShell(workdir=tmp_path / "work", env={"A": "b"}) for _ in range(2)]
    before = served(shell_agent(shells[0]), **SQLITE)
    after = served(shell_agent(shells[1], ["done"]), **SQLITE)
    reply = before.chat(user("go"))
    assert "in " + str(tmp_path / "work") in reply["data"]["approvals"][0]["bound"]["tool"]
    data = {"cmds": [approved(command) for command in reply["data"]["cmds"]]}
    assert after.chat(user("go"), said(reply), user("", data=data))["data"]["executed_cmds"]


def test_a_command_of_one_agent_is_matched_by_no_other(served: Serve, tmp_path: Path) -> None:
    before = served(shell_agent(LocalShell(workdir=tmp_path)), **SQLITE)
    shell = LocalShell(workdir=tmp_path)
    other = served(scripted(["done"], [], commands=shell, name="prod")[0], **SQLITE)
    reply = before.chat(user("go"))
    sent = [{"command": command["command"], "execute": True} for command in reply["data"]["cmds"]]
    messages = [user("go"), said(reply), user("", data={"cmds": sent})]
    assert other.ask(*messages).types == {"approval_not_issued"}


def test_a_command_acts_where_it_was_approved(served: Serve, tmp_path: Path) -> None:
    shell = LocalShell(
        workdir=tmp_path, env=lambda context: {"PLACE": context.platform.k8s_namespace or "none"}
    )
    service = served(shell_agent(shell))
    reply = service.chat(user("go", platform_context={"k8s_namespace": "dev"}))
    data = {"cmds": [approved(command) for command in reply["data"]["cmds"]]}
    prod = user("", data=data, platform_context={"k8s_namespace": "prod"})
    assert service.ask(user("go"), said(reply), prod).types == {"approval_context_changed"}
    service.chat(user("", data=data))
    (ran,) = tmp_path.rglob("ran")
    assert ran.read_text().strip() == "dev"
