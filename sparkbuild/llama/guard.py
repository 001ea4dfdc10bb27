"""Watches the machine's memory while a server runs, and ends the server before the machine stops.

On GB10 the CPU and the GPU share one memory. An allocation that is too big for it ends in the
driver's reclaim: no out-of-memory kill comes, control groups do not bound it, and only the power
button helps (field reports). A fall through the whole floor between two readings is not caught:
what is known to be too big must not be started.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.errors import SmokeError
from sparkbuild.llama import memory, room
from sparkbuild.llama.memory import MIB, Memory

FLOOR: Final = 768 * MIB
"""Bytes of MemAvailable. A watchdog that sent TERM below 0.75 GiB, looking every 0.2 s, turned
GB10's power cycles into restarts (field report)."""
INTERVAL: Final = 0.2
"""Seconds between two readings; from the same report."""
GRACE: Final = 3.0
"""Seconds from TERM to KILL while no more than the floor is there. A busy llama-server finishes its
batch and looks once a second whether its clients have hung up; one that waits for the driver may
not end at all. Where TERM has brought memory back above the floor there is no hurry, and KILL in
the middle of CUDA work strands memory: then the server's own patience counts."""
LAST: Final = 3
"""Below this part of the floor KILL follows TERM after a moment: 256 MiB, some five times what the
kernel keeps for itself (45 MB on DGX OS)."""
_MOMENT: Final = 0.1
"""Seconds that TERM gets even then: a process that does not handle it needs some milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Bytes of MemAvailable, and when, in seconds from the start of the watch."""

    available: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.available // MIB} MiB after {self.seconds:.1f} s"


@dataclass(frozen=True, kw_only=True)
class Strike:
    """Why and how a guard ended a server; bytes of MemAvailable, seconds."""

    floor: int
    before: int
    found: Reading
    """What made it strike."""
    lowest: Reading
    gentle: bool = False
    """TERM was enough."""
    term: float = 0.0
    """From TERM to the end, or to KILL."""
    kill: float = 0.0
    """From KILL to the end."""
    after: int = 0
    """When the server was gone. The driver may give back more later."""

    def __str__(self) -> str:
        left, floor = self.found.available // MIB, self.floor // MIB
        return f"ended by the memory guard: {left} MiB left, floor {floor} MiB"

    def refusal(self, log: Path, detail: str) -> SmokeError:
        """The error that ends a run, with the numbers; ``detail`` is the log's tail."""
        left, floor = self.found.available // MIB, self.floor // MIB
        before, after = self.before // MIB, self.after // MIB
        how = f"TERM was enough after {self.term:.2f} s"
        if not self.gentle:
            how = f"KILL was needed {self.term:.2f} s after TERM, the end came in {self.kill:.2f} s"
        lowest = f"at the lowest {self.lowest}"
        error = SmokeError(
            f"llama-server was ended: only {left} MiB of memory were left",
            problems=[
                f"MemAvailable: expected more than {floor} MiB, found {self.found}, {lowest}",
                f"MemAvailable: {before} MiB before the start, {after} MiB when it was gone",
                how,
            ],
            evidence=[log],
            next_step=room.REMEDY,
            detail=detail,
        )
        error.short_of_memory = True
        return error


class Guard:
    """Watches from before a server's start to its end, and is the only one that signals it.

    It strikes once at most: at or below ``floor`` bytes the server's whole session gets TERM, then
    KILL (see GRACE, LAST). ``patience`` is the seconds to KILL where memory is no trouble.
    ``hang_up`` ends the connections to the server: b11434 hears TERM and still waits for as long as
    a client waits for an answer. (It may also lock itself up in the handler, which KILL is for.)
    ``available`` reads MemAvailable in bytes.
    """

    def __init__(
        self,
        before: Memory,
        *,
        floor: int,
        patience: float,
        hang_up: Callable[[], None] = lambda: None,
        last: int | None = None,
        grace: float = GRACE,
        available: Callable[[], int] = memory.available,
    ) -> None:
        self._available = available
        self._before = before
        self._floor = floor
        self._last = floor // LAST if last is None else last
        self._patience = patience
        self._hang_up = hang_up
        self._grace = grace
        self._began = time.monotonic()
        self.lowest = Reading(available=before.available, seconds=0.0)
        self._child: process.Child | None = None
        self._strike: Strike | None = None
        # A child is reaped either under the lock before a strike, or by who signals it: nobody
        # ever signals a process id that may have passed to a stranger.
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory guard", daemon=True)
        self._asked = self._killed = 0.0
        self._gentle = False
        self._impatient = False

    def launch(self, start: Callable[[], process.Child]) -> process.Child:
        """Begin to watch, then start the server; raises what ``start`` raises, watching no more."""
        self._thread.start()
        try:
            self._child = start()
        except BaseException:
            self._over.set()
            self._thread.join()
            raise
        return self._child

    @property
    def strike(self) -> Strike | None:
        """What the guard did, from the moment before its first signal; whole after ``stop``."""
        with self._lock:
            return self._strike

    def poll(self) -> int | None:
        """The exit status of a server that ended by itself; None while it lives, or after a strike.

        Negative for a signal, as ``subprocess`` has it.
        """
        with self._lock:
            return None if self._strike or self._child is None else self._child.poll()

    def stop(self) -> bool:
        """End the server and the watch; True where TERM was enough."""
        self._over.set()
        try:
            self._left.wait()  # an interrupted join takes the thread for ended (CPython 3.11)
        except BaseException:  # Ctrl-C while a strike waits for the server's end
            self._impatient = True
            self._left.wait()
            raise
        self._thread.join()
        if self.strike is None or (self._child and self._child.returncode is None):
            self._end()
        return self._gentle

    def _watch(self) -> None:
        try:
            while not self._over.wait(INTERVAL):
                found = self._read()
                if found.available <= self._floor and self._strikes(found):
                    self._end()
                    return
        finally:
            self._left.set()

    def _strikes(self, found: Reading) -> bool:
        """Take note of a strike; False where the server has ended by itself."""
        with self._lock:
            if self._child is None or self._child.poll() is not None:
                return False
            if self._strike is None:
                self._strike = Strike(
                    floor=self._floor,
                    before=self._before.available,
                    found=found,
                    lowest=self.lowest,
                )
                room.owe(self._before)
        return True

    def _end(self) -> None:
        if self._child is None:
            return
        self._asked = self._elapsed()
        gentle = process.stop_session(self._child, grace=math.inf, hurry=self._hurry)
        ended = self._elapsed()
        killed = ended if gentle else self._killed
        after = self._read().available
        with self._lock:
            self._gentle = gentle
            if self._strike is not None:
                self._strike = replace(
                    self._strike,
                    lowest=self.lowest,
                    gentle=gentle,
                    term=killed - self._asked,
                    kill=ended - killed,
                    after=after,
                )

    def _hurry(self) -> bool:
        """Whether a server that got TERM gets KILL now; whoever still asks it is cut off."""
        self._hang_up()
        found = self._read()
        waited = found.seconds - self._asked
        grace = _MOMENT if found.available <= self._last else self._grace
        short = found.available <= self._floor and waited > grace
        if short:
            self._strikes(found)  # where it was asked to end for another reason
        if short or self._impatient or waited > self._patience:
            self._killed = found.seconds
            return True
        return False

    def _read(self) -> Reading:
        found = Reading(available=self._available(), seconds=self._elapsed())
        if found.available < self.lowest.available:
            self.lowest = found
        return found

    def _elapsed(self) -> float:
        return time.monotonic() - self._began
