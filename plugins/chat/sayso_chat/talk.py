"""One conversation from the caller's side: history, session, and pending calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from sayso import visible
from sayso_chat.client import Client, Json

NO_REASON = "rejected without a reason"

_LISTS = {
    "tool_calls": "tool_calls",
    "commands": "cmds",
    "approvals": "approvals",
    "executed_tool_calls": "executed_tool_calls",
    "executed_commands": "executed_cmds",
    "executed_approvals": "executed_approvals",
}
"""The list events, and the field of Data for each."""

_PROPOSED = ("tool_calls", "cmds")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A pending tool call or command, as the service stated it."""

    kind: str
    stated: Json = field(hash=False)
    approval: Json = field(hash=False, default_factory=dict)
    """The same call as `approvals` states it: with what an approval binds, its preview, whether its
    input may be changed, and the approvals so far."""

    @property
    def is_command(self) -> bool:
        """Whether it is a terminal command."""
        return self.kind == "cmds"

    @property
    def editable(self) -> bool | list[str]:
        """The parameters that its approver may change; true means all."""
        found = self.approval.get("editable")
        return [str(name) for name in found] if isinstance(found, list) else found is True

    def approved(self, edited: Json | None = None) -> Json:
        """The object that the caller sends back to approve it, with `edited` as its input."""
        changed = {} if edited is None else {"input": edited}
        return {**self.stated, **changed, "execute": True}

    def rejected(self, reason: str) -> Json:
        """The object that the caller sends back to reject it."""
        return {**self.stated, "execute": False, "rejection_reason": reason or NO_REASON}


Events = Generator[Json, None, None]
"""The events of a turn as they arrive; closing it cancels the turn."""

Decision = tuple[Proposal, Json]
"""A proposal, and the object to send back: `approved()` or `rejected(reason)`."""


class Talk:
    """A conversation with a service; a turn that failed or was cancelled leaves it unchanged.

    `user` is the name of the speaker, `source` the request's `source` (interface.md,
    "ChatRequest"). `keep` gets all that a later `go_on` needs, after each turn.
    """

    def __init__(
        self,
        client: Client,
        *,
        user: str | None = None,
        source: str | None = None,
        keep: Callable[[Json], object] | None = None,
    ) -> None:
        self._client = client
        self._keeper = keep
        self._user = user
        self._fields = {} if source is None else {"source": source}
        self.messages: list[Json] = []
        self.pending: list[Proposal] = []
        self._session: Json | None = None

    def go_on(self, kept: Json) -> bool:
        """Go on with a conversation that was kept; false, and nothing changes, if it is none."""
        try:
            messages, session = [{**one} for one in kept["messages"]], kept["session"]
            pending = [
                Proposal(str(kind), {**one}, {**more}) for kind, one, more in kept["pending"]
            ]
        except (KeyError, TypeError, ValueError):
            return False
        self.messages, self._session, self.pending = messages, session, pending
        return bool(messages)

    def say(self, content: str) -> Events:
        """The events of the turn that answers a text."""
        return self.send({"content": content})

    def decide(self, decisions: Sequence[Decision]) -> Events:
        """The events of the turn that decisions resume."""
        data: dict[str, list[Json]] = {}
        for proposal, sent in decisions:
            data.setdefault(proposal.kind, []).append(sent)
        return self.send({"content": "", "data": data})

    def decide_aside(self, decision: Json) -> Json:
        """Decide on a call for which the running turn waits, in a request of its own; the first
        event that says how it went.

        The call is no part of this conversation, so the answer to the decision is not read.
        """
        whole = self._from_user({"data": {"approvals": [decision]}})
        with closing(self._client.turn([whole], self._fields)) as events:
            return next((e for e in events if e.get("type") != "intermittent_update"), {})

    def _from_user(self, message: Mapping[str, Any]) -> Json:
        whole: Json = {"role": "user", "content": "", **message}
        if self._user is not None:
            whole.setdefault("user", {"name": self._user, "id": self._user})
        return whole

    def send(self, message: Mapping[str, Any]) -> Events:
        """The events of the turn that answers `message`, a user message in the contract's form."""
        whole = self._from_user(message)
        if self._session is not None:
            whole["data"] = {"session": self._session, **(whole.get("data") or {})}
        reply = _Reply()
        with closing(self._client.turn([*self.messages, whole], self._fields)) as events:
            for event in events:
                reply.take(event)
                yield event
        if reply.ended_well:
            self._keep(whole, reply)

    def _keep(self, message: Json, reply: _Reply) -> None:
        self.messages += [message, {"role": "assistant", "content": reply.text, "data": reply.data}]
        self._session = reply.data.get("session", self._session)
        items = reply.data.get("approvals") or []
        approvals = {item.get("id"): item for item in items}
        new = [
            replace(proposal, approval=approvals.get(proposal.stated.get("id"), {}))
            for kind in _PROPOSED
            for proposal in _waiting(kind, reply.data.get(kind))
        ]
        known = {_key(proposal.stated) for proposal in new}
        sent = message.get("data") or {}
        decided = [*(sent.get("cmds") or ()), *(sent.get("approvals") or ())]
        known |= {_key(item) for item in decided}
        # A text leaves commands open, and the service does not restate them.
        open_ones = [p for p in self.pending if p.is_command and _key(p.stated) not in known]
        self.pending = open_ones + new
        if self._keeper is not None:
            pending = [[one.kind, one.stated, one.approval] for one in self.pending]
            self._keeper({"messages": self.messages, "session": self._session, "pending": pending})


class _Reply:
    """The reply made from the events of a turn."""

    def __init__(self) -> None:
        self.text = ""
        self.data: Json = {}
        self.ended_well = False

    def take(self, event: Json) -> None:
        match event.get("type"):
            case "text_delta":
                self.text += str(event.get("text", ""))
            case "done":
                self.ended_well = True
                self.data |= event.get("data") or {}
                if "session" in event:
                    self.data["session"] = event["session"]
            case str(kind) if kind in _LISTS:
                self.data[_LISTS[kind]] = listed(event, kind)


def listed(event: Mapping[str, Any], kind: str) -> list[Json]:
    """The objects that an event of a list kind carries."""
    name = "executed_cmds" if kind == "executed_commands" else kind
    items = event.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def stated(event: Mapping[str, Any]) -> list[Proposal]:
    """The proposals that an event states; `approvals` states the same ones as `tool_calls` and
    `commands`."""
    kind = str(event.get("type"))
    if kind not in ("tool_calls", "commands"):
        return []
    return list(_waiting(_LISTS[kind], listed(event, kind)))


def waits_for(event: Mapping[str, Any]) -> Proposal | None:
    """The call on which a person has to decide while the turn runs: a tool waits for it. Only its
    id is known."""
    content = event.get("content")
    id_ = content.get("approval") if isinstance(content, dict) else None
    return Proposal("approvals", {"id": id_}) if isinstance(id_, str) else None


def elsewhere(call: Proposal) -> str:
    """The sentence that tells a person how to decide on a call that this chat does not show."""
    id_ = visible(str(call.stated["id"]), strict=True)
    return (
        f"the turn waits for a decision on {id_}; make it on the console, or in another terminal "
        f"with: sayso approvals show {id_}, then sayso approvals approve {id_}"
    )


def _waiting(kind: str, items: Sequence[Json] | None) -> Iterator[Proposal]:
    yield from (Proposal(kind, item) for item in items or () if not item.get("execute"))


def _key(command: Mapping[str, Any]) -> str:
    return str(command.get("id") or command.get("command"))
