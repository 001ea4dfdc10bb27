"""Memory that nobody owns: what a machine lacks and no process holds.

A killed CUDA process can leave gigabytes behind that belong to no process any more; on unified
memory the next start then fails. MemAvailable alone would blame a neighbour's compiler for that,
so what processes hold for themselves is counted in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import psutil

MIB: Final = 1 << 20
_POLL: Final = 0.1
"""Seconds between two readings."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes: MemAvailable, and the private resident memory of all processes together."""

    available: int
    owned: int

    def missing_since(self, before: Memory) -> int:
        """Bytes less available than before that no process's growth explains."""
        return (before.available + before.owned) - (self.available + self.owned)


def available() -> int:
    """MemAvailable in bytes."""
    return psutil.virtual_memory().available


def reading() -> Memory:
    """The machine's memory now."""
    owned = 0
    for process in psutil.process_iter(["memory_info"]):
        info = process.info["memory_info"]
        if info is not None:  # it ended meanwhile, or is not ours to see
            owned += max(0, info.rss - info.shared)
    return Memory(available=available(), owned=owned)


def wait_until_back(before: Memory, *, missing: int, seconds: float) -> Memory:
    """The last reading, taken when no more than ``missing`` bytes lack or the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        now = reading()
        if now.missing_since(before) <= missing or time.monotonic() > deadline:
            return now
        time.sleep(_POLL)
