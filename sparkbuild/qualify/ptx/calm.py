"""A rest for the garbage collector while many small objects are made that all live on.

Reading a kernel or decoding it makes tens of thousands of them, and the collector would walk
through all again and again: measured, a third to a half of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def calm() -> Iterator[None]:
    """Keep the collector from starting by itself."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
