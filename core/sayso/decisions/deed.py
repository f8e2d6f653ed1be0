"""The deed of an approval: what a proposal binds (the call, its place and its requester), and
whether the call is still the same when it starts (design, section 6, "The deed").
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from sayso.agent import Agent
from sayso.commands.identity import shell_deed
from sayso.context import Caller, RequestContext
from sayso.ledger import Proposal, new_id
from sayso.ledger.choices import WAITS, Hinders, Requester
from sayso.policy import Policy, forbidden
from sayso.principals import person_of, proven_tenant
from sayso.tools import Tool
from sayso.tools.inputs import recorded
from sayso.wire.json_bytes import json_values
from sayso.wire.masking import MASK, mask_apart
from sayso.wire.messages import Kind, PlatformContext

_TOOL_CHANGED = (
    "the tool {!r} of this service has changed since the call was proposed; it has not run: ask "
    "for the call again"
)
_SHELL_CHANGED = (
    "the shell's settings or its folder have changed since the command was proposed; it has not "
    "run: ask for the command again"
)


def tool_deed(tool: Tool[..., Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a proposal to call `tool`; raises ToolInputError for wrong input.

    It calls validators, which are user code, so no event loop may call it.
    """
    found = recorded(tool, sent)
    return {
        "kind": "tool_call",
        "name": tool.name,
        "input": found.input,
        "sent": None if found.input == sent else dict(sent),
        "description": tool.description,
        "input_description": found.described(tool.input_description),
        "idempotent": tool.idempotent,
        "tool": tool.digest,
        "source": tool.origin,
        "preview": tool.previewed(found.input),
    }


def hinders(agent: Agent, policy: Policy, context: RequestContext) -> Hinders:
    """The check that keeps this request from starting a call if the call would do something else
    here than was proposed, if the request lacks something that the call needs, or if a newer rule
    forbids a call of a callable."""

    @cache
    def now() -> Mapping[str, Any]:
        # Most requests start nothing, and reading a kubeconfig takes as long as a small turn.
        return place(context.stated_platform)

    def check(row: Proposal) -> tuple[str, str] | None:
        # All other calls are looked at where they start.
        if agent.function is not None and policy.forbids(
            row.name, row.input, context.stated_platform
        ):
            return "approval_not_allowed", forbidden(row.name)
        return changed(agent, now(), row)

    return check


def changed(agent: Agent, now: Mapping[str, Any], row: Proposal) -> tuple[str, str] | None:
    """The reason why the call must not start here and now, as an error type, or WAITS, and a
    message; None if it may start. `now` is the place of this request."""
    if _is_another(agent, row):
        text = _SHELL_CHANGED if row.kind == "command" else _TOOL_CHANGED.format(row.name)
        return "approval_tool_changed", text
    if row.context is None:
        return None
    if names := differs(row.context, now):
        return "approval_context_changed", (
            f"the request states another {_listed(names)} than the one in which {row.name!r} was "
            "proposed; it has not run"
        )
    needed = [name for name in missing(row.context, now) if _needs(agent, row, name)]
    if needed:
        return WAITS, (
            f"{row.name!r} has not run: it needs {_listed(needed)} of the platform context again; "
            "send it once more with the decision."
        )
    return None


def acting(row: Proposal, context: RequestContext) -> RequestContext:
    """The context that the call of `row` gets: the approved values, in the request that starts
    it."""
    return context if row.context is None else _acting(row.context, context)


def carrying_out(rows: Iterable[Proposal], context: RequestContext) -> RequestContext:
    """The context of a callable that carries out all these calls. It has the approved values that
    are the same for all of them; for the others, each call has its own context
    (`DecidedCall.platform`)."""
    found = [row.context for row in rows if row.context is not None]
    if not found:
        return context
    first, *others = found
    shared = {n: value for n, value in first.items() if all(o.get(n) == value for o in others)}
    return _acting(shared, context)


def platform_of_call(row: Proposal, context: RequestContext) -> PlatformContext | None:
    """The platform context that was approved with the call."""
    stated = context.stated_platform
    if row.context is None:
        return stated
    return restored(row.context, stated or PlatformContext())


def _acting(recorded: Mapping[str, Any], context: RequestContext) -> RequestContext:
    stated = context.stated_platform or PlatformContext()
    platform = restored(recorded, stated)
    if platform is stated:
        return context
    made = RequestContext(
        platform=platform,
        request_fields=context.request_fields,
        source=context.source,
        session=context.session,
        principal=context.principal,
        protocol=context.protocol,
        decisions=context.decisions,
        has_decision=context.has_decision,
        _send=context._send,
    )
    made._additions = context._additions
    return made


def _is_another(agent: Agent, row: Proposal) -> bool:
    if not row.tool:
        return False
    if row.kind == "command":
        return shell_deed(agent.commands).get("tool") != row.tool
    tool = agent.tools.get(row.name)
    return tool is None or tool.digest != row.tool


def _needs(agent: Agent, row: Proposal, credential: str) -> bool:
    """Whether the call can read the credential; a request need not send one that the call cannot
    read."""
    if row.kind == "command":
        shell = agent.commands
        return shell is not None and (shell.reads_context or credential == "kubeconfig")
    if agent.function is not None:
        return agent.argument_count > 1
    tool = agent.tools.get(row.name)
    return tool is not None and tool.reads_context


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


# The place of a call: the parts of the platform context that an approval binds (design, section 6,
# "The deed": "Context"). A client may renew credentials, but not change what they give access to.
PLAIN = ("tenant_name", "k8s_namespace", "platform_base_url")
CREDENTIALS = ("platform_token", "kubeconfig", "aws_credentials")
_AWS = {
    "region": ("region", "awsregion", "awsdefaultregion", "defaultregion", "regionname"),
    "role": ("role", "rolearn", "awsrole", "awsrolearn", "assumerolearn"),
    "endpoint": ("endpoint", "endpointurl", "awsendpoint", "awsendpointurl"),
    "account": ("account", "accountid", "awsaccount", "awsaccountid"),
}
_OF_AWS = {alias: name for name, aliases in _AWS.items() for alias in aliases}
_CLUSTER = re.compile(
    r"""
    ["']?\b(server|certificate-authority-data|certificate-authority|insecure-skip-tls-verify
        |proxy-url|tls-server-name|namespace|current-context)["']?\s*:\s*
    ("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s,}\]\#]+)
    """,
    re.VERBOSE,
)
_LINE = re.compile(
    r"""[ ]*(?:-[ ]+)*(?:[\w./-]+:(?:[ ]+|$))?
    (?:"[^"\\]*"|'[^']*'|\{\}|\[\]|[\w/+.-][^"'{}\[\]\#&*!|>\\]*)?[ ]*|[ ]*\#.*""",
    re.VERBOSE,
)
"""A line as tools write kubeconfigs; in a file of such lines a key in the first column is one."""
_USERS = re.compile(r"^users:.*\n?(?:(?:[ ]|-[ ]).*\n?)*", re.MULTILINE)
_HIDES = re.compile(r"\\[xuU\r\n]|(?:^|[\s\[{,:?-])[&*!|>]|<<\s*:", re.MULTILINE)
"""Escapes, anchors, tags and blocks of YAML; this code does not read the values behind them."""


def place(platform: PlatformContext | None) -> dict[str, Any]:
    """The fields of this request's context that a proposal binds and shows.

    A credential is represented by the things that it gives access to; `user_id` is only shown.
    """
    if platform is None:
        return {}
    found: dict[str, Any] = {
        name: value for name in ("user_id", *PLAIN) if (value := getattr(platform, name))
    }
    if "platform_base_url" in found:
        found["platform_base_url"] = _without_user(found["platform_base_url"])
    if platform.platform_token:
        found["platform_token"] = {}
    if platform.kubeconfig:
        found["kubeconfig"] = _cluster(platform.kubeconfig.get_secret_value())
    if platform.aws_credentials:
        found["aws_credentials"] = _account(platform.aws_credentials)
    secrets = platform.secrets()
    return mask_apart(found, secrets) if secrets else found


def differs(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The fields that both contexts state with different values."""
    found = [name for name in PLAIN if name in recorded and name in now]
    changed = [name for name in found if recorded[name] != now[name]]
    one, other = recorded.get("kubeconfig"), now.get("kubeconfig")
    if one is not None and other is not None:
        # Earlier versions recorded no digest.
        known = other if "digest" in one else {n: v for n, v in other.items() if n != "digest"}
        changed += [] if one == known else ["kubeconfig"]
    one, other = recorded.get("aws_credentials", {}), now.get("aws_credentials", {})
    changed += [f"aws_credentials.{n}" for n in one if n in other and one[n] != other[n]]
    return changed


def missing(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The fields without a recorded value that were present when the call was proposed and are
    absent now: credentials, and fields that hold a secret."""
    found = [n for n in CREDENTIALS if n in recorded and n not in now]
    found += [n for n in PLAIN if n not in now and MASK in recorded.get(n, "")]
    one, other = (each.get("aws_credentials", {}) for each in (recorded, now))
    hidden = (n for n in one if n not in other and MASK in str(one[n]))
    return found + [f"aws_credentials.{n}" for n in hidden if "aws_credentials" in now]


def restored(recorded: Mapping[str, Any], platform: PlatformContext) -> PlatformContext:
    """The context that the call gets: it has the recorded values, and lacks what was absent when
    the call was proposed."""
    changes: dict[str, Any] = {}
    for name in PLAIN:
        value = getattr(platform, name)
        if name not in recorded and value is not None:
            changes[name] = None
        elif name in recorded and not value:
            changes[name] = recorded[name]
    changes |= {
        name: None
        for name in CREDENTIALS
        if name not in recorded and getattr(platform, name) is not None
    }
    if "aws_credentials" in recorded and platform.aws_credentials:
        stated = _restored_account(recorded["aws_credentials"], platform.aws_credentials)
        if stated != platform.aws_credentials:
            changes["aws_credentials"] = stated
    return platform.model_copy(update=changes) if changes else platform


def _without_user(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in url else url


def _cluster(encoded: str) -> dict[str, Any]:
    """The fields of a kubeconfig that say what it gives access to, and the digest of all but its
    users: a field with the same value may stand where it has no effect."""
    try:
        text = base64.b64decode("".join(encoded.split()), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return {"digest": _digest(encoded)}
    found: dict[str, Any] = {}
    digest = {"digest": _digest(_without_users(text))}
    if _HIDES.search(text):
        return digest
    for named in _CLUSTER.finditer(text):
        name, value = named[1], named[2].strip("\"'")
        if name == "certificate-authority-data":
            name, value = "certificate-authority", f"sha256:{_digest(value)}"
        found.setdefault(name, []).append(_without_user(value))
    shown = {name: values[0] if len(values) == 1 else values for name, values in found.items()}
    return shown | digest


def _without_users(text: str) -> str:
    """A kubeconfig without its users, whose credentials may be renewed; the whole of one that does
    not show plainly where they end."""
    with suppress(ValueError, RecursionError):
        top = json.loads(text, object_pairs_hook=list)
        if isinstance(top, list):
            return str([each for each in top if each[0] != "users"])
    plain = text.isascii() and all(map(_LINE.fullmatch, text.split("\n")))
    return _USERS.sub("", text) if plain else text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _account(credentials: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are bound. One that is stated under several names has all of them: the tool
    may read any."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in credentials.items():
        name = _OF_AWS.get(_plain(key))
        if name is not None and value not in (None, ""):
            shown = value if isinstance(value, str | int) else str(value)
            found.setdefault(name, {})[str(key)] = shown
    return {n: keys if len(keys) > 1 else next(iter(keys.values())) for n, keys in found.items()}


def _restored_account(
    recorded: Mapping[str, Any], credentials: Mapping[str, Any]
) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in credentials.items()
        if (name := _OF_AWS.get(_plain(key))) is None or name in recorded
    }
    stated = {_OF_AWS.get(_plain(key)) for key, value in kept.items() if value not in (None, "")}
    for name, value in recorded.items():
        if name not in stated:
            kept |= value if isinstance(value, dict) else {name: value}
    return kept


def _plain(key: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(key).lower())


_TEXTS = ("name", "description", "input_description", "intent", "preview")
"""The fields that the approver reads next to the input."""


_LONGEST_INTENT = 500
"""Characters of an intent that are kept: one sentence, for a list of cards."""


def requester(caller: Caller, tenant: str | None = None, user: str | None = None) -> Requester:
    """The requester; the messages claim `tenant` and `user`, and a proven tenant replaces the
    claimed one."""
    tenant = proven_tenant(caller.principal) or tenant
    return Requester(caller.principal, tenant, user, caller.protocol, caller.address, caller.client)


def needs_caller(agent: Agent, kind: Kind, name: str) -> bool:
    """Whether a call can read something of the request that starts it, so that only its caller may
    start it. A callable carries out its calls itself, in a conversation."""
    if agent.function is not None:
        return True
    if kind == "command":
        # A shell of the author's own may read anything, unless it says that it does not.
        return agent.commands is None or getattr(agent.commands, "reads_context", True)
    tool = agent.tools.get(name)
    return tool is None or tool.needs_caller


def stands_alone(
    agent: Agent,
    kind: Kind,
    name: str,
    platform: PlatformContext | None,
    fields: Mapping[str, Any],
) -> bool:
    """Whether a call needs nothing of the request that proposes it, so that it may start without
    that request: neither the tool's function nor a hook could miss a field of the request."""
    if needs_caller(agent, kind, name) or fields:
        return False
    if platform is None:
        return True
    stated = {**platform.model_dump(mode="python"), **(platform.model_extra or {})}
    return {name for name, value in stated.items() if value} <= {"user_id", *PLAIN}


def proposal(who: Requester, **fields: Any) -> Proposal:
    """A proposal for `who`; the ledger sets its times when it records it."""
    # Record texts in the form in which they can be sent, so that lists of proposals can be
    # written.
    fields |= {name: json_values(fields[name]) for name in _TEXTS if name in fields}
    if intent := fields.get("intent"):
        fields["intent"] = intent[:_LONGEST_INTENT]
    own: dict[str, Any] = {"turn": "", "index": 0, "created": 0.0, "expires": 0.0}
    own["person"] = person_of(who.principal)
    return Proposal(id=new_id(), **own | who._asdict() | fields)
