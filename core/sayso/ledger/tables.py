"""The tables of the SQL stores, and the statements that handle no whole rows.

The statements are common to SQLite and PostgreSQL, with `?` for values. Each index costs an
approval one more page to write, so there is one for each lookup, and no other.
"""

from __future__ import annotations

SCHEMA = 2
"""The version of the tables below. A store with a larger one is refused; one with a smaller one is
migrated by `migrations`. A release also raises it for a new field that an older Sayso must not lose
when it writes the row back."""

TABLES = """
CREATE TABLE sayso_meta (key {text} PRIMARY KEY, value {text} NOT NULL);
CREATE TABLE sayso_proposals (
    id {text} PRIMARY KEY, turn {text}, conversation {text}, reference {text},
    state {text} NOT NULL, owner {text}, lease DOUBLE PRECISION,
    created DOUBLE PRECISION NOT NULL, position BIGINT NOT NULL,
    ended DOUBLE PRECISION, kept INTEGER NOT NULL, doc {text} NOT NULL);
CREATE INDEX sayso_proposals_turn ON sayso_proposals (turn) WHERE turn IS NOT NULL;
CREATE INDEX sayso_proposals_conversation ON sayso_proposals (conversation)
    WHERE conversation IS NOT NULL;
CREATE INDEX sayso_proposals_reference ON sayso_proposals (reference)
    WHERE reference IS NOT NULL;
CREATE INDEX sayso_proposals_owner ON sayso_proposals (owner, state) WHERE owner IS NOT NULL;
CREATE INDEX sayso_proposals_state ON sayso_proposals (state, created, position, id);
CREATE INDEX sayso_proposals_created ON sayso_proposals (created, position, id);
CREATE INDEX sayso_proposals_ended ON sayso_proposals (ended) WHERE kept = 1;
CREATE INDEX sayso_proposals_emptied ON sayso_proposals (ended) WHERE kept = 0;
CREATE TABLE sayso_contents (id {text} PRIMARY KEY, doc {text} NOT NULL);
CREATE TABLE sayso_turns (
    id {text} PRIMARY KEY, state {text} NOT NULL, owner {text}, lease DOUBLE PRECISION,
    created DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION, doc {text} NOT NULL);
CREATE INDEX sayso_turns_owner ON sayso_turns (owner, state) WHERE owner IS NOT NULL;
CREATE INDEX sayso_turns_ended ON sayso_turns (ended) WHERE ended IS NOT NULL;
CREATE INDEX sayso_turns_open ON sayso_turns (created) WHERE ended IS NULL;
CREATE TABLE sayso_log (
    chain INTEGER NOT NULL, seq BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
    previous {text} NOT NULL, hash {text} NOT NULL, entry {text} NOT NULL,
    PRIMARY KEY (chain, seq));
CREATE TABLE sayso_chains (
    chain INTEGER PRIMARY KEY, seq BIGINT NOT NULL, previous {text} NOT NULL,
    hash {text} NOT NULL);
"""

RENEW = (
    "UPDATE sayso_proposals SET lease = ? WHERE owner = ? AND state = 'EXECUTING' AND id = ?",
    "UPDATE sayso_turns SET lease = ? WHERE owner = ? AND state = 'RESUMING' AND id = ?",
)
OPENED = "SELECT value FROM sayso_meta WHERE key = 'opened'"
SET_META = (
    "INSERT INTO sayso_meta (key, value) VALUES (?, ?) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
