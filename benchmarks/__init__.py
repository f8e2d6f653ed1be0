"""The cost of a turn: Sayso, plain FastAPI, the limit and peers, measured side by side."""
