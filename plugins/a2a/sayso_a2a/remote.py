"""Another A2A agent as tools of ours.

    agent = Agent(tools=[*remote_agent("https://billing.example", name="billing")])

The model talks to the other agent through `billing`. A call that is pending there can be approved
only through `billing_decide`, which is gated here: its proposal shows the remote call's name and
input, and the approval is sent with exactly these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload
from urllib.parse import SplitResult, unquote, urlsplit

from sayso import Session, Tool, ToolResult, tool
from sayso_a2a.link import Headers, Link, Sent


class RemoteAgent(Sequence[Tool]):
    """The two tools for another agent: one to talk to it, one to decide on its calls."""

    def __init__(self, url: str, name: str, description: str, link: Link) -> None:
        self.url = url
        self.name = name
        about = f"\n\n{description}" if description else ""
        decide_name = f"{name}_decide"
        origin = f"a2a:{url}"

        conversation = f"a2a:{name}"

        async def talk(message: str, session: Session, task: str | None = None) -> ToolResult:
            known = session.get(conversation)
            context = known if isinstance(known, str) else ""
            answer = await link.send(Sent(message, task, context))
            if answer.context != context:
                session[conversation] = answer.context
            return answer.result(decide_name)

        async def decide(
            task: str, id: str, name: str, input: dict[str, Any], reason: str | None = None
        ) -> ToolResult:
            decision = {"id": id, "name": name, "input": input, "execute": True}
            await link.check_waiting(task, decision)
            answer = await link.send(Sent("", task, decision=decision))
            return answer.result(decide_name)

        self._tools = (
            tool(
                talk,
                name=name,
                origin=origin,
                description=f"Ask the agent {name!r}. Give `task` to go on with a task of it that "
                "waits for input. It answers for itself; a call that waits there for a person's "
                f"decision is decided with {decide_name!r} only.{about}",
            ),
            tool(
                decide,
                name=decide_name,
                origin=origin,
                requires_approval=True,
                description=f"Approve a call that waits at the agent {name!r}: `task` and the "
                "call's `id`, `name` and `input` exactly as it stated them.",
            ),
        )

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tool]: ...
    def __getitem__(self, index: int | slice) -> Tool | Sequence[Tool]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"RemoteAgent({self.url!r}, name={self.name!r})"


def remote_agent(
    url: str,
    *,
    name: str = "remote",
    description: str = "",
    headers: Headers | None = None,
    timeout: float = 300.0,
) -> RemoteAgent:
    """The agent at `url` as two tools, `NAME` and the gated `NAME_decide`.

    - `url`: its address without a path to a card. The official card is asked for first, then the
      contract's.
    - `headers`: sent to that address only, as are a user and password in `url`. A function is
      called for each request.
    - `timeout`: in seconds, for each request and its whole answer, and after that for the end of a
      task that is still at work.

    The conversation there continues with the one here; its id is kept in the session. No request is
    made before a tool is called.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        # Do not show the address: it may contain a password even if only the scheme is wrong.
        raise ValueError("the address of a remote agent begins with http:// or https://")
    if parts.query or parts.fragment:
        # The card's path is appended to the address; errors name the address.
        raise ValueError("the address of a remote agent ends with its path; give a key in headers")
    if not 0 < timeout < math.inf:
        raise ValueError(f"remote_agent: timeout must be above 0 seconds, not {timeout!r}")
    # Errors and logs name the address, and its card names other addresses of the same agent.
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    link = Link(bare.rstrip("/"), headers, timeout, _credentials(parts))
    return RemoteAgent(bare, name, description, link)


def _credentials(parts: SplitResult) -> tuple[str, str] | None:
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")
