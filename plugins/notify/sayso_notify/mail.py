"""E-mail by SMTP: a text with a link. No link and no reply decides anything."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from hashlib import sha256

from sayso import ConfigError, secret_text
from sayso_notify.notices import Notice, data, fits
from sayso_notify.settings import MailSettings
from sayso_notify.words import line, lines, title

_TIMEOUT = 10.0
_THREADS = 4
_OUTCOMES = frozenset(
    {
        "approval.approved",
        "approval.rejected",
        "approval.expired",
        "call.done",
        "call.failed",
        "call.indeterminate",
    }
)
"""Notices for those who asked."""


class Mail:
    """A channel that sends e-mail."""

    def __init__(self, settings: MailSettings) -> None:
        self._settings = settings
        self._types = settings.events
        self.tools, self.reminders, self.after = settings.tools, settings.reminders, settings.after
        # Not the loop's own threads: a silent mail server would hold up all others that use them.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sayso-mail")
        self._password = (
            secret_text(settings.password, "password") if settings.password is not None else ""
        )
        self._domain = parseaddr(settings.sender)[1].rpartition("@")[2]
        if not self._domain or not all("@" in parseaddr(one)[1] for one in settings.to):
            raise ConfigError(
                "'sender' and 'to' of a mail channel are addresses: 'ann@example.com'"
            )

    @property
    def events(self) -> list[str]:
        """The types of notices for somebody."""
        return [*self._types, *_OUTCOMES] if self._settings.requesters else self._types

    async def send(self, notice: Notice) -> str | None:
        """Send the mails: to the people of the channel, and to the requester."""
        for to in self._recipients(notice):
            mail, loop = self.message(notice, to), asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._sent, mail)
        return None

    async def aclose(self) -> None:
        """Send no further mail. Each mail has a connection of its own."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _recipients(self, notice: Notice) -> list[list[str]]:
        """The addresses of each mail: a requester does not read those of the others."""
        row = notice.row
        found = [list(self._settings.to)] if fits(self._types, notice.type) else []
        if notice.type in _OUTCOMES:
            # A name that only the message claims counts where nobody proves one.
            names = [row.person, row.principal] if row.principal is not None else [row.user]
            mine = [self._settings.requesters[n] for n in names if n in self._settings.requesters]
            found += [[one] for one in mine[:1]]
        return found

    def message(self, notice: Notice, to: list[str]) -> EmailMessage:
        """The mail: plain text, in one thread for each call."""
        mail = EmailMessage()
        mail["From"] = self._settings.sender
        mail["To"] = ", ".join(to)
        mail["Subject"] = title(notice)[:200]
        mail["Date"] = format_datetime(datetime.fromtimestamp(notice.at, UTC))
        mail["Message-ID"] = f"<{notice.id}@{self._domain}>"
        root = f"<{sha256(notice.row.id.encode()).hexdigest()[:32]}@{self._domain}>"
        mail["References"] = mail["In-Reply-To"] = root
        # No out-of-office reply to a machine.
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Auto-Response-Suppress"] = "All"
        shown = data(notice, self._settings.inputs)
        facts = [f"{name}: {value}" for name, value in lines(notice, shown)]
        text = [f"{title(notice)}.", "", *facts, f"call: {line(notice.row.id)}", ""]
        if notice.link:
            text.append(f"Read it, and decide, on the page: {notice.link}")
        text.append("Neither this link nor a reply to this mail decides anything.")
        mail.set_content("\n".join(text) + "\n")
        return mail

    def _sent(self, mail: EmailMessage) -> None:
        settings = self._settings
        trust = ssl.create_default_context()
        if settings.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                settings.host, settings.port, timeout=_TIMEOUT, context=trust
            )
        else:
            server = smtplib.SMTP(settings.host, settings.port, timeout=_TIMEOUT)
        with server:
            if settings.security == "starttls":
                server.starttls(context=trust)
            if settings.user is not None:
                server.login(settings.user, self._password)
            server.send_message(mail)
