"""Decisions and their effects: single calls are decided, approved calls run once, outcomes are
recorded."""
