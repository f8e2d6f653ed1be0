"""The turn engine, and the calls that turns propose, run and record."""
