"""Calls and standing grants as the command line prints them; it gets them in the shape of the inbox
(`decisions.shapes`), from the store or from a running service."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sayso.wire.characters import escaped, visible

Json = Mapping[str, Any]
_WIDTH = 100
_PURGED = "(purged)"
_PLACE = ("tenant_name", "k8s_namespace", "platform_base_url")


def line_of(call: Json) -> str:
    """The call in one line: time, state, id, what it does, who asked and who decided."""
    parts = [f"{moment(call['created'])}  {call['state']:<13}  {call['id']}  {what(call)}"]
    context = (call.get("bound") or {}).get("context") or {}
    parts += [f"{name} {_plain(str(context[name]))}" for name in _PLACE if context.get(name)]
    if call.get("principal"):
        parts.append(f"asked by {_plain(call['principal'])}")
    if call.get("voted") and not call.get("decision"):
        parts.append(f"approved by {', '.join(_who(vote) for vote in call['voted'])}")
    if decision := call.get("decision"):
        parts.append(f"decided by {_who(decision)}")
    return "  ".join(parts)


def what(call: Json) -> str:
    """The tool with its input, or the command, in one short line."""
    if call.get("purged"):
        text = f"$ {_PURGED}" if call["type"] == "command" else f"{call['name']} {_PURGED}"
    elif call["type"] == "command":
        given = call.get("edited") or call.get("input") or {}
        text = f"$ {given.get('command') or call.get('input_begin')}"
    else:
        given = call.get("edited") or call.get("input")
        shown = json.dumps(given, ensure_ascii=False) if given is not None else call["input_begin"]
        text = f"{call['name']} {shown}"
    text = _plain(text)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def lines_of(call: Json) -> Iterator[str]:
    """The whole call for people, with its times; each value is on a line of its own."""
    for name, value in _facts(call):
        yield f"{name:<12} {value}"
    yield from _block("input", call.get("edited") or call.get("input"))
    if call.get("edited"):
        yield from _block("proposed input", call.get("input"))
    if call.get("bound"):
        yield from _block("bound", call["bound"])
    for comment in call.get("comments") or ():
        yield f"comment      {_name(comment)}, {moment(comment['at'])}: {_plain(comment['text'])}"
    if call.get("output") is not None:
        yield "output"
        yield from (f"  {line}" for line in visible(call["output"], strict=True).splitlines())
    for row in call.get("log") or ():
        who = f" by {_plain(str(row['who']))}" if row.get("who") else ""
        yield f"log          {moment(row['at'])}  {row['event']}{who}"


def _facts(call: Json) -> Iterator[tuple[str, str]]:
    yield "call", call["id"]
    yield "state", call["state"]
    yield "what", what(call)
    for name, label in (("description", "description"), ("intent", "intent")):
        if call.get(name):
            yield label, _plain(call[name])
    asked = [str(call[n]) for n in ("principal", "user", "client", "address") if call.get(n)]
    yield "asked", f"{_plain(', '.join(asked) or 'by nobody known')}, over {call['protocol']}"
    yield "proposed", moment(call["created"])
    yield "expires", moment(call["expires"])
    if call["revision"] > 1:
        yield "revision", str(call["revision"])
    yield "seen", call["seen"]
    if (votes := call["votes"])["needed"] > 1:
        yield "approvals", f"{votes['given']} of {votes['needed']}"
    for vote in call.get("voted") or ():
        yield "approved", f"{_name(vote)}, {moment(vote['at'])}, over {vote['protocol']}"
    if rule := call.get("rule"):
        yield "rule", _plain(_demands(rule))
    if decision := call.get("decision"):
        yield "decided", _plain(_decision(decision))
    if call.get("finished"):
        yield "finished", moment(call["finished"])


def _demands(rule: Json) -> str:
    said = [f"{rule['quorum']} of {', '.join(rule['approvers']) or 'those who may decide'}"]
    said += ["not the requester"] if rule["not_requester"] else []
    said += ["with a reason"] if rule["reason"] else []
    return ", ".join(said)


def _decision(decision: Json) -> str:
    verdict = "approved" if decision["approved"] else "rejected"
    said = f"{verdict} by {_name(decision)}, {moment(decision['at'])}, over {decision['protocol']}"
    said += f", by the standing grant {decision['grant']}" if decision.get("grant") else ""
    return said + (f": {decision['reason']}" if decision.get("reason") else "")


def grant_line(grant: Json) -> str:
    """The standing grant in one line."""
    pattern = "like " if grant["match"] == "pattern" else ""
    covers = f"{grant['tool']} {pattern}{json.dumps(grant['arguments'], ensure_ascii=False)}"
    place = "".join(f"  {name} {value}" for name, value in grant["context"].items())
    used = f"{grant['used']} of {grant['uses']} used"
    text = (
        f"{grant['state']:<8}  {grant['id']}  {covers}{place}  for {grant['holder']}  by "
        f"{_name(grant)}  {used}  until {moment(grant['ends'])}: {grant['reason']}"
    )
    return _plain(text)


def moment(text: str) -> str:
    """A time of the inbox, to the second."""
    return f"{text[:19].replace('T', ' ')}Z"


def as_json(value: Any) -> str:
    """Indented JSON in which every character can be seen."""
    return escaped(json.dumps(value, indent=2, ensure_ascii=False))


def _block(name: str, value: Any) -> Iterator[str]:
    yield name
    text = escaped(json.dumps(value, indent=2, ensure_ascii=False))
    yield from (f"  {line}" for line in text.splitlines())


def _who(said: Json) -> str:
    return _plain(str(said.get("who") or "somebody"))


def _name(said: Json) -> str:
    claimed = said.get("claimed") and said.get("who")
    return f"{_who(said)} (claimed)" if claimed else _who(said)


def _plain(text: str) -> str:
    """`text` in one line, without characters that people cannot see."""
    shown = visible(text, strict=True)
    return shown.replace("\n", "<U+000A>").replace("\t", "<U+0009>")
