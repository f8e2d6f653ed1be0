"""Settings of every test run."""

from __future__ import annotations

import os

from hypothesis import settings

# Where a run decides what lands, it must not find by chance what the last one did not.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")
