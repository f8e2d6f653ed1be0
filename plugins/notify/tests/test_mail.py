"""E-mail over a real connection: what it says, to whom, and that it decides nothing."""

from __future__ import annotations

import asyncio
import smtplib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from receivers import DEADLINE, MailServer, configured, decide, deleting, mailing, propose, until

from sayso import Proposal
from sayso.testing import served
from sayso_notify.mail import Mail
from sayso_notify.notices import Notice
from sayso_notify.settings import MailSettings


def table(server: MailServer, more: str = "") -> str:
    port = server.server_address[1]
    return (
        '[plugin.notify]\npage = "https://agent.example.com/console"\n'
        f'[plugin.notify.mail.ops]\nhost = "127.0.0.1"\nport = {port}\nsecurity = "none"\n'
        f'sender = "Sayso <sayso@example.com>"\nto = ["ops@example.com"]\n{more}\n'
    )


def test_a_mail_asks_for_a_decision_and_the_requester_is_told_of_it() -> None:
    with mailing() as server:
        requesters = '[plugin.notify.mail.ops.requesters]\nann = "ann@example.com"\n'
        config = configured(table(server, 'inputs = ["path"]') + requesters)
        with served(deleting(), config=config) as running:
            row = propose(running, "a\nSubject: forged")
            until(lambda: server.mails)
            decide(running, row.id, False, "no")
            until(lambda: len(server.mails) == 2)
    (to, asked), (to_ann, answered) = server.mails
    assert to == ["ops@example.com"] and to_ann == ["ann@example.com"]
    assert asked["Subject"] == "delete waits for a decision"
    assert asked["Auto-Submitted"] == "auto-generated"
    text = asked.get_content()
    assert f"https://agent.example.com/console#{row.id}" in text
    assert "Neither this link nor a reply to this mail decides anything." in text
    assert r"path: \"a\nSubject: forged\"".replace('\\"', '"') in text and "hunter2" not in text
    assert (
        asked["References"] == answered["References"]
        and asked["Message-ID"] != answered["Message-ID"]
    )
    assert answered["Subject"] == "delete was rejected"


def test_an_expired_call_is_told_to_both() -> None:
    with mailing() as server:
        requesters = '[plugin.notify.mail.ops.requesters]\nann = "ann@example.com"\n'
        config = configured(table(server, "reminders = false") + requesters, 'ttl = "2s"')
        with served(deleting(), config=config) as running:
            propose(running)
            until(lambda: len(server.mails) == 3)
    subjects = sorted((to[0], mail["Subject"].partition(":")[0]) for to, mail in server.mails)
    assert subjects == [
        ("ann@example.com", "delete has expired"),
        ("ops@example.com", "delete has expired"),
        ("ops@example.com", "delete waits for a decision"),
    ]


def test_a_silent_mail_server_takes_none_of_the_threads_that_others_use() -> None:
    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            settings = MailSettings(host="127.0.0.1", port=port, sender="a@b.c", to=["d@e.f"])
            mail = Mail(settings)
            row = Proposal("1", "tool_call", "delete", {}, "t1", 0, "c1", 0.0, 1.0)
            notice = Notice("n1", "approval.requested", 0.0, row)
            sending = asyncio.create_task(mail.send(notice))
            connection, _ = await asyncio.wait_for(asyncio.to_thread(silent.accept), DEADLINE)
            await asyncio.wait_for(asyncio.to_thread(int), DEADLINE)
            assert not sending.done()
            connection.close()
            with pytest.raises(smtplib.SMTPException):
                await sending
            await mail.aclose()

    asyncio.run(run())
