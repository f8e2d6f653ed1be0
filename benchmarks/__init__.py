"""What a turn costs: Sayso, plain FastAPI, the limit and peers, measured side by side."""
