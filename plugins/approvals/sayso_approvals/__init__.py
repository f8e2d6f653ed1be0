"""The inbox: JSON over HTTP to list pending calls, decide them and follow their changes.

    GET  /approvals                  a page of calls, filtered and sorted
    GET  /approvals/summary          how many there are of each open state
    GET  /approvals/events           their changes, as server-sent events
    GET  /approvals/log              the log, for auditors
    POST /approvals/decisions        several decisions
    POST /approvals/freeze           stop all starts, or let calls start again
    GET  /approvals/grants           the standing grants; a POST gives one
    DELETE /approvals/grants/{id}    revoke a grant
    GET  /approvals/{id}             one call, whole; `?wait=30` waits until it changes
    POST /approvals/{id}/decision    approve or reject it
    POST /approvals/{id}/comments    add a comment
    POST /approvals/{id}/withdraw    withdraw it

design, section 6, "People".
"""

from collections.abc import Mapping
from typing import Any

from starlette.routing import Route, Router

from sayso import Host, Plugin, hookimpl
from sayso_approvals.endpoint import Endpoint
from sayso_approvals.grants import GrantPaths
from sayso_approvals.inbox import Inbox

__all__ = ["Approvals"]


class Approvals(Plugin):
    """The JSON paths of the inbox; active when named in `plugins`."""

    name = "approvals"
    active_by_default = False
    decides_by_id = True

    @hookimpl
    def register_routes(self, host: Host) -> Router:
        """The router with all paths."""
        inbox, grants = Inbox(host), GrantPaths(host)
        paths = {
            "/approvals": {"GET": inbox.listed},
            "/approvals/summary": {"GET": inbox.summary},
            "/approvals/events": {"GET": inbox.events},
            "/approvals/log": {"GET": inbox.log},
            "/approvals/decisions": {"POST": inbox.decide_several},
            "/approvals/freeze": {"POST": inbox.freeze},
            "/approvals/grants": {"GET": grants.listed, "POST": grants.give},
            "/approvals/grants/{id}": {"DELETE": grants.revoke},
            "/approvals/{id}": {"GET": inbox.one},
            "/approvals/{id}/decision": {"POST": inbox.decide},
            "/approvals/{id}/comments": {"POST": inbox.comment},
            "/approvals/{id}/withdraw": {"POST": inbox.withdraw},
        }
        routes = [
            Route(path, Endpoint(host, handlers), methods=[*handlers])
            for path, handlers in paths.items()
        ]
        return Router(routes)

    def openapi_paths(self, host: Host) -> Mapping[str, Mapping[str, Any]]:
        """The operations of this plugin's routes."""
        from sayso_approvals.described import openapi_paths

        return openapi_paths()
