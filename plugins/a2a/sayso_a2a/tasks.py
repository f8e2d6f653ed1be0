"""The tasks of the simple adapter, and their turns: each is a turn of the host."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Sequence
from functools import partial

from sayso import (
    Approval,
    Caller,
    ChatRequest,
    Data,
    ErrorEvent,
    Host,
    InvalidRequest,
    Message,
    RequestError,
)
from sayso_a2a.artifacts import Json
from sayso_a2a.incoming import PROTOCOL, Incoming
from sayso_a2a.owners import owner_of, principal_of
from sayso_a2a.refusals import NotDecidedHere, TaskBusy, TaskUnknown, refusal_of
from sayso_a2a.rows import Row, TaskStore
from sayso_a2a.settings import Approvals
from sayso_a2a.task import (
    BUSY,
    LEASE,
    Task,
    denied,
    ended,
    left_waiting,
    now,
    proposals_of,
    task_of,
    with_outcomes,
)
from sayso_a2a.turned import Turned
from sayso_a2a.waiting import CANCELED, DENIED, decided_elsewhere, started, withdraw
from sayso_a2a.watching import LOOK_EVERY, Looks, Watch

logger = logging.getLogger("sayso.a2a")


class Tasks:
    """Begins, continues, shows and cancels tasks; every turn is the host's."""

    def __init__(self, host: Host, rows: TaskStore, approvals: Approvals) -> None:
        self._host = host
        self._rows = rows
        self._approvals = approvals
        self._watch = Watch(host, self._decided)
        self._watching: asyncio.Task[None] | None = None
        self._runs: dict[str, asyncio.Task[Task]] = {}
        self._closing = False

    async def open(self) -> None:
        """Open the store, and watch the tasks that others decide on."""
        await self._rows.open()
        self._watching = asyncio.ensure_future(self._watch_those_left())

    async def close(self) -> None:
        """End running tasks, as failed, and close the store."""
        self._closing = True
        if self._watching is not None:
            self._watching.cancel()
        await self._watch.aclose()
        runs = list(self._runs.values())
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        await self._rows.close()

    async def look(self, owner: str, id: str) -> Task:
        """The task. Raises TaskUnknown, also for another owner's."""
        task = task_of(await self._rows.get(owner, id), self._runs)
        if task is None:
            raise TaskUnknown
        return await self._with_outcomes(task)

    async def send(
        self,
        caller: Caller,
        id: str | None,
        text: str,
        data: Data | None,
        *,
        keep: bool,
        elsewhere: bool = False,
    ) -> tuple[Task, asyncio.Task[Task]]:
        """The task as it begins this turn, and the run that ends with the task after the turn.

        Raises TaskUnknown, TaskBusy, InvalidRequest, or NotDecidedHere unless the decisions were
        made `elsewhere`. The run raises RequestError if the turn is refused; the task is then
        restored, and with `keep` carries the error.
        """
        message = Message(role="user", content=text, data=data)
        if _decides(message) and self._approvals != "client" and not elsewhere:
            raise NotDecidedHere(decided_elsewhere(self._approvals))
        task = Task(id=id or secrets.token_hex(16), owner=owner_of(caller.principal))
        before, started = await self._claim(task, message, new=id is None, at_once=keep)
        self._watch.end(started.id)
        work = self._run(started, before if id is not None else None, caller, keep)
        run = self._runs[started.run] = asyncio.ensure_future(self._watched(work, again=elsewhere))
        run.add_done_callback(partial(self._forget, started.run))
        return started, run

    async def _watched(self, run: Awaitable[Task], *, again: bool) -> Task:
        """The task after its run; a waiting one continues once others have decided."""
        after = await run
        if after.status == "input-required":
            ids = [proposal.id for proposal in proposals_of(after.messages)]
            await self._watch.begin(after.id, after.owner, ids, again=again)
        return after

    async def _watch_those_left(self) -> None:
        looks = Looks()
        while True:
            try:
                since = int(looks.since() * 1e9)
                for row in await self._rows.silent(["input-required"], since):
                    task = Task.model_validate_json(row.body)
                    ids = [proposal.id for proposal in proposals_of(task.messages)]
                    self._watch.take_up(task.id, task.owner, ids)
            except Exception:
                logger.exception("the tasks that wait could not be looked through")
            await asyncio.sleep(LOOK_EVERY)

    async def _decided(self, owner: str, id: str, decisions: list[Json]) -> None:
        """Continue a task whose calls were decided elsewhere, unless somebody else has."""
        caller = Caller(PROTOCOL, principal_of(owner))
        try:
            if (await self.look(owner, id)).status == "input-required":
                data = Data.model_validate({"approvals": decisions})
                _, run = await self.send(caller, id, "", data, keep=True, elsewhere=True)
                await asyncio.wait({run})
        except RequestError as error:
            logger.info("task %s does not go on by itself: %s", id, error)

    async def _with_outcomes(self, task: Task) -> Task:
        """The task; a canceled one with the outcomes of calls that still ran when it was
        canceled."""
        ids = task.metadata.get("running")
        if task.status != "canceled" or not ids:
            return task
        rows = await started(self._host, Caller(PROTOCOL, principal_of(task.owner)), ids)
        if any(row.state == "EXECUTING" for row in rows):
            return task
        return await self._write(task, with_outcomes(task, rows))

    def _forget(self, name: str, run: asyncio.Task[Task]) -> None:
        self._runs.pop(name, None)
        if run.cancelled() or (error := run.exception()) is None:
            return
        if not isinstance(error, RequestError):
            logger.error("the run of a task failed", exc_info=error)

    async def _claim(
        self, task: Task, message: Message, *, new: bool, at_once: bool
    ) -> tuple[Task, Task]:
        """The task as it was just before this turn, and as it begins the turn."""
        claimed: list[tuple[Task, Task]] = []
        most = self._host.config.limits.messages

        def change(row: Row | None) -> Row:
            current = task if new else task_of(row, self._runs)
            if current is None:
                raise TaskUnknown
            if not new:
                _check_free(current)
            if len(current.messages) >= most:
                raise InvalidRequest.at(
                    ["body", "message"], "too_long", f"the task has {most} messages already"
                )
            started = current.model_copy(
                update={
                    "status": "pending" if at_once else "running",
                    "messages": [*current.messages, message],
                    "error": None,
                    "run": secrets.token_hex(8),
                    "text": "",
                    "metadata": {
                        "created": current.metadata.get("created", now()),
                        "updated": now(),
                    },
                }
            )
            claimed[:] = [(current, started)]
            return started.row()

        await self._rows.change(task.owner, task.id, change)
        return claimed[0]

    async def _run(self, task: Task, before: Task | None, caller: Caller, keep: bool) -> Task:
        watch = asyncio.ensure_future(self._keep_alive(task))
        try:
            turned = await self._turn(task, caller)
            known = proposals_of(before.messages) if before is not None else []
            waiting = await left_open(self._host, caller, turned, known)
        except asyncio.CancelledError:
            stopped = self._stopped(task, before)
            await asyncio.shield(self._write(task, stopped))
            if stopped.status == "canceled":
                proposed = proposals_of(task.messages)
                await asyncio.shield(withdraw(self._host, caller, proposed, CANCELED))
            raise
        except BaseException:
            error = {"message": "the task could not be run", "code": "AGENT_ERROR"}
            failed = task.model_copy(update={"status": "failed", "run": "", "error": error})
            await asyncio.shield(self._write(task, failed))
            raise
        finally:
            watch.cancel()
        # The turn has ended; a cancellation from now on does not change that.
        if turned.refused and turned.error is not None:
            await asyncio.shield(self._put_back(task, before, turned.error, keep))
            pending = [p.id for p in proposals_of(task.messages)]
            raise refusal_of(turned.error, pending, turned.failure)
        after = ended(task, turned)
        if before is not None and waiting:
            after = left_waiting(before, turned, waiting)
        proposed = proposals_of(after.messages) if after.status == "input-required" else []
        if proposed and self._approvals == "deny":
            await withdraw(self._host, caller, proposed, DENIED)
            after = denied(after)
        return await asyncio.shield(self._write(task, after))

    def _stopped(self, task: Task, before: Task | None) -> Task:
        if not self._closing:
            # A decision stays recorded: the same message, sent again, gets its outcome.
            if before is not None and _decides(task.messages[-1]):
                return before
            return task.model_copy(update={"status": "canceled", "run": ""})
        error = {"message": "the service stopped before the task had ended", "code": "STOPPING"}
        return task.model_copy(update={"status": "failed", "run": "", "error": error})

    async def _turn(self, task: Task, caller: Caller) -> Turned:
        if task.status == "pending":
            await self._write(task, task.model_copy(update={"status": "running"}))
        newest = task.messages[-1]
        sent = Incoming(
            secrets.token_hex(8),
            task.id,
            task.id,
            [{"text": newest.content}],
            held=bool(self._host.plugins.implementations("intercept_response")),
        )
        given = Caller(
            PROTOCOL,
            caller.principal,
            caller.address,
            caller.client,
            sent.fields(),
            caller.foreign_page,
        )
        turned = Turned()
        stream = self._host.stream(ChatRequest(messages=task.messages), given)
        try:
            async for event in stream:
                turned.add(event)
            turned.failure = stream.failure
        except asyncio.CancelledError:
            stream.stop()
            raise
        finally:
            await stream.aclose()
        return turned

    async def _put_back(
        self, task: Task, before: Task | None, error: ErrorEvent, keep: bool
    ) -> None:
        if before is None and not keep:
            await self._rows.delete(task.owner, task.id)
            return
        after = before or task.model_copy(update={"status": "failed", "run": "", "messages": []})
        if keep:
            shown = {"message": error.error, "code": error.code}
            after = after.model_copy(update={"error": shown})
        await self._write(task, after)

    async def _write(self, task: Task, after: Task) -> Task:
        """Store the task after a run, unless it was canceled; returns the stored state."""
        stands = [after]

        def change(row: Row | None) -> Row | None:
            # An expired lease does not matter here: the real outcome is better than a guess.
            current = None if row is None else Task.model_validate_json(row.body)
            if current is not None and current.run != task.run:
                stands[0] = current
                return None
            return after.row()

        await self._rows.change(task.owner, task.id, change)
        return stands[0]

    async def _keep_alive(self, task: Task) -> None:
        while True:
            await asyncio.sleep(LEASE / 3)
            try:
                await self._rows.lease([task.id], LEASE)
                current = task_of(await self._rows.get(task.owner, task.id), self._runs)
            except Exception:
                # The store may be busy; the next renewal may succeed.
                logger.exception("the lease of a running task could not be prolonged")
                continue
            run = self._runs.get(task.run)
            if run is not None and current is not None and current.run != task.run:
                # It was canceled through another process.
                run.cancel()
                return

    async def cancel(self, caller: Caller, id: str) -> Task:
        """Stop the task and reject its proposals. Raises TaskUnknown, or TaskBusy if it has just
        ended."""
        found: list[Task] = []

        def change(row: Row | None) -> Row:
            task = task_of(row, self._runs)
            if task is None:
                raise TaskUnknown
            if task.status in ("completed", "failed", "canceled"):
                raise TaskBusy("TASK_ENDED", f"the task is {task.status} already")
            found[:] = [task.model_copy(deep=True)]
            task.status, task.run = "canceled", ""
            task.metadata = {**task.metadata, "updated": now()}
            found.append(task)
            return task.row()

        await self._rows.change(owner_of(caller.principal), id, change)
        before, after = found
        if (run := self._runs.get(before.run)) is not None:
            run.cancel()
            await asyncio.wait({run})
        self._watch.end(id)
        rows = await withdraw(self._host, caller, proposals_of(before.messages), CANCELED)
        return await self._write(after, with_outcomes(after, rows)) if rows else after


async def left_open(
    host: Host, caller: Caller, turned: Turned, proposals: Sequence[Approval]
) -> list[Approval]:
    """The task's proposals that its turn has neither had decided nor restated.

    Commands do not hold up a task, unless the request was withheld: then nobody has answered it.
    """
    if turned.error is not None or turned.proposes:
        return []
    held = [each for each in proposals if turned.withheld or each.type == "tool_call"]
    return await still_waiting(host, caller, held)


async def still_waiting(
    host: Host, caller: Caller, proposals: Sequence[Approval]
) -> list[Approval]:
    """The proposals that have neither run, nor been rejected, nor expired."""
    rows = [await host.calls.look(proposal.id, caller) for proposal in proposals]
    pending = [row is not None and row.state in ("PENDING", "APPROVED") for row in rows]
    return [proposal for proposal, one in zip(proposals, pending, strict=True) if one]


def _decides(message: Message) -> bool:
    data = message.data or Data()
    return any(each.execute or each.rejection_reason for each in (*data.stated, *data.cmds))


def _check_free(task: Task) -> None:
    if task.status in BUSY:
        raise TaskBusy("TASK_RUNNING", "the task still runs; ask for it until it has ended")
    if task.status == "canceled":
        raise TaskBusy("TASK_ENDED", "the task was canceled; begin another one")
