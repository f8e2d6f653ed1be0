"""One turn after the other: the engine, and the calls that it proposes, runs and records."""
