"""The shared parts of model adapters; an adapter of your own imports from this module.

    from sayso import Ask, Model, Reply, ...              # the protocol itself
    from sayso.models.adapters import transcript, fault   # what makes an adapter short

- A request: `transcript` returns turns that every provider accepts, `sent_names` the tools under
  names that providers allow; `plain_object`, `closed`, `with_items`, `sent_keys`, `with_keys`,
  `renamed` and `resolved` convert schemas to the narrower forms that some of them accept;
  `encodable` is a text that JSON can hold.
- A reply: `read_input` reads a call's arguments, `stop_of` and `last_events` end the stream,
  `streamed` is a reply that is known at once. The ledger writes and reads a turn with `dump_turns`
  and `load_turns`.
- Failures: `fault`, `status_fault`, `lost`, `cut_off` and `failure` make a ModelError of ours,
  `retried` calls again after a passing one, `Attempts` is the base of what it calls, `Learned`
  leaves out what a model refused, and `drain` keeps the connection.
- The start: `Connection` reads a factory's settings and makes the arguments of an HTTP client,
  `key_for` reads the key from where it is, and again when it is refused; `checked_address`,
  `check_key` and `certificates` refuse what could not work; `bounded` makes the hooks that break
  off a reply above so many bytes (`REPLY` unless the settings say otherwise), for a client whose
  headers are `PLAIN`, since a packed reply hides its size.

`failure` and these need httpx2. Each name is imported when it is first used.
"""

# One block a module, though the names have aliases: `ruff: isort` would make it one a name.
# ruff: isort: skip_file
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The aliases tell type checkers that the names are public.
    from sayso.models import (
        Block as Block,
        ModelEvent as ModelEvent,
        Stop as Stop,
        dump_turns as dump_turns,
        load_turns as load_turns,
    )
    from sayso.models.access import (
        PLAIN as PLAIN,
        REPLY as REPLY,
        bounded as bounded,
        certificates as certificates,
        check_key as check_key,
        checked_address as checked_address,
    )
    from sayso.models.attempts import Attempts as Attempts
    from sayso.models.connection import Connection as Connection
    from sayso.models.faults import (
        cut_off as cut_off,
        drain as drain,
        failure as failure,
        fault as fault,
        lost as lost,
        retried as retried,
        retry_after as retry_after,
        status_fault as status_fault,
    )
    from sayso.models.keys import Key as Key, key_for as key_for
    from sayso.models.learning import Learned as Learned
    from sayso.models.refusals import LONGEST_BODY as LONGEST_BODY
    from sayso.models.replies import (
        last_events as last_events,
        read_input as read_input,
        stop_of as stop_of,
    )
    from sayso.models.schemas import (
        closed as closed,
        plain_object as plain_object,
        renamed as renamed,
        resolved as resolved,
        sent_keys as sent_keys,
        with_items as with_items,
        with_keys as with_keys,
    )
    from sayso.models.transcript import (
        IdForm as IdForm,
        has_raw as has_raw,
        sent_names as sent_names,
        transcript as transcript,
    )
    from sayso.models.whole import pieces as pieces, streamed as streamed
    from sayso.wire.json_bytes import encodable as encodable

_MODULES = {
    "wire.json_bytes": "encodable",
    "models": "Block ModelEvent Stop dump_turns load_turns",
    "models.access": "PLAIN REPLY bounded certificates check_key checked_address",
    "models.attempts": "Attempts",
    "models.connection": "Connection",
    "models.keys": "Key key_for",
    "models.learning": "Learned",
    "models.refusals": "LONGEST_BODY",
    "models.faults": "cut_off drain failure fault lost retried retry_after status_fault",
    "models.replies": "last_events read_input stop_of",
    "models.schemas": "closed plain_object renamed resolved sent_keys with_items with_keys",
    "models.transcript": "IdForm has_raw sent_names transcript",
    "models.whole": "pieces streamed",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"sayso.{_HOME[name]}"), name)
    return value
