"""Decisions carried out: single calls decided, approved calls run once, outcomes recorded."""
