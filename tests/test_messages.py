"""Reading requests: valid ones, refused ones, and no refusal that repeats a value."""

from __future__ import annotations

import base64
import copy
import gc
import json
import pickle
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from sayso.errors import InvalidRequest, MessagesMissing
from sayso.trees import canonical
from sayso.wire.chat import parse_request
from sayso.wire.credentials import in_kubeconfig
from sayso.wire.json_bytes import check_size
from sayso.wire.masking import mask
from sayso.wire.messages import (
    AgentMessage,
    Data,
    Message,
    PlatformContext,
    platform_of,
)


def body(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"messages": list(messages), **fields}).encode()


def user(content: str | None = "hi", **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def test_request_fields_are_all_top_level_fields_but_messages_as_sent() -> None:
    request = parse_request(body(user(), source="team-chat", ticket=7))
    assert request.request_fields == {"source": "team-chat", "ticket": 7}
    assert parse_request(body(user())).request_fields == {}


def test_source_is_help_desk_by_default() -> None:
    assert parse_request(body(user())).source == "help-desk"


def test_a_missing_messages_field_is_its_own_refusal() -> None:
    with pytest.raises(MessagesMissing):
        parse_request(b"{}")


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"{", "json_invalid"),
        (b"NaN", "json_invalid"),
        (b'{"messages": NaN}', "json_invalid"),
        (b'{"source": -Infinity}', "json_invalid"),
        (b'{"messages": "NaN"}', "list_type"),
        (body(user(data={"session": {"n": float("nan")}})), "json_invalid"),
        (b'{"messages":[{"role":"user","content":"x"}],"n":1e999}', "finite_number"),
        (
            b'{"messages":[{"role":"user","content":"x","data":{"tool_calls":'
            b'[{"id":"a","name":"b","input":{"n":[-1e400]}}]}}]}',
            "finite_number",
        ),
        (body(), "too_short"),
        (body({"role": "assistant", "content": "x"}), "last_message_not_user"),
        (body({"role": "system", "content": "x"}), "literal_error"),
        (body(user(data={"tool_calls": [{"id": "a"}]})), "missing"),
        (body(user(timestamp="s3cret-value")), "timestamp"),
        (b'{"messages":[{"role":"user","content":"\\ud800"}]}', "json_invalid"),
        (b'{"messages":[{"role":"user","content":"\xff"}]}', "json_invalid"),
    ],
)
def test_a_malformed_body_is_refused_by_kind(sent: bytes, kind: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(sent)
    assert refused.value.items[0]["type"] == kind
    assert refused.value.items[0]["loc"][0] == "body"


@given(secret=st.from_regex(r"[a-z]{6}s3cret[0-9]{4}", fullmatch=True))
def test_no_refusal_repeats_a_value(secret: str) -> None:
    bad = [
        user(timestamp=secret),
        {"role": secret, "content": "x"},
        user(data={"tool_calls": [{"id": 1, "name": secret, "input": secret}]}),
        user(platform_context={"platform_token": [secret]}),
        user(data={"tool_calls": [{"id": "1", "name": "n", "input": {}, "execute": secret}]}),
    ]
    for message in bad:
        with pytest.raises(InvalidRequest) as refused:
            parse_request(body(message))
        assert secret not in json.dumps(refused.value.items) + str(refused.value)


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@given(levels=st.integers(min_value=0, max_value=120), text=st.text(max_size=20))
def test_nesting_is_counted_exactly(levels: int, text: str) -> None:
    # The body, the list, the message, its data and its session are five levels already.
    sent = body(user(data={"session": {text + '}]"\\': nested(levels)}}))
    if levels + 5 <= 64:
        parse_request(sent)
    else:
        with pytest.raises(InvalidRequest):
            parse_request(sent)


def counted(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(counted, inner))


ANY = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('a,[]{}" \\\né\ud800')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a,[{"\\')), inner),
    max_leaves=40,
)


@given(value=ANY, indent=st.sampled_from([None, 1]), whole=st.booleans())
def test_values_are_counted_exactly(value: Any, indent: int | None, whole: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=whole)
    for sent in (text, text.encode("utf-8", "surrogatepass")):
        check_size(sent, counted(value))
        if counted(value) > 1:
            with pytest.raises(InvalidRequest):
                check_size(sent, counted(value) - 1)


@pytest.mark.parametrize("broken", ['["' + "a," * 90_000, '"' * 90_000, "[," * 90_000 + '"'])
def test_values_of_what_is_no_json_are_counted_in_no_time(broken: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(broken, values=10)


@pytest.mark.parametrize(
    "time",
    ["2016-12-31T23:59:60Z", "2016-12-31T23:59:60.5+00:00", "2024-01-02t03:04:05.123456789z"],
)
def test_a_time_of_rfc_3339_is_taken_as_it_was_sent(time: str) -> None:
    request = parse_request(body(user(timestamp=time)))
    assert request.messages[-1].timestamp == time


@pytest.mark.parametrize("time", ["", "60", "2016-12-31T23:59:61Z", "2016-02-30t00:00:00z"])
def test_what_is_no_time_is_refused(time: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_request(body(user(timestamp=time)))
    assert [item["type"] for item in refused.value.items] == ["timestamp"]


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="more than 2"):
        parse_request(body(user(), user(), user()), messages=2)


def test_null_data_is_no_data_and_unknown_keys_pass() -> None:
    request = parse_request(body(user(data=None, mood="good")))
    assert request.messages[0].data is None
    assert request.messages[0].model_extra == {"mood": "good"}


@pytest.mark.parametrize("execute", ["true", 1, "yes", None])
def test_execute_must_be_a_boolean(execute: Any) -> None:
    call = {"id": "a", "name": "n", "input": {}, "execute": execute}
    with pytest.raises(InvalidRequest):
        parse_request(body(user(data={"tool_calls": [call]})))


def test_an_empty_reply_has_the_contracts_defaults() -> None:
    reply = json.loads(AgentMessage().model_dump_json())
    assert reply["data"].pop("approvals") == reply["data"].pop("executed_approvals") == []
    assert reply == {
        "role": "assistant",
        "content": "",
        "data": {
            "cmds": [],
            "executed_cmds": [],
            "tool_calls": [],
            "executed_tool_calls": [],
            "url_configs": [],
        },
        "meta_data": {},
        "timestamp": None,
        "user": None,
        "agent": None,
    }


def test_lists_of_two_messages_are_not_shared() -> None:
    first, second = Data(), Data()
    first.tool_calls.append(None)  # type: ignore[arg-type]
    assert second.tool_calls == []
    assert AgentMessage().data.tool_calls == []


def test_secrets_of_the_platform_context_never_show() -> None:
    context = PlatformContext.model_validate(
        {
            "platform_token": "tok-12345",
            "kubeconfig": "kube-12345",
            "aws_credentials": {"secret": "aws-12345"},
            "other_secret": "extra-12345",
        }
    )
    shown = repr(context) + str(context) + context.model_dump_json(exclude={"other_secret"})
    assert "12345" not in shown
    assert {"aws-12345", "kube-12345", "tok-12345"} <= {*context.secrets()}


@pytest.mark.parametrize(
    "secret",
    ["first line\nsecond line\n", 'a "quoted" one', "a\\back", "Schlüssel\t1", "it's", "a&b<c>d"],
)
def test_secret_is_known_however_it_is_written(secret: str) -> None:
    context = PlatformContext.model_validate({"platform_token": secret})
    bare = secret.strip()
    texts = [*in_json(secret), *in_json(bare)]
    texts += [deeper for text in texts for deeper in in_json(text)]
    texts += [repr(secret)[1:-1], repr(bare)[1:-1], secret, bare, "".join(secret.split())]
    for text in texts:
        masked = mask(text, context.secrets())
        assert masked.removesuffix("n").rstrip("\\\n") == "[secret]"


@pytest.mark.parametrize("secret", ["secret", "secr", "[sec", "[secret]", "-4711"])
def test_what_is_masked_stays_as_it_is_when_it_is_masked_again(secret: str) -> None:
    secrets = PlatformContext(aws_credentials={"a": "geheim-4711", "b": secret}).secrets()
    masked = mask({f"<{secret}>": ["geheim-4711", secret * 2]}, secrets)
    assert masked == mask(masked, secrets) == {"<[secret]>": ["[secret]", "[secret][secret]"]}


def in_json(text: str) -> list[str]:
    """The text in the JSON of Python, of others, and of the tools of Kubernetes."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    kubectl = plain.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
    return [json.dumps(text)[1:-1], plain, kubectl]


@pytest.mark.parametrize(
    ("kubeconfig", "secret"),
    [
        ("token: token-x7k2q:l9kdw8\n", "token-x7k2q:l9kdw8"),
        ('{"token":"kubeconfig-u-x:token-z1234567"}', "kubeconfig-u-x:token-z1234567"),
        ("password: my-password-12\n", "my-password-12"),
        ('password: "abc,def}ghi jkl"\n', "abc,def}ghi jkl"),
        ("password: 'abc def ghi'\n", "abc def ghi"),
        ("password: it's,one}word\n", "it's,one}word"),
        ("user: {token: abcdefghij, x: 1}\n", "abcdefghij"),
        ("password: 'it''s-a-secret'\n", "it's-a-secret"),
        (r'{"password":"abc\u0026def-ghi"}', "abc&def-ghi"),
        ("token: |\n      eyJhbGciOiJSUzI1\n    x: y\n", "eyJhbGciOiJSUzI1"),
        ("token: >-\n  eyJhbGciOiJSUzI1\n", "eyJhbGciOiJSUzI1"),
        ("token: &mine eyJhbGciOiJSUzI1\n", "eyJhbGciOiJSUzI1"),
        ("client-key-data: |\r\n  LS0tLS1C\r\n  RUdJTg==\r\nx: y\n", "LS0tLS1C\nRUdJTg=="),
        ("client-key-data: |\n  LS0tLS1C\n  RUdJTg==\n", "LS0tLS1C\n  RUdJTg=="),
        ("env:\n- name: AWS_SECRET_ACCESS_KEY\n  value: wJalrXUtn\n", "wJalrXUtn"),
        ('"env":[{"name":"OS_PASSWORD","value":"open stack"}]', "open stack"),
        ("- --oidc-client-secret=k1-abcdef\n- --x\n", "k1-abcdef"),
        ("- --client-secret\n    - k2-abcdef\n", "k2-abcdef"),
        ('["--access-token", "k3-abcdef", "--x"]', "k3-abcdef"),
        ("proxy-url: http://me:p4-abcdef@proxy:3128\n", "p4-abcdef"),
    ],
)
def test_a_credential_of_a_kubeconfig_is_known_whatever_it_holds(
    kubeconfig: str, secret: str
) -> None:
    encoded = base64.b64encode(kubeconfig.encode()).decode()
    secrets = PlatformContext.model_validate({"kubeconfig": encoded}).secrets()
    assert mask(f"<{secret}>", secrets) == "<[secret]>"


@pytest.mark.parametrize(
    "kubeconfig",
    [
        "server: https://k8s.example:6443\nusername: administrator\ntokenFile: /run/a-token\n",
        "args:\n- eks\n- get-token\n- --cluster-name\n- production\n",
        "env:\n- name: AWS_PROFILE\n  value: production\n",
        "env:\n- name: TOKEN_FILE\n  value: /run/a-token\n",
        "command: oidc-login\nargs: [get-token, production, --no-token, --force-refresh]\n",
    ],
)
def test_what_is_no_credential_in_a_kubeconfig_is_not_masked(kubeconfig: str) -> None:
    encoded = base64.b64encode(kubeconfig.encode()).decode()
    secrets = PlatformContext.model_validate({"kubeconfig": encoded}).secrets()
    assert mask(kubeconfig, secrets) == kubeconfig


@pytest.mark.parametrize(
    "piece", ["-", "--token", "name: KEY", "token: |\n ", 'token: "', "token:", "://a:", " ", "k_"]
)
def test_a_long_kubeconfig_is_read_in_the_time_that_its_length_takes(piece: str) -> None:
    kubeconfig = piece * (1_000_000 // len(piece))
    start = time.process_time()
    list(in_kubeconfig(base64.b64encode(kubeconfig.encode()).decode()))
    # Quadratic time would take minutes.
    assert time.process_time() - start < 10


def test_a_kubeconfig_is_read_once_however_often_its_secrets_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def reading(encoded: str) -> Iterator[str]:
        read.append(encoded)
        yield encoded

    monkeypatch.setattr("sayso.wire.messages.in_kubeconfig", reading)
    stated = {"kubeconfig": "kube-12", "platform_token": "tok-1"}
    context, fresh = (PlatformContext.model_validate(stated) for _ in range(2))
    assert [[*context.secrets()] for _ in range(3)] == [["kube-12", "tok-1"]] * 3
    assert read == ["kube-12"]
    assert context == fresh and repr(context) == repr(fresh)
    assert context.model_dump_json() == fresh.model_dump_json()
    assert "kube-12" not in f"{vars(context)}"
    copied, pickled = copy.deepcopy(context), pickle.loads(pickle.dumps(context))
    assert [*copied.secrets()] == [*pickled.secrets()] == [*context.secrets()]
    context.kubeconfig = SecretStr("kube-67")
    other = context.model_copy(update={"kubeconfig": SecretStr("kube-ab")})
    assert [*context.secrets()] == ["kube-67", "tok-1"]
    assert [*other.secrets()] == ["kube-ab", "tok-1"]
    context.aws_credentials = {"key": "aws-1"}
    assert {*context.secrets()} == {"kube-67", "tok-1", "aws-1"}
    context.aws_credentials["key"] = "aws-2"
    assert {*context.secrets()} == {"kube-67", "tok-1", "aws-2"}


def test_thousands_of_secrets_are_masked_without_searching_the_text_for_each_of_them() -> None:
    keys = [f"key-{n}-{n * 7919:08x}" for n in range(20_000)]
    secrets = PlatformContext(aws_credentials={"keys": keys, "short": "abcd"}).secrets()
    text = f"{keys[7]}, {keys[4000]} and {keys[4000]} abcd " + "of a long output " * 60_000
    start = time.process_time()
    masked = mask({"said": [text, "nothing"], keys[1]: 1}, secrets)
    # One after another took several seconds.
    assert time.process_time() - start < 2
    assert masked["said"][0].startswith("[secret], [secret] and [secret] [secret] of a long")
    assert masked["said"][1:] == ["nothing"] and masked["[secret]"] == 1


@pytest.mark.parametrize("count", [101, 3000])
def test_to_mask_a_long_output_takes_little_more_memory_than_the_output(count: int) -> None:
    keys = [f"key-{n}-{n * 7919:08x}" for n in range(count)]
    text = "".join(f"{n:x} " for n in range(60_000)) + keys[7]
    tracemalloc.start()
    try:
        masked = mask(text, keys)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert masked == text.replace(keys[7], "[secret]")
    # A set of all its parts took a hundred times as much.
    assert most < 10 * len(text)


def test_region_among_credentials_is_no_secret() -> None:
    credentials = {
        "secret_access_key": "aws-12345",
        "region": "us-gov-west-1",
        "AWS_DEFAULT_REGION": "eu-north-1",
    }
    context = PlatformContext.model_validate({"aws_credentials": credentials})
    text = "aws-12345 us-gov-west-1 eu-north-1"
    assert mask(text, context.secrets()) == "[secret] us-gov-west-1 eu-north-1"


@pytest.mark.parametrize("name", ["password", "region", "Region"])
def test_password_that_looks_much_like_a_region_is_a_secret(name: str) -> None:
    word = "my-horse-42" if name == "password" else "my-horse-battery"
    context = PlatformContext.model_validate({"aws_credentials": {name: word}})
    assert mask(word, context.secrets()) == "[secret]"


def test_the_newest_platform_context_wins_field_by_field() -> None:
    def said(role: str, **context: Any) -> Message:
        return Message.model_validate(
            {"role": role, "content": "", "platform_context": context or None}
        )

    merged = platform_of(
        [
            said("user", tenant_name="one", user_id="u1"),
            said("assistant", tenant_name="ignored"),
            said("user"),
            said("user", tenant_name="two", user_id=None, zone="eu"),
        ]
    )
    # Clients that write their whole model send null for fields that they do not state.
    assert (merged.tenant_name, merged.user_id) == ("two", "u1")
    assert merged.model_dump(exclude_none=True).get("zone") == "eu"


def test_of_a_long_body_only_the_first_wrong_item_of_each_list_is_told() -> None:
    # Millions of errors took gigabytes, and a minute in which nobody else was answered.
    wrong = {"role": "user", "content": 1, "data": {"cmds": [{}] * 9000, "tool_calls": [1, 2]}}
    with pytest.raises(InvalidRequest) as refused:
        parse_request(body(user(), *[wrong] * 2))
    at = ["body", "messages", 1]
    assert [item["loc"] for item in refused.value.items] == [
        [*at, "content"],
        [*at, "data", "cmds", 0, "command"],
        [*at, "data", "tool_calls", 0],
    ]
    with pytest.raises(InvalidRequest) as refused:
        parse_request(body(*[user(None)] * 20))
    assert len(refused.value.items) == 20


def test_while_a_long_body_is_read_its_values_are_not_looked_through_for_garbage() -> None:
    # These once took most of the time for a body of millions of values, during which nobody is
    # answered.
    links = [{"url": ""}] * 50_000
    collected: list[str] = []
    gc.callbacks.append(lambda phase, info: collected.append(phase))
    try:
        request = parse_request(body(user(data={"url_configs": links}), ticket=None))
    finally:
        gc.callbacks.pop()
    assert len(request.messages[0].data.url_configs) == 50_000  # type: ignore[union-attr]
    assert collected.count("start") < 5
    assert gc.isenabled()


@pytest.mark.parametrize("history", [0, 2000], ids=["short", "long"])
def test_null_for_an_optional_field_says_nothing(history: int) -> None:
    call = {"id": "1", "name": "n", "input": {"a": None}}
    nulls = dict.fromkeys(["tool_description", "input_description", "intent", "rejection_reason"])
    data = {"tool_calls": [{**call, **nulls}], "cmds": None, "session": {"kept": None}}
    before = [user(data={"cmds": None, "executed_cmds": None})] * history
    request = parse_request(body(*before, user(data=data), source=None, ticket=None))
    plain = [user(data={})] * history
    assert request == parse_request(
        body(
            *plain,
            user(data={"tool_calls": [call], "session": {"kept": None}}),
            ticket=None,
        )
    )
    assert request.request_fields == {"ticket": None}


def test_null_for_a_required_field_is_called_null_beside_what_else_is_wrong() -> None:
    call = {"id": None, "name": "n", "input": None, "intent": None}
    wrong = user(content=None, data={"tool_calls": [call, None], "cmds": None}, timestamp=1)
    with pytest.raises(InvalidRequest) as refused:
        parse_request(body(wrong, source=None))
    at = ["body", "messages", 0]
    assert [(item["loc"], item["type"]) for item in refused.value.items] == [
        ([*at, "content"], "string_type"),
        ([*at, "data", "tool_calls", 0, "id"], "string_type"),
        ([*at, "data", "tool_calls", 0, "input"], "dict_type"),
        ([*at, "data", "tool_calls", 1], "model_type"),
        ([*at, "timestamp"], "timestamp"),
    ]
    with pytest.raises(InvalidRequest, match="Input should be an object"):
        parse_request(b'{"messages": [5], "source": null}')
    with pytest.raises(InvalidRequest):
        parse_request(b'{"messages": null}')


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1e0}, True),
        (0.0, -0.0, True),
        (1, True, False),
        ("1", 1, False),
        ([1, 2], [2, 1], False),
        (10**400, 10**400, True),
        (10**400, -(10**400), False),
        (None, False, False),
    ],
)
def test_inputs_are_compared_as_canonical_json(one: Any, other: Any, same: bool) -> None:
    assert (canonical(one) == canonical(other)) is same


def test_reply_of_user_code_may_have_a_datetime() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for reply in (
        AgentMessage.model_validate({"content": "x", "timestamp": moment}),
        AgentMessage(content="x", timestamp=moment),  # type: ignore[arg-type]
    ):
        assert reply.timestamp == "2026-01-02T03:04:05+00:00"
