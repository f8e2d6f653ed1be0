"""`sayso chat`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sayso.cli import config_option

if TYPE_CHECKING:
    from sayso_chat.client import Json
    from sayso_chat.kept import Kept
    from sayso_chat.talk import Talk

URL = "http://127.0.0.1:8000"


@click.command("chat", short_help="Talk to an agent; approve or reject what it wants to do.")
@click.argument("target", required=False, metavar="[URL|TARGET]")
@config_option
@click.option("--message", "-m", metavar="TEXT", help="Say this, show the reply, and end.")
@click.option("--continue", "go_on", is_flag=True, help="Go on with the last conversation there.")
@click.option("--json", "as_json", is_flag=True, help="Write each event as a line of JSON.")
@click.option("--approve", is_flag=True, help="Without a person: approve all that is proposed.")
@click.option("--reject", metavar="REASON", help="Without a person: reject all that is proposed.")
@click.option(
    "--token",
    envvar="SAYSO_TOKEN",
    metavar="TOKEN",
    help="Bearer token; better in the environment, as SAYSO_TOKEN, where others do not see it.",
)
@click.option("--source", metavar="NAME", help="The request's source.  [default: help-desk]")
@click.option("--user", metavar="NAME", help="Name of the user who speaks.")
def command(
    target: str | None,
    config_file: Path | None,
    message: str | None,
    go_on: bool,
    as_json: bool,
    approve: bool,
    reject: str | None,
    token: str | None,
    source: str | None,
    user: str | None,
) -> int:
    """Talk to an agent: the service at URL, or TARGET, started in this process.

    URL is an address such as http://127.0.0.1:8000, the default, or host:port. TARGET is
    "module:object" or "path/to/file.py:object", as for `sayso serve`.

    Each call that needs approval is shown with its intent and its whole input; you approve it,
    reject it with a reason, or leave it for later. Nothing is approved unless you say so: without a
    terminal only --approve and --reject decide.

    \b
    Examples:
      sayso chat
      sayso chat https://agents.example.org --source team-chat
      sayso chat ops_agent.py
      sayso chat --continue
      sayso chat -m "what fills the disk under /usr?"
      sayso chat --json -m "delete notes.txt" --reject "not today"
      printf 'hello\\nmemory\\n' | sayso chat --json

    With --json a line of the input that is a JSON object is sent as a user message, so that a
    script can decide: {"data": {"tool_calls": [{..., "execute": true}]}}.

    Exit codes: 0 every turn was done, 1 a turn failed or the service was not reached, 2 usage.
    """
    if approve and reject is not None:
        raise click.UsageError("--approve and --reject exclude each other")

    from sayso_chat.client import Client
    from sayso_chat.kept import of_user
    from sayso_chat.talk import Talk

    scripted = as_json or approve or reject is not None or sys.stdin is None
    scripted = scripted or not sys.stdin.isatty()
    files, where = of_user(), _where(target)
    with _place(target or URL, config_file) as url:
        client = Client(url, token)
        client.reach()
        keep = partial(files.keep, where) if go_on or not scripted else None
        talk = partial(Talk, client, user=user, source=source, keep=keep)
        last = files.conversation(where) or {} if go_on else None
        if scripted:
            return _script(talk(), last, message, as_json, approve, reject)
        return _person(talk, last, message, target or url, files)


def _where(target: str | None) -> str:
    """The name under which the last conversation with an agent is kept."""
    from sayso_chat.client import as_url

    return as_url(target or URL) or str(Path.cwd() / str(target))


def _place(target: str, config_file: Path | None) -> AbstractContextManager[str]:
    from sayso_chat.client import as_url
    from sayso_chat.local import serving

    url = as_url(target)
    return serving(target, config_file) if url is None else nullcontext(url)


def _script(
    talk: Talk,
    last: Json | None,
    message: str | None,
    as_json: bool,
    approve: bool,
    reject: str | None,
) -> int:
    from sayso_chat.kept import NOTHING_KEPT
    from sayso_chat.script import Script, lines_of_stdin, print_json, printer
    from sayso_chat.talk import Proposal

    if last is not None and not talk.go_on(last):
        click.echo(f"sayso: {NOTHING_KEPT}", err=True)
    show = print_json if as_json else printer()
    messages = lines_of_stdin(objects=as_json) if message is None else [{"content": message}]
    decide = Proposal.approved if approve else None
    if reject is not None:
        decide = partial(Proposal.rejected, reason=reject)
    return Script(talk, show, decide).run(messages)


def _person(
    talk: Callable[[], Talk], last: Json | None, message: str | None, where: str, files: Kept
) -> int:
    from sayso_chat.keyboard import Keyboard
    from sayso_chat.person import Person
    from sayso_chat.screen import Screen

    person = Person(talk, where, Screen(), Keyboard(files))
    if last is not None:
        person.go_on(last)
    return person.converse() if message is None else person.say_once(message)
