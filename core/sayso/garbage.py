"""Times when the garbage collector need not run: during imports, starts and long bodies."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time

THRESHOLD = 20_000
"""New objects before the collector examines the youngest: a turn leaves none behind."""
_FRESH = 3.0


@contextmanager
def no_collecting() -> Iterator[None]:
    """Run no automatic garbage collection within the block, which creates next to no garbage.

    Examining all objects of an import, again and again, takes a tenth of its time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def keep_all() -> None:
    """Exclude everything that exists now from later garbage collections.

    A process that has only just started has next to no garbage, and looking for it takes another
    tenth of the start; one that has worked for `_FRESH` seconds before may have much of it.
    """
    if process_time() > _FRESH:
        gc.collect()
    gc.freeze()
