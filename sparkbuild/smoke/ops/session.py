"""One run of test-backend-ops, under the memory guard, read while it runs."""

from __future__ import annotations

import itertools
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparkbuild import process
from sparkbuild.errors import HostError, SmokeError
from sparkbuild.llama import guard, room
from sparkbuild.llama.memory import Memory
from sparkbuild.smoke.ops.console import Case, Reader

_POLL: Final = 0.05
"""Seconds between two looks at the log: no test is told of later than a person could see."""
_PATIENCE: Final = 10.0
"""Seconds from TERM to KILL."""
_MISSING: Final = 1 << 62
"""Memory that may lack before a start: what an earlier program stranded is its own affair."""
_OVER: Final = "the suite's time was over"
_SHOWN: Final = 12
"""Lines that a crash quotes; upstream's stack trace is some thirty."""
_MESSAGE: Final = re.compile(r"CUDA error|GGML_ASSERT\(.*|: fatal error|terminate called")
"""What ggml prints before it ends itself."""


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A process that did not come to its end."""

    kind: str
    """How it ended: a signal, a status, or that it said nothing for too long."""
    message: str
    """What ggml said of it, where it said something."""
    running: str
    """What was being computed, as the witness announced it."""
    printed: tuple[str, ...]
    """The last lines."""
    over: bool = False
    """It is no crash: the suite's own time was over."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one run told."""

    devices: tuple[str, ...]
    cases: tuple[Case, ...]
    unallocated: tuple[str, ...]
    """Cases that had no memory for their tensors."""
    crash: Crash | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Session:
    """How the program is run: where, with which libraries, how patiently (seconds)."""

    program: Path
    environment: Mapping[str, str]
    log: Path
    """What it prints is kept beside this name, with the number of the run before the suffix."""
    silence: float
    deadline: float
    """Of ``time.monotonic``."""
    floor: int = guard.FLOOR
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, arguments: tuple[str, ...], told: Callable[[Case], None]) -> Ran:
        """Run it once; ``told`` hears of every case that ends.

        Only the main thread may call this. Raises SmokeError where the machine's memory ended it or
        leaves no room, HostError where somebody killed it.
        """
        started = time.monotonic()
        before = _room(self.floor)
        part = self.log.with_name(f"{self.log.stem}-{next(self._numbers):02d}.log")
        part.parent.mkdir(parents=True, exist_ok=True)
        watch = guard.Guard(before, floor=self.floor, patience=_PATIENCE)
        argv = [str(self.program), *arguments]
        watch.launch(lambda: process.start(argv, log=part, env=self.environment, cwd=Path("/")))
        reader, cases = Reader(), list[Case]()

        def heard(case: Case) -> None:
            cases.append(case)
            told(case)

        try:
            status, silent = self._follow(watch, part, reader, heard)
        finally:
            watch.stop()
        if watch.strike is not None:
            raise _struck(watch.strike, part)
        crash = _crash(status, silent, reader, part)
        names = {case.name for case in cases}
        lost = tuple(name for name in reader.failing if name not in names)
        return Ran(
            devices=tuple(reader.devices),
            cases=tuple(cases),
            unallocated=lost,
            crash=crash,
            seconds=time.monotonic() - started,
        )

    def _follow(
        self, watch: guard.Guard, log: Path, reader: Reader, heard: Callable[[Case], None]
    ) -> tuple[int | None, str]:
        """Read until it ends: its status, and why nobody waits for it any longer."""
        last, status, silent = time.monotonic(), None, ""
        with log.open("rb") as stream:
            lines = _Lines(stream.read)
            while status is None and not silent and watch.strike is None:
                status = watch.poll()  # before reading: what is read after the end is whole
                for line in lines.new(whole=status is not None):
                    case = reader.feed(line)
                    last = time.monotonic()
                    if case:
                        heard(case)
                silent = self._silent(last) if status is None else ""
                if status is None and not silent:
                    time.sleep(_POLL)
            for line in lines.new(whole=True):  # what was announced and did not end
                reader.feed(line)
        return status, silent

    def _silent(self, last: float) -> str:
        now = time.monotonic()
        if now - last > self.silence:
            return f"no case ended for {self.silence:g} s"
        return _OVER if now > self.deadline else ""


class _Lines:
    """Lines of a file that grows."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._rest = b""

    def new(self, *, whole: bool) -> Iterator[str]:
        """Those that have come; with ``whole`` the last one too where it has no end."""
        parts = (self._rest + self._read()).split(b"\n")
        self._rest = b"" if whole else parts.pop()
        for part in parts:
            yield part.decode(errors="replace").rstrip("\r")


def _room(floor: int) -> Memory:
    try:
        return room.wait_for_room(floor=floor, missing=_MISSING, seconds=room.SETTLE)
    except SmokeError as error:
        refusal = SmokeError(
            "test-backend-ops was not started: there was no room in memory",
            problems=error.problems,
            next_step="end what else holds memory; then run the same command again",
        )
        refusal.short_of_memory = True
        raise refusal from error


def _struck(strike: guard.Strike, log: Path) -> SmokeError:
    error = SmokeError(
        "test-backend-ops was ended, because the machine's memory was nearly used up",
        problems=[str(strike), f"at the lowest {strike.lowest}"],
        evidence=[log],
        next_step="end what else holds memory; then run the same command again",
    )
    error.short_of_memory = True
    return error


def _crash(status: int | None, silent: str, reader: Reader, log: Path) -> Crash | None:
    if status in {0, 1} and reader.ended:
        return None
    if status == -signal.SIGKILL:
        raise HostError(
            "test-backend-ops was killed, and not by sparkbuild",
            problems=["signal 9; the kernel sends it where memory runs out"],
            evidence=[log],
            next_step="run the same command again with more free memory",
        )
    printed = tuple(reader.since)
    messages = [line for line in printed if _MESSAGE.search(line)]
    return Crash(
        kind=silent or _ending(status),
        message=messages[0].strip() if messages else "",
        running=reader.running,
        printed=printed[-_SHOWN:],
        over=silent == _OVER,
    )


def _ending(status: int | None) -> str:
    if status is None:
        return "it was ended"
    if status < 0:
        known = {one.value: one.name for one in signal.Signals}
        return known.get(-status, f"signal {-status}")
    return f"exit status {status} before its end"
