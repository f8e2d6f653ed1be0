"""What a turn costs: Assent, plain FastAPI, the limit and peers, measured side by side."""
