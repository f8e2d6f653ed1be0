"""Puts the helpers beside the tests, and those of the page's tests, on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
