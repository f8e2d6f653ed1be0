"""An approved call starts a durable workflow on DBOS, over the PostgreSQL that has the ledger.

    agent = "sayso_dbos_workflow:agent"
    plugins = ["v2", "console", "dbos_workflow"]
    [approvals]
    ledger = "postgresql://ledger@db/ledger"

No engine runs the gated tool itself: engines run a step at least once, and the ledger runs a call
at most once. The tool only starts the workflow, under the id of its call. Starting it twice is
starting it once, so the tool may say that it is `idempotent`: if its process dies, the next
approval calls it again, and the workflow still runs once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSClient, DBOSConfig

from sayso import Agent, Host, Plugin, RequestContext, hookimpl, tool

logger = logging.getLogger("sayso_dbos_workflow")
QUEUE = "refunds"


@DBOS.step()
def pay_back(order: str, cents: int, key: str) -> str:
    """Pay the money back: a step that DBOS repeats after a crash, so pass your provider the key."""
    logger.info("paid back %d cents for %s (key %s)", cents, order, key)
    return f"payment {key}"


@DBOS.step()
def write_to_customer(order: str, payment: str) -> None:
    """Tell the customer."""
    logger.info("wrote about %s: %s", order, payment)


@DBOS.workflow()
def refund_order(order: str, cents: int) -> str:
    """Refund an order, step by step, to the end."""
    payment = pay_back(order, cents, f"refund-{DBOS.workflow_id}")
    write_to_customer(order, payment)
    return payment


@tool(requires_approval=True, idempotent=True)
def refund(order: str, cents: int, context: RequestContext) -> str:
    """Refund an order.

    Args:
        order: Number of the order.
        cents: Amount in cents.
    """
    started = Workflows.client.enqueue(
        {
            "workflow_name": refund_order.__qualname__,
            "queue_name": QUEUE,
            "workflow_id": context.call_id,
        },
        order,
        cents,
    )
    return f"The refund of {order} has started; its id is {started.workflow_id}."


@tool(read_only=True)
def refund_state(id: str) -> str:
    """How far a refund is.

    Args:
        id: The id of the refund.
    """
    return Workflows.client.retrieve_workflow(id).get_status().status


class Workflows(Plugin):
    """The engine, once a service, and its client in each process that runs tools."""

    name = "dbos_workflow"
    active_by_default = False
    own_process = True
    client: DBOSClient

    class Settings(Plugin.Settings):
        """The keys of `[plugin.dbos_workflow]`."""

        schema_name: str = "dbos"
        """The schema with DBOS's tables, beside those of the ledger."""

    @hookimpl
    @asynccontextmanager
    async def lifespan(self, host: Host) -> AsyncIterator[None]:
        """Run the workflows, first those that a dead process left behind."""
        config: DBOSConfig = {
            "name": "refunds",
            "system_database_url": host.config.approvals.ledger,
            "dbos_system_schema": self.settings.schema_name,
            # Each machine resumes its own workflows.
            "executor_id": socket.gethostname(),
        }
        DBOS(config=config)
        await asyncio.to_thread(_launch)
        try:
            yield
        finally:
            await asyncio.to_thread(DBOS.destroy)

    @hookimpl
    @asynccontextmanager
    async def resources(self, host: Host) -> AsyncIterator[None]:
        """A client for the tools."""
        Workflows.client = DBOSClient(
            system_database_url=host.config.approvals.ledger,
            dbos_system_schema=self.settings.schema_name,
            lazy=True,
        )
        try:
            yield
        finally:
            await asyncio.to_thread(Workflows.client.destroy)


def _launch() -> None:
    DBOS.launch()
    DBOS.register_queue(QUEUE)


agent = Agent(
    name="refunds",
    description="Refunds orders, once somebody has approved it",
    model="offline",
    tools=[refund, refund_state],
)
