"""Rules that nobody could ever meet are found at the start, before a call waits in vain."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from sayso.config import Config
from sayso.errors import ConfigError
from sayso.ledger.people import Terms
from sayso.ledger.voting import is_named
from sayso.plugins import Plugins
from sayso.plugins.discovery import SCHEMES
from sayso.policy import Policy, terms_of
from sayso.principals import Directory, Principal


def check_rules(
    policy: Policy, config: Config, tokens: Collection[Principal], plugins: Plugins
) -> None:
    """Raise ConfigError for a rule that can be proved to be impossible to meet; `tokens` are the
    principals of `scheme = "bearer"`."""
    auth, hooks = config.auth, plugins.implementations("authenticate")
    # A plugin may know further principals, and may name their persons itself.
    others = [hook.plugin for hook in hooks if hook.plugin not in SCHEMES]
    persons = [name for name, one in auth.principals.items() if one.kind == "person"]
    mapped = [*_mapped(config, plugins)]
    known = _Known(
        guarded=auth.scheme != "none" or bool(hooks or mapped),
        deciders=config.approvals.deciders,
        all=[*tokens, *mapped] if auth.scheme == "bearer" and not hooks else None,
        people=bool(auth.people or persons or others),
    )
    if config.approvals.grants and not known.guarded:
        raise ConfigError(
            "approvals.grants needs to know who gives a grant, and nobody has to say who they are; "
            "set [auth]"
        )
    for number, rule in enumerate(policy.rules, 1):
        terms = terms_of(rule)
        for why in _why(terms, known) if terms else ():
            where = f"approvals.rules, rule {number} ({rule.tool!r})"
            raise ConfigError(f"{where} can never be met: {why}")


def _mapped(config: Config, plugins: Plugins) -> Iterator[Principal]:
    """The principals in [auth.people] that an active plugin proves by itself, as "slack|T1|U1"."""
    directory = Directory(config.auth)
    for key in [key for keys in config.auth.people.values() for key in keys]:
        issuer, _, subject = key.partition("|")
        if issuer in plugins.names and issuer not in SCHEMES:
            yield directory.known(Principal(key, issuer=issuer, subject=subject))


class _Known(NamedTuple):
    """The facts of the start: whether callers authenticate, who decides without a rule, all
    possible principals (None if there may be others), and whether any of them is known to belong to
    a person."""

    guarded: bool
    deciders: str
    all: Collection[Principal] | None
    people: bool


def _why(terms: Terms, known: _Known) -> Iterator[str]:
    of_persons = terms.quorum > 1 or terms.not_requester
    if not (terms.approvers or of_persons):
        return
    if not known.guarded:
        yield "nobody has to say who they are; set [auth]"
    if of_persons and not terms.approvers and known.deciders == "principal":
        yield ("only the requester may decide; name approvers, or set approvals.deciders = 'any'")
    if known.all is not None:
        yield from _among(terms, known.all)
        return
    named = {one for one in terms.approvers if not one.startswith("group:")}
    if terms.approvers and len(named) == len(terms.approvers) < terms.quorum:
        yield f"it needs {terms.quorum} approvals and names {len(named)} who may give one"
    if of_persons and not known.people:
        yield "nothing says which principals are persons; see [auth.people]"


def _among(terms: Terms, known: Collection[Principal]) -> Iterator[str]:
    groups = {group for one in known for group in one.groups}
    names = {*map(str, known), *(one.person for one in known)}
    for one in terms.approvers:
        group = one.removeprefix("group:")
        if one.startswith("group:") and group not in groups:
            yield f"nobody with a token is in the group {group!r}"
        elif not one.startswith("group:") and one not in names:
            yield f"nobody with a token is {one!r}"
    may = [one for one in known if one.kind != "agent"]
    may = [one for one in may if not terms.approvers or is_named(terms, one)]
    if not may:
        yield "all who may approve are agents"
    if terms.quorum > 1 or terms.not_requester:
        persons = {one.person for one in may} - {None}
        if len(persons) < terms.quorum:
            yield (
                f"it needs {terms.quorum} persons, and those who may approve are {len(persons)}; "
                "see [auth.people], and kind in [auth.principals]"
            )
