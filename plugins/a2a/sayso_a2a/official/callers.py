"""The caller in the form of the SDK, and the version of the protocol that they speak."""

from __future__ import annotations

from collections.abc import Mapping

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from starlette.requests import Request

from sayso import Caller, Host, RequestError, caller_of, check_access
from sayso_a2a.card import base_url
from sayso_a2a.incoming import PROTOCOL
from sayso_a2a.official.card import REST
from sayso_a2a.owners import owner_of, principal_of
from sayso_a2a.settings import Settings

_CALLER = "sayso.caller"
OVER_GRPC = "sayso.grpc"
"""The key in a call's state for whether it came over gRPC, where no body was looked at before."""
ELSEWHERE = "sayso.elsewhere"
"""The key in a call's state for whether it carries decisions made elsewhere."""
URL = "sayso.url"
"""The key in a call's state for the address at which the caller reached the service."""


class Principal(User):
    """The authenticated caller, who owns the tasks; without authentication all callers are one."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        """Whether the caller was authenticated."""
        return self._name is not None

    @property
    def user_name(self) -> str:
        """The owner of the caller's tasks; empty without authentication."""
        return owner_of(self._name)


class Contexts(DefaultServerCallContextBuilder):
    """Adds the authenticated caller, and the service's address as it was called, to each call."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def build(self, request: Request) -> ServerCallContext:
        """The context of one call."""
        context = super().build(request)
        context.state[_CALLER] = caller_of(request.scope, PROTOCOL)
        root = request.scope.get("root_path", "").partition(REST)[0]
        context.state[URL] = base_url({**request.scope, "root_path": root}, self._settings)
        return context

    def build_user(self, request: Request) -> Principal:
        """The caller, as Sayso's authentication determined it."""
        return Principal(caller_of(request.scope, PROTOCOL).principal)


def context_of(
    caller: Caller, headers: Mapping[str, str], extensions: set[str] | None = None
) -> ServerCallContext:
    """The context of a call that did not come over HTTP."""
    state = {_CALLER: caller, "headers": dict(headers)}
    return ServerCallContext(
        user=Principal(caller.principal), state=state, requested_extensions=extensions or set()
    )


def own_context(owner: str) -> ServerCallContext:
    """The context of a message that the service itself sends on a task of `owner`."""
    context = context_of(Caller(PROTOCOL, principal_of(owner)), {"a2a-version": "1.0"})
    context.state[ELSEWHERE] = True
    return context


def caller_in(context: ServerCallContext) -> Caller:
    """The caller, as the context builder stored it."""
    caller: Caller = context.state[_CALLER]
    return caller


def may_list(host: Host, context: ServerCallContext) -> bool:
    """Whether the caller may list tasks of every context: the ids in such a list allow to decide
    what waits, so the rule is that of the inbox (`check_access`)."""
    header = context.state["headers"].get("authorization")
    headers = [] if header is None else [(b"authorization", header.encode("latin-1", "replace"))]
    try:
        check_access(host, {"headers": headers})
    except RequestError:
        return False
    return True


def speaks_0_3(context: ServerCallContext) -> bool:
    """Whether the call is in A2A 0.3: it states that version, or none."""
    version: str = context.state["headers"].get("a2a-version", "").strip()
    return not version or version.startswith("0.")
