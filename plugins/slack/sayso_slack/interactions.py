"""Presses of buttons, and reasons: each becomes a decision like any other."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any, NamedTuple

from sayso import Caller, Host, Proposal, SaysoError, why_barred
from sayso_slack import cards
from sayso_slack.api import Api, cause_of
from sayso_slack.people import UNKNOWN, caller_of, decider_of, person_of, pressed_by
from sayso_slack.settings import SlackSettings

logger = logging.getLogger("sayso.slack")
_CHANGED = "The call is not what this card showed any more: read it again. Nothing was decided."
_NO_WINDOW = "Slack could not open the window for the reason: press again. Nothing was decided."
_UNKNOWN_CALL = "There is no such call for you."


class Press(NamedTuple):
    """A press: the call, the digest of what the card showed, the card's place, and by whom."""

    id: str
    seen: str
    channel: str
    ts: str
    user: str
    caller: Caller


class Interactions:
    """The handler of interactive payloads, after they were acknowledged."""

    def __init__(self, host: Host, api: Api, settings: SlackSettings) -> None:
        self._host = host
        self._api = api
        self._settings = settings

    async def handle(self, payload: Any) -> None:
        """Carry out a press or the submission of a modal; everything else is left alone."""
        who = pressed_by(payload, self._settings.teams)
        if who is None:
            logger.warning("an interaction from a foreign workspace was ignored")
            return
        caller = caller_of(self._host, *who)
        match payload.get("type"):
            case "block_actions":
                for action in payload.get("actions") or []:
                    await self._pressed(payload, action, who, caller)
            case "view_submission" if _callback(payload) == cards.REASON:
                await self._submitted(payload, who, caller)

    async def _pressed(
        self, payload: Any, action: Any, who: tuple[str, str], caller: Caller
    ) -> None:
        name = action.get("action_id")
        if name not in (cards.APPROVE, cards.REJECT):
            return
        id_, _, seen = str(action.get("value", "")).partition(" ")
        box = payload.get("container") or {}
        channel = box.get("channel_id") or (payload.get("channel") or {}).get("id") or ""
        press = Press(id_, seen, str(channel), str(box.get("message_ts", "")), who[1], caller)
        if person_of(caller) is None:
            await self._answer_alone(press, UNKNOWN.format(*who))
            return
        row = await self._may(press, approved=name == cards.APPROVE)
        if row is None:
            return
        approved = name == cards.APPROVE
        if approved and not (row.terms is not None and row.terms.reason):
            await self._decide(press, row, True, None)
            return
        value, place = f"{press.id} {press.seen}", f"{press.channel}:{press.ts}"
        view = cards.reason_modal(row, value, approved, place)
        try:
            await self._api.call("views_open", trigger_id=payload.get("trigger_id"), view=view)
        except Exception as error:
            # Slack takes the trigger for three seconds only: no second attempt would be in time.
            logger.info("no window for call %s could be opened: %s", row.id, cause_of(error))
            await self._answer_alone(press, _NO_WINDOW)

    async def _submitted(self, payload: Any, who: tuple[str, str], caller: Caller) -> None:
        view = payload["view"]
        verb, place, id_, seen = [*str(view.get("private_metadata", "")).split(" "), "", "", ""][:4]
        channel, _, ts = place.partition(":")
        press = Press(id_, seen, channel, ts, who[1], caller)
        if person_of(caller) is None:
            await self._answer_alone(press, UNKNOWN.format(*who))
            return
        values = (view.get("state") or {}).get("values") or {}
        reason = ((values.get("reason") or {}).get("reason") or {}).get("value")
        row = await self._may(press, approved=verb == "Approve")
        if row is not None:
            await self._decide(press, row, verb == "Approve", reason or None)

    async def _may(self, press: Press, *, approved: bool) -> Proposal | None:
        """The call, if this person may decide it as the card showed it; else the person is told."""
        row = await self._host.calls.look(press.id, press.caller)
        if row is None:
            await self._answer_alone(press, _UNKNOWN_CALL)
            return None
        if row.state != "PENDING":
            await self._show(press, row, always=True)
            return None
        own = row.principal == press.caller.principal
        why = self._host.record.barred(row, press.caller)
        if why and (approved or not own):
            words = why_barred(why)
            await self._answer_alone(press, f"{words[0].upper()}{words[1:]}.")
            return None
        if approved and row.seen != press.seen:
            await self._answer_alone(press, _CHANGED)
            return None
        return row

    async def _decide(
        self, press: Press, row: Proposal, approved: bool, reason: str | None
    ) -> None:
        try:
            row = await self._host.calls.decide(
                row.id,
                press.caller,
                approved=approved,
                kind=row.kind,
                reason=reason,
                input=row.runs if approved else None,
                seen=row.seen if approved else None,
                run=False,
            )
        except SaysoError as error:
            items = getattr(error, "items", ())
            words = [str(item.get("msg")) for item in items] or [self._host.failure(error).message]
            await self._answer_alone(press, f"Nothing was decided: {'; '.join(words)}.")
            return
        await self._show(press, row)

    async def _show(self, press: Press, row: Proposal, *, always: bool = False) -> None:
        """Change the card to the recorded decision; if that fails, or `always`, tell the person."""
        now, decider = time.time(), decider_of(self._host, row)
        standing = self._host.record.standing(row)
        if row.state == "PENDING":
            # The outbox changes the card to the votes so far.
            await self._answer_alone(press, standing or "Your approval is recorded.")
            return
        card = cards.decided(row, now, decider)
        try:
            # Once: the outbox changes the card later, and the person hears of the decision now.
            await self._api.call(
                "chat_update",
                channel=press.channel,
                ts=press.ts,
                text=card.text,
                blocks=card.blocks,
            )
        except Exception as error:
            logger.info("the card of call %s could not be changed: %s", row.id, cause_of(error))
            always = True
        if always:
            text = f"{cards.name_of(row)} {cards.outcome(row, now, decider)}"
            await self._answer_alone(press, text)

    async def _answer_alone(self, press: Press, text: str) -> None:
        """Tell the person alone."""
        with suppress(Exception):
            await self._api.patient(
                "chat_postEphemeral",
                channel=press.channel,
                user=press.user,
                text=cards.escaped(text),
            )


def _callback(payload: Any) -> Any:
    return (payload.get("view") or {}).get("callback_id")
