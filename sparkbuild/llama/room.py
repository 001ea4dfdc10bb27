"""Room in memory before a server starts: above the floor, and whole again after a strike."""

from __future__ import annotations

import time
from typing import Final

from sparkbuild.errors import SmokeError
from sparkbuild.llama import memory
from sparkbuild.llama.memory import MIB, Memory

SETTLE: Final = 60.0
"""Seconds before a start. After a KILL the driver was seen to need up to a minute to give memory
back."""
_MISSING: Final = 1024 * MIB
"""Bytes that may lack after a strike, where a server's own limit is wider: the kernel's caches move
by some hundred MiB, a stranded CUDA context holds more."""
_POLL: Final = 0.1
"""Seconds between two looks at a machine that has no room."""
REMEDY: Final = (
    "take a smaller context or a smaller type of the KV cache, or end what else holds memory; "
    "then run the same command again"
)


class _Owed:
    """What the machine had before the last server that a guard ended; None once that is back."""

    before: Memory | None = None


def owe(before: Memory) -> None:
    """Take note of what the machine had before a server that a guard ends now."""
    _Owed.before = before


def wait_for_room(*, floor: int, missing: int, seconds: float) -> Memory:
    """The machine's memory once there is room for a server: before every start.

    There is room when more than ``floor`` bytes are available, and when of what the last server
    that a guard ended had found no more than ``missing`` bytes lack. Raises SmokeError where that
    is not so within ``seconds``.
    """
    missing = min(missing, _MISSING)
    deadline = time.monotonic() + seconds
    while True:
        now = memory.reading()
        lacking = now.missing_since(_Owed.before) if _Owed.before else 0
        if now.available > floor and lacking <= missing:
            _Owed.before = None
            return now
        if time.monotonic() > deadline:
            raise _no_room(now, lacking, floor=floor, missing=missing, seconds=seconds)
        time.sleep(_POLL)


def _no_room(now: Memory, lacking: int, *, floor: int, missing: int, seconds: float) -> SmokeError:
    problems = []
    if now.available <= floor:
        problems.append(
            f"MemAvailable: expected more than {floor // MIB} MiB, found {now.available // MIB} MiB"
        )
    if lacking > missing:
        problems.append(
            f"of what was there before the server that the memory guard ended, {lacking // MIB} "
            f"MiB lack that no process holds: expected at most {missing // MIB} MiB"
        )
    error = SmokeError(
        f"llama-server was not started: there was no room in memory within {seconds:g} s",
        problems=problems,
        next_step=REMEDY if lacking <= missing else "wait until the memory is back, or reboot",
    )
    error.short_of_memory = True
    return error
