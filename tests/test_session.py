"""The session: its operations, its reserved key, and the values that may be stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from sayso.context import RESERVED, Session


class Pod(BaseModel):
    name: str
    ready: bool = True


@dataclass
class Node:
    name: str


class Owner(BaseModel):
    user_name: str = Field(alias="userName")


@dataclass
class Team:
    lead: Owner


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    node: Node
    since: date


def test_models_and_dataclasses_become_plain_objects() -> None:
    session = Session()
    session.set("pod", Pod(name="a"))
    session["node"] = Node("n")
    assert session.dump() == {"pod": {"name": "a", "ready": True}, "node": {"name": "n"}}
    assert session.get("pod", as_type=Pod) == Pod(name="a")
    assert session.get("node", as_type=Node) == Node("n")


@pytest.mark.parametrize(
    "value",
    [
        Owner(userName="Ann"),
        Team(Owner(userName="Ann")),
        Strict(node=Node("n"), since=date(2026, 1, 2)),
    ],
)
def test_a_model_with_aliases_or_strict_fields_is_read_back_as_it_was_set(value: Any) -> None:
    session = Session()
    session.set("value", value)
    assert session.get("value", as_type=type(value)) == value


def test_a_model_that_a_caller_wrote_by_its_aliases_is_read_too() -> None:
    session = Session({"owner": {"userName": "Ann"}})
    assert session.get("owner", as_type=Owner) == Owner(userName="Ann")


def test_get_has_a_default_and_delete_takes_what_is_not_there() -> None:
    session = Session({"a": 1})
    assert session.get("b", 2) == 2
    session.delete("b")
    session.delete("a")
    assert "a" not in session and session.dump() == {}


def test_update_and_clear() -> None:
    session = Session()
    session.update({"a": 1}, b=[2])
    assert dict(session) == {"a": 1, "b": [2]}
    session.clear()
    assert len(session) == 0


def test_what_is_added_to_a_default_that_was_set_stays() -> None:
    session = Session()
    session.setdefault("notes", []).append("first")
    session.setdefault("notes", []).append("second")
    assert session["notes"] == ["first", "second"]
    assert session.setdefault("node", Node("a")) == {"name": "a"}


def test_a_session_that_was_never_set_is_absent() -> None:
    assert Session().dump() is None
    assert Session({}).dump() == {}


def test_the_reserved_key_is_hidden_kept_by_clear_and_refused() -> None:
    session = Session({RESERVED: "key", "a": 1})
    assert dict(session) == {"a": 1} and session.shown() == {"a": 1}
    session.clear()
    assert session.dump() == {RESERVED: "key"}
    assert session.conversation == "key"
    with pytest.raises(ValueError, match="reserved"):
        session.set(RESERVED, "other")


@pytest.mark.parametrize("sent", [None, "", 5, ["key"], {"key": "key"}])
def test_what_is_no_key_under_the_reserved_one_is_as_none(sent: Any) -> None:
    session = Session({RESERVED: sent, "a": 1})
    assert session.conversation is None
    session.conversation = "made"
    assert session.dump() == {RESERVED: "made", "a": 1}


def test_what_is_no_json_value_is_refused() -> None:
    for value in (object(), b"\xff"):
        with pytest.raises(ValueError, match=r"the session value 'x' cannot become JSON .*; store"):
            Session().set("x", value)
    with pytest.raises(ValueError, match=r"the session value 'x' holds an integer of more than"):
        Session().set("x", [{"a": 10**4300}])
    with pytest.raises(ValueError, match=r"the session value 'x' has a key with half a surrogate"):
        Session().set("x", [{"a": {"half \ud83d": 1}}])


def test_a_session_is_read_while_other_tools_write() -> None:
    session = Session({"a": 1, "b": 2})
    for key in session:
        session[f"{key}-copy"] = session[key]
    assert [*session] == ["a", "b", "a-copy", "b-copy"]


@pytest.mark.parametrize("key", [5, None, True, ("a", 1)])
def test_key_that_would_come_back_as_another_is_refused(key: Any) -> None:
    session = Session({"a": 1})
    for store in (session.set, session.__setitem__, lambda k, v: session.update({k: v})):
        with pytest.raises(TypeError, match="must be text, not"):
            store(key, "value")
    assert dict(session) == {"a": 1}


def test_a_missing_key_raises_by_index() -> None:
    with pytest.raises(KeyError):
        Session()["a"]
