"""Webhooks: their signatures and content, and what is sent, repeated and left out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from receivers import (
    KEY,
    Receiver,
    configured,
    decide,
    deleting,
    hook,
    propose,
    receiving,
    until,
)
from standardwebhooks import Webhook, WebhookVerificationError

from sayso import Delivered, Host, Observer, Plugin, PluginError, hookimpl
from sayso.testing import Service, served
from sayso_notify import outbox

OLD = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """The endpoint of the module's service."""
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def events() -> Iterator[Receiver]:
    """The endpoint that gets CloudEvents."""
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def service(receiver: Receiver, events: Receiver) -> Iterator[Service]:
    """A service with a webhook of each form."""
    more = f'inputs = ["path"]\nold_secret = "{OLD}"'
    cloud = 'format = "cloudevents"\ntools = ["delete"]\nevents = ["approval.requested"]'
    page = '[plugin.notify]\npage = "https://agent.example.com/console"\n'
    tables = page + hook(receiver.url, "ops", more) + hook(events.url, "cloud", cloud)
    with served(deleting(), config=configured(tables)) as running:
        yield running


def test_a_waiting_call_is_posted_with_a_signature_that_the_standard_package_verifies(
    service: Service, receiver: Receiver
) -> None:
    row = propose(service, "report.pdf")
    until(lambda: receiver.types(row.id))
    headers, body = next(one for one in receiver.got if row.id.encode() in one[1])
    for key in (KEY, OLD):
        verified = Webhook(key).verify(body, dict(headers))
    assert verified["type"] == "approval.requested"
    data = verified["data"]
    assert data["id"] == row.id and data["name"] == "delete" and data["state"] == "PENDING"
    assert data["principal"] == "ann"
    assert data["link"] == f"https://agent.example.com/console#{row.id}"
    left = datetime.fromisoformat(data["expires"]).timestamp() - time.time()
    assert left == pytest.approx(86_400, abs=60)
    with pytest.raises(WebhookVerificationError):
        Webhook(KEY).verify(body.replace(b"delete", b"remove"), dict(headers))


def test_only_the_named_fields_of_an_input_leave(service: Service, receiver: Receiver) -> None:
    row = propose(service, "secret plan.txt")
    until(lambda: receiver.types(row.id))
    raw = b"".join(body for _, body in receiver.got)
    assert receiver.bodies(row.id)[0]["data"]["input"] == {"path": "secret plan.txt"}
    assert b"hunter2" not in raw


def test_a_cloud_event_has_its_attributes_and_the_same_signature(
    service: Service, events: Receiver
) -> None:
    row, other = propose(service, "cloudy"), propose(service, name="wipe")
    until(lambda: events.types(row.id))
    headers, body = next(one for one in events.got if row.id.encode() in one[1])
    event: Any = Webhook(KEY).verify(body, dict(headers))
    assert headers["content-type"] == "application/cloudevents+json"
    assert event["specversion"] == "1.0" and event["id"] == headers["webhook-id"]
    assert event["source"] == "/sayso/files" and event["subject"] == row.id
    assert event["type"] == "approval.requested" and "input" not in event["data"]
    assert events.types(other.id) == [], "the channel is for another tool"


def test_the_whole_story_of_a_call_comes_in_its_order_with_ids_of_its_own(
    service: Service, receiver: Receiver
) -> None:
    row = propose(service, "story")
    until(lambda: receiver.types(row.id))
    decide(service, row.id, True)
    until(lambda: "call.done" in receiver.types(row.id))
    story = ["approval.requested", "approval.approved", "call.started", "call.done"]
    assert receiver.types(row.id) == story
    approved = receiver.bodies(row.id)[1]["data"]
    assert approved["who"] == "bob"
    ids = [headers["webhook-id"] for headers, body in receiver.got if row.id.encode() in body]
    assert len(set(ids)) == 4


def test_a_rejection_is_told_without_its_reason(service: Service, receiver: Receiver) -> None:
    row = propose(service, "keep")
    until(lambda: receiver.types(row.id))
    decide(service, row.id, False, "it holds the payroll")
    until(lambda: "approval.rejected" in receiver.types(row.id))
    assert b"payroll" not in b"".join(body for _, body in receiver.got)


def test_ready_shows_the_state_of_each_channel(service: Service) -> None:
    until(lambda: _details(service)["webhooks.ops"]["waiting"] == 0)
    shown = service.get("/ready").json()
    assert shown["status"] == "ready"
    assert shown["details"]["notify"]["webhooks.cloud"] == {"state": "sending", "waiting": 0}


def _details(service: Service) -> Any:
    return service.get("/ready").json()["details"]["notify"]


class Counted(Observer):
    """The channels and outcomes that observers hear of."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def delivered(self, delivery: Delivered) -> None:
        assert delivery.lag >= 0
        self.seen.append((delivery.channel, delivery.outcome))


class Counting(Plugin):
    """A plugin with that observer."""

    name = "counting"
    counted: Counted

    @hookimpl
    def observe(self, host: Host) -> Observer:
        return self.counted


def test_a_dead_channel_delays_neither_turns_nor_other_channels_and_catches_up() -> None:
    with receiving() as good, receiving() as bad:
        bad.status = 500
        tables = hook(good.url, "good") + hook(bad.url, "bad")
        counted = Counted()
        plugin = Counting()
        plugin.counted = counted
        config = configured(tables).replace('"notify"]', '"notify", "counting"]')
        with served(deleting(), [plugin], config=config) as running:
            rows = [propose(running)]
            until(lambda: _details(running)["webhooks.bad"]["state"] == "failing")
            rows += [propose(running, str(n)) for n in range(5)]
            until(lambda: len(good.got) == 6)
            until(lambda: _details(running)["webhooks.bad"]["waiting"] == 6)
            shown = _details(running)["webhooks.bad"]
            assert shown["lag"] >= 0 and shown["error"] == "Refused"
            assert bad.tried < 5, "a channel that fails is tried with one notice"
            assert running.get("/ready").status == 200
            decide(running, rows[0].id, False)
            bad.status = 200
            until(lambda: "approval.rejected" in bad.types(rows[0].id), "the channel's recovery")
            until(lambda: ("webhooks.bad", "skipped") in counted.seen)
            assert ("webhooks.bad", "failed") in counted.seen
            assert counted.seen.count(("webhooks.good", "sent")) == len(good.got), "each once"
            until(lambda: len(bad.got) == 6)
            assert "approval.requested" not in bad.types(rows[0].id), "nobody need decide it now"
            assert bad.types(rows[1].id) == ["approval.requested"]


def test_the_log_never_has_the_address_of_a_webhook(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with receiving() as receiver:
        table = hook(f"{receiver.url}/s3cr3t-path")
        with served(deleting(), config=configured(table)) as running:
            row = propose(running)
            until(lambda: receiver.types(row.id))
            receiver.status = 500
            propose(running)
            until(lambda: _details(running)["webhooks.ops"]["state"] == "failing")
    assert "s3cr3t-path" not in caplog.text


def test_a_repeated_notice_has_its_first_id_and_waits_as_long_as_the_receiver_asks() -> None:
    with receiving() as receiver:
        ids = []
        receiver.status, receiver.headers = 429, {"retry-after": "2"}
        with served(deleting(), config=configured(hook(receiver.url))) as running:
            row = propose(running)
            until(lambda: receiver.tried)
            began = time.monotonic()
            receiver.status = 200
            until(lambda: receiver.types(row.id))
            assert time.monotonic() - began > 0.8
            ids = [headers["webhook-id"] for headers, _ in receiver.got]
        assert len(ids) == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_pause_that_a_receiver_asks_for_is_kept(form: str) -> None:
    with receiving() as receiver:
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
        receiver.status, receiver.headers = 429, {"retry-after": "3" if form == "seconds" else date}
        with served(deleting(), config=configured(hook(receiver.url))) as running:
            propose(running)
            until(lambda: receiver.tried)
            began = time.monotonic()
            propose(running)
            until(lambda: receiver.tried > 1)
            assert time.monotonic() - began > 2.5, "for other calls, too"


def test_a_notice_that_is_refused_alone_keeps_its_times_while_others_are_taken() -> None:
    with receiving() as receiver:
        with served(deleting(), config=configured(hook(receiver.url))) as running:
            poison = propose(running, "poison")
            receiver.refused.add(poison.id)
            until(lambda: poison.id in receiver.attempts)
            for number in range(3):
                row = propose(running, str(number))
                until(lambda id_=row.id: receiver.types(id_))  # type: ignore[misc]
            assert receiver.attempts.count(poison.id) == 1, "the next one is five seconds later"


def test_a_reply_without_an_end_is_taken_by_its_status() -> None:
    with receiving() as receiver:
        receiver.endless = True
        with served(deleting(), config=configured(hook(receiver.url))) as running:
            propose(running)
            until(lambda: receiver.tried)
            until(lambda: _details(running)["webhooks.ops"]["waiting"] == 0)
            assert receiver.tried == 1


def test_a_receiver_that_is_gone_gets_nothing_more() -> None:
    with receiving() as receiver:
        receiver.status = 410
        with served(deleting(), config=configured(hook(receiver.url))) as running:
            propose(running)
            until(lambda: _details(running)["webhooks.ops"]["state"] == "gone")
            propose(running)
            time.sleep(2 * outbox.PAUSE)
        assert receiver.tried == 1


def test_an_expired_call_is_told_and_nothing_asks_for_it_any_more() -> None:
    with receiving() as receiver:
        config = configured(hook(receiver.url), 'ttl = "4s"')
        with served(deleting(), config=config) as running:
            row = propose(running)
            until(lambda: "approval.expired" in receiver.types(row.id))
            # The reminders at a third and at two thirds of four seconds.
            types = receiver.types(row.id)
            assert types == ["approval.requested", *["approval.reminder"] * 2, "approval.expired"]


def test_an_escalation_hears_only_of_calls_that_still_wait() -> None:
    with receiving() as first, receiving() as second:
        tables = hook(first.url, "team") + hook(second.url, "boss", 'after = "2s"')
        with served(deleting(), config=configured(tables)) as running:
            quick, slow = propose(running, "quick"), propose(running, "slow")
            until(lambda: first.types(quick.id) and first.types(slow.id))
            decide(running, quick.id, False)
            until(lambda: second.types(slow.id))
            assert second.types(slow.id) == ["approval.escalated"]
            decide(running, slow.id, True)
            until(lambda: "call.done" in second.types(slow.id))
            assert second.types(quick.id) == []


def test_calls_that_wait_when_a_channel_is_added_are_told_once(tmp_path: Path) -> None:
    ledger = f'ledger = "sqlite:///{tmp_path}/approvals.db"'
    with served(deleting(), config=f"[approvals]\n{ledger}\n") as before:
        row = propose(before)
    with receiving() as receiver:
        for _ in range(2):
            with served(deleting(), config=configured(hook(receiver.url), ledger)) as running:
                until(lambda: receiver.types(row.id))
                until(lambda: _details(running)["webhooks.ops"]["state"] == "sending")
        assert receiver.types(row.id) == ["approval.requested"]


def test_what_happened_while_no_service_ran_is_told_afterwards(tmp_path: Path) -> None:
    ledger = f'ledger = "sqlite:///{tmp_path}/approvals.db"'
    with receiving() as receiver:
        config = configured(hook(receiver.url), ledger)
        with served(deleting(), config=config) as running:
            row = propose(running)
            until(lambda: receiver.types(row.id))
        with served(deleting(), config=f'[approvals]\ndeciders = "any"\n{ledger}\n') as quiet:
            decide(quiet, row.id, False)
        with served(deleting(), config=config):
            until(lambda: "approval.rejected" in receiver.types(row.id))
        assert receiver.types(row.id) == ["approval.requested", "approval.rejected"]


def test_several_processes_send_each_notice_once(tmp_path: Path) -> None:
    ledger = f'ledger = "sqlite:///{tmp_path}/approvals.db"'
    with receiving() as receiver:
        config = configured(hook(receiver.url), ledger)
        with ExitStack() as first, ExitStack() as second:
            one = first.enter_context(served(deleting(), config=config))
            until(lambda: _state(one) == "sending")
            two = second.enter_context(served(deleting(), config=config))
            until(lambda: {_state(one), _state(two)} == {"sending", "elsewhere"})
            rows = [propose(service, str(n)) for n in range(5) for service in (one, two)]
            until(lambda: len(receiver.got) >= 10)
            first.close()
            rows.append(propose(two, "last"))
            until(lambda: receiver.types(rows[-1].id), "the other process taking over")
        ids = [headers["webhook-id"] for headers, _ in receiver.got]
        assert len(ids) == len(set(ids)) == len(rows)


def test_two_machines_on_postgresql_send_each_notice_once(postgres_url: str) -> None:
    with receiving() as receiver:
        config = configured(hook(receiver.url), f'ledger = "{postgres_url}"')
        with served(deleting(), config=config) as one, served(deleting(), config=config) as two:
            rows = [propose(service, str(n)) for n in range(3) for service in (one, two)]
            until(lambda: len(receiver.got) >= 6)
            decide(one, rows[0].id, False)
            until(lambda: "approval.rejected" in receiver.types(rows[0].id))
            assert sorted([_state(one), _state(two)]) == ["elsewhere", "sending"]
        ids = [headers["webhook-id"] for headers, _ in receiver.got]
        assert len(ids) == len(set(ids)) == 7


def test_a_process_that_dies_loses_its_lease_and_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(self: object) -> None:
        return None

    monkeypatch.setattr(outbox, "LEASE", 3.0)
    monkeypatch.setattr(outbox, "OTHERS", 0.2)
    monkeypatch.setattr(outbox.Line, "leave", killed)
    ledger = f'ledger = "sqlite:///{tmp_path}/approvals.db"'
    with receiving() as receiver:
        receiver.status = 503
        config = configured(hook(receiver.url), ledger)
        with served(deleting(), config=config) as dying:
            row = propose(dying)
            until(lambda: receiver.tried)
        with served(deleting(), config=config) as other:
            assert _state(other) == "elsewhere"
            receiver.status = 200
            until(lambda: receiver.types(row.id))
        assert receiver.types(row.id) == ["approval.requested"]


def _state(service: Service) -> str:
    return str(_details(service)["webhooks.ops"]["state"])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (f'url = "http://example.com/x"\nsecret = "{KEY}"', "https"),
        (f'url = "https://a.b/x"\nsecret = "{KEY}"\nevents = ["approval.request"]', "no notice"),
        (f'url = "https:///x"\nsecret = "{KEY}"', "https"),
        (f'url = "https://u:p@example.com/x"\nsecret = "{KEY}"', "user name"),
        ('url = "https://example.com/x"\nsecret = "whsec_x"', "24 to 64 bytes"),
        ('url = "https://example.com/x"\nsecret = "env:NOT_THERE"', "NOT_THERE"),
    ],
)
def test_a_wrong_webhook_stops_the_start_and_names_the_way_out(table: str, words: str) -> None:
    config = configured(f"[plugin.notify.webhooks.ops]\n{table}\n")
    with pytest.raises((PluginError, ValueError), match=words) as stopped:
        with served(deleting(), config=config):
            pass
    assert "whsec_x" not in str(stopped.value)


def test_a_page_that_is_no_address_stops_the_start() -> None:
    with pytest.raises((PluginError, ValueError), match="expected an address"):
        with served(deleting(), config=configured('[plugin.notify]\npage = "/console"\n')):
            pass


def test_an_address_inside_the_network_is_not_posted_to() -> None:
    with receiving() as receiver:
        # The name is allowed, and resolves to this machine; the setting names another host.
        url = receiver.url.replace("http://127.0.0.1", "https://localhost")
        table = hook(url).replace('hosts = ["127.0.0.1"]', 'hosts = ["hooks.internal"]')
        with served(deleting(), config=configured(table)) as running:
            propose(running)
            until(lambda: _details(running)["webhooks.ops"].get("error") == "ConnectionError")
        assert receiver.tried == 0


def test_a_teams_card_has_a_link_and_no_markdown() -> None:
    with receiving() as receiver:
        table = (
            '[plugin.notify]\npage = "https://agent.example.com/console"\n'
            f'[plugin.notify.teams.ops]\nurl = "{receiver.url}"\nhosts = ["127.0.0.1"]\n'
            'inputs = ["path"]\n'
        )
        with served(deleting(), config=configured(table)) as running:
            row = propose(running, "[x](https://evil.example) **now**")
            until(lambda: receiver.got)
        body = json.loads(receiver.got[0][1])
    (attached,) = body["attachments"]
    card = attached["content"]
    assert attached["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert [one["url"] for one in card["actions"]] == [
        f"https://agent.example.com/console#{row.id}"
    ]
    assert {one["type"] for one in card["actions"]} == {"Action.OpenUrl"}
    texts = [run for block in card["body"] for run in block["inlines"]]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert any("**now**" in run["text"] for run in texts)
